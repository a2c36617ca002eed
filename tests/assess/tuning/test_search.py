from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent

from fedsynth.assess.tuning.charged_search import ChargedSearch, ColumnMeans
from fedsynth.assess.tuning.search import FreeSearch, best_of, candidates
from fedsynth.data.clients import clients_from
from fedsynth.errors import BadInput, Incompatible
from fedsynth.privacy import account
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer

REQUEST = Request(
    recipe="dpd_fvae", epsilon=8.0, delta=1e-3, rounds=2, arguments={"hidden": (8,), "latent": 2}
)


@pytest.fixture(scope="module")
def rows(frame):
    return clients_from(frame, client_column="owner")


def search(known, rows, tried, **changes):
    return ChargedSearch(REQUEST.changed(**changes), known, rows, tried, trials=2.0)


def test_candidates_are_every_combination_and_unknown_settings_are_refused():
    assert len(candidates("dpd_fvae", {"clip": ["0.1", "1"], "hidden": ["8", "8,8"]})) == 4
    with pytest.raises(BadInput, match="klip"):
        candidates("dpd_fvae", {"klip": ["1"]})
    with pytest.raises(BadInput, match="at least one"):
        candidates("dpd_fvae", {})


def test_a_free_search_puts_the_best_first_and_says_why_a_candidate_failed(schema, rows):
    tried = [{"clip": 1.0}, {"clip": 1e-9}, {"rate": 7.0}]
    done = FreeSearch(REQUEST, schema, rows).trials(tried)
    assert [trial.settings for trial in done][-1] == {"rate": 7.0}
    assert "rate=7.0" in done[-1].failed and done[-1].score is None
    assert done[0].score >= done[1].score
    assert best_of(done) is done[0]


def test_a_free_search_judges_by_clients_that_were_not_trained_on(schema, rows):
    kept, held = FreeSearch(REQUEST, schema, rows)._parted()
    assert kept.rows + held.rows == rows.rows
    assert kept.count + held.count == rows.count
    assert 0 < held.count < rows.count


def test_a_charged_search_is_one_line_that_costs_more_than_a_training(tmp_path, schema, rows):
    tried = candidates("dpd_fvae", {"clip": ["0.5", "1"], "latent": ["2", "3"]})
    best = search(schema, rows, tried).run(tmp_path / "run")
    assert best in tried
    lines = Ledger(tmp_path / "run" / "ledger.jsonl").releases()
    assert [line.event["type"] for line in lines] == ["RepeatAndSelectDpEvent", "GaussianDpEvent"]
    made = Synthesizer.load(tmp_path / "run")
    assert made.privacy.private and 7.5 < made.privacy.epsilon <= 8.0
    assert len(made.sample(5)) == 5
    cost = lines[0].cost
    assert isinstance(cost, RepeatAndSelectDpEvent)
    alone = account.epsilon(cost.event, 1e-3)
    assert alone < 0.8 * account.epsilon(cost, 1e-3)  # a search that were free would be the bug


def test_a_schema_that_was_paid_for_is_part_of_the_price(tmp_path, schema, rows):
    path = tmp_path / "schema.json"
    Ledger(beside(path)).append(GaussianDpEvent(1.0), what="bounds", unit="client", run="schema")
    bought = replace(schema, provenance={"age": "paid"})
    tried = candidates("dpd_fvae", {"clip": ["0.5", "1"]})
    search(bought, rows, tried, schema=str(path)).run(tmp_path / "run")
    lines = Ledger(tmp_path / "run" / "ledger.jsonl").releases()
    assert [line.what for line in lines][0] == "bounds" and len(lines) == 3
    assert 7.5 < Synthesizer.load(tmp_path / "run").privacy.epsilon <= 8.0


def test_a_charged_search_refuses_what_has_no_one_price(tmp_path, schema, rows):
    different = candidates("dpd_fvae", {"rate": ["0.2", "0.5"]})
    with pytest.raises(Incompatible, match="different amounts"):
        search(schema, rows, different).run(tmp_path / "a")
    with pytest.raises(Incompatible, match="trust=local"):
        search(schema, rows, [{"clip": 1.0}], trust="local").run(tmp_path / "b")
    with pytest.raises(Incompatible, match="leave it out"):
        search(schema, rows, [{"clip": 1.0}], noise_multiplier=2.0)
    assert not list(tmp_path.glob("*/ledger.jsonl"))  # refused before anything was spent


def test_the_number_of_trainings_has_the_stated_mean(schema, rows):
    one = search(schema, rows, [{"clip": 1.0}])
    counts = np.array([one._count(Rng(seed)) for seed in range(4000)])
    assert counts.min() == 1
    assert abs(counts.mean() - 2.0) < 0.1
    assert abs((counts == 1).mean() - 0.5) < 0.03


def test_a_clients_answer_is_never_longer_than_the_clip(ten):
    for kind in ("table", "image"):
        clients = ten[kind]
        means = ColumnMeans(int(np.prod(clients.x.shape[1:])), 2)
        answers = means(clients.gather(np.arange(len(clients)), "cpu"))
        assert float(answers.norm(dim=1).max()) <= 1 + 1e-6
        assert float(answers.norm(dim=1).max()) > 0.05
