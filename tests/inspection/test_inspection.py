import json
from dataclasses import replace

import numpy as np
import pytest
from bars import BEST, CLIENTS, WORST, asked, bars, brighter_side
from dp_accounting import GaussianDpEvent

from fedsynth.data.clients import RawClients
from fedsynth.errors import BadInput, BudgetExhausted, Incompatible, NotPrivate
from fedsynth.inspection.contrast import intensity
from fedsynth.inspection.inspection import inspect
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import beside

pytestmark = pytest.mark.recipe
NOBODY = {"by": "example", "criterion": "misclassified", "at_least": 100}


@pytest.fixture(scope="module")
def with_bug(tmp_path_factory):
    out = tmp_path_factory.mktemp("bug") / "out"
    return inspect(asked(total=45.0), bars(0.5), out=out), out


def test_a_bug_at_half_of_the_clients_is_found(with_bug):
    findings, _ = with_bug
    assert findings.fires is True and findings.empty == []
    bright, dark = (intensity(findings.models[name].sample) for name in ("bad", "good"))
    assert bright > dark + 0.3


def test_without_a_bug_nothing_is_found():
    raw = bars(0.0)
    shuffled = raw.data[1].copy()  # every second client is bad, but its images are like the others'
    shuffled[raw.owner % 2 == 0] = np.where(shuffled[raw.owner % 2 == 0] == "left", "right", "left")
    mislabelled = RawClients(raw.owner, raw.count, (), data=(raw.data[0], shuffled))
    findings = inspect(asked(), mislabelled)
    assert findings.fires is False and findings.empty == []


def test_one_ledger_holds_questions_and_models_and_the_statement_follows_from_it(with_bug):
    findings, out = with_bug
    ledger = Ledger(out / "ledger.jsonl")
    assert ledger.verify() == []
    kinds = [line.what.partition(",")[0] for line in ledger.lines()]
    assert kinds == [
        "clients by their share of rows classified right",
        "clients that meet each selection",
        "class moments",
        "noisy sum of clipped client updates",
        "class moments",
        "noisy sum of clipped client updates",
    ]
    spent = ledger.epsilon(1e-2, unit="client")
    assert 0.9 * 20 < spent <= 20
    assert findings.statement.simulation and findings.statement.epsilon is None  # it was seeded


def test_a_schema_that_was_paid_for_is_part_of_the_price_and_is_not_paid_for_twice(tmp_path, with_bug):
    plain = Ledger(with_bug[1] / "ledger.jsonl").lines()
    path = tmp_path / "schema.json"
    Ledger(beside(path)).append(GaussianDpEvent(0.5), what="categories", unit="client", run="schema")
    bought = asked(models=0, total=60.0)
    schema = replace(bought.schema, provenance={bought.schema.label: "paid"})
    bought = replace(bought, schema=schema, request=replace(bought.request, schema=str(path)))
    inspect(bought, bars(0.5), out=tmp_path / "out")
    ledger = Ledger(tmp_path / "out" / "ledger.jsonl")
    assert [line.what for line in ledger.lines()] == ["categories", *(line.what for line in plain)]
    assert 0.9 * 20 < ledger.epsilon(1e-2, unit="client") <= 20
    inspect(bought, bars(0.5), out=tmp_path / "again", against=tmp_path / "out")
    after = [line.what for line in Ledger(tmp_path / "again" / "ledger.jsonl").lines()]
    assert after.count("categories") == 1
    beside(path).unlink()
    with pytest.raises(NotPrivate, match="no ledger beside the schema"):
        inspect(bought, bars(0.5))


def test_what_is_written_says_nothing_of_single_clients(with_bug):
    _, out = with_bug
    written = json.loads((out / "findings.json").read_text())
    assert set(written) == {
        "kind", "recipe", "fires", "changed", "needed", "noise_only", "contrast", "models", "survey", "null",
    }  # fmt: skip
    assert written["models"]["bad"]["share"]["told"] != 0.5
    assert {path.name for path in out.iterdir()} >= {"bad.npz", "good.npz", "bad.safetensors", "privacy.json"}


def test_the_statement_says_that_the_number_of_those_who_meet_a_selection_was_told_with_noise(with_bug):
    findings, out = with_bug
    caveats = " ".join(findings.statement.caveats)
    assert "How many clients met a selection was not revealed" not in caveats
    assert "How many clients met a selection was revealed as a noisy number" in caveats
    assert "clients that meet each selection" in {line.what for line in Ledger(out / "ledger.jsonl").lines()}


def test_a_selection_that_nobody_meets_costs_the_same_and_is_said_to_be_noise():
    empty = inspect(asked(bad=NOBODY, good=None, model=brighter_side, models=0, epsilon=12.0), bars(0.5))
    full = inspect(asked(bad={**NOBODY, "at_least": 1}, good=None, models=0, epsilon=12.0), bars(0.5))
    paid = [[(r["what"], r["count"], r["event"]) for r in f.statement.releases] for f in (empty, full)]
    assert paid[0] == paid[1]
    assert empty.empty == ["bad"] and full.empty == []


def test_nothing_is_simulated_for_one_selection_that_is_held_against_nothing():
    findings = inspect(asked(bad={**NOBODY, "at_least": 1}, good=None, models=8), bars(0.5))
    assert findings.null == () and findings.fires is None


def test_a_model_that_fails_at_some_clients_is_counted_and_the_run_goes_on():
    raw = bars(0.0)
    marked = raw.data[0][np.arange(CLIENTS) * 8]

    def moody(images):
        if (images[0] == marked[:20]).all((1, 2)).any():
            raise RuntimeError(f"client with {images[0, 0]}")
        return brighter_side(images)

    findings = inspect(asked(bad=None, model=moody, models=0), raw)
    assert abs(findings.spreads[0].failed - 20) < 5 * findings.spreads[0].deviation
    assert findings.spreads[0].failed > 3 * findings.spreads[0].deviation
    assert "client with" not in json.dumps(findings.to_dict())


def test_a_repeat_composes_with_the_first_and_shows_the_change(with_bug, tmp_path):
    first, out = with_bug
    fixed = inspect(asked(total=45.0, seed=2), bars(0.0), out=tmp_path / "second", against=out)
    lines = Ledger(tmp_path / "second" / "ledger.jsonl").lines()
    assert len(lines) == 12
    assert [line.hash for line in lines[:6]] == [
        line.hash for line in Ledger(out / "ledger.jsonl").lines()[:6]
    ]
    assert fixed.models["good"].change and not any(f.fires for f in fixed.models["good"].change)
    assert "bad" in fixed.empty  # nobody is left there
    with pytest.raises(BudgetExhausted, match="Earlier inspections of these data count"):
        inspect(asked(total=45.0), bars(0.0), out=tmp_path / "third", against=tmp_path / "second")
    with pytest.raises(BudgetExhausted):  # also from the first: all write to its ledger
        inspect(asked(total=45.0), bars(0.0), out=tmp_path / "fourth", against=out)
    assert not (tmp_path / "third").exists()


def test_an_unfinished_or_foreign_folder_is_no_earlier_inspection(tmp_path):
    with pytest.raises(BadInput, match="not a finished inspection"):
        inspect(asked(), bars(0.0), against=tmp_path)


def test_recipes_that_cannot_keep_a_selection_secret_are_refused():
    with pytest.raises(Incompatible, match="only whole clients can be protected"):
        inspect(asked(recipe="fvae_record"), bars(0.5))
    with pytest.raises(Incompatible, match="makes text"):
        inspect(asked(recipe="dp_fedavg_lm"), bars(0.5))


def test_a_delta_that_protects_nobody_is_refused():
    weak = asked()
    request = weak.request.changed(delta=0.5)
    with pytest.raises(NotPrivate, match="delta"):
        inspect(type(weak)(request, weak.schema, weak.selections, weak.model), bars(0.0))


def test_one_or_two_selections_and_no_more():
    made = asked(WORST, BEST)
    with pytest.raises(BadInput, match="3 selections"):
        type(made)(made.request, made.schema, {**made.selections, "third": made.selections["bad"]})


def test_unlabelled_rows_make_a_model_without_labels():
    raw = bars(0.0)
    blank = RawClients(raw.owner, raw.count, (), data=(raw.data[0], np.full(raw.rows, "")))
    findings = inspect(asked({"criterion": "unlabelled", "by": "example"}, None, model=None, models=0), blank)
    assert findings.models["bad"].sample.data[1] is None
    assert findings.schema.classes == () and findings.labelled.classes == ("left", "right")


def test_a_class_that_no_selected_row_has_stops_nothing():
    raw = bars(0.0)
    images = raw.data[0].copy()
    images[raw.data[1] == "right"] = 255 - images[raw.data[1] == "right"]
    wrong = RawClients(raw.owner, raw.count, (), data=(images, raw.data[1]))
    only_right = {"by": "example", "criterion": "misclassified"}
    findings = inspect(asked(only_right, None, models=0, epsilon=200.0), wrong)
    assert (findings.models["bad"].sample.data[1] == "right").mean() > 0.8
