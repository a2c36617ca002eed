"""An inspection where the data are: the same result as in the simulator, and every site paid for all of it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from bars import SCHEMA, asked, bars
from sites_with_bars import allowing, by_rule, call_to, classifier, sites_of

from fedsynth.data.clients import RawClients
from fedsynth.data.schema import Schema
from fedsynth.deploy.inspection.server_job import looked
from fedsynth.deploy.link.patience import TooFewSites
from fedsynth.inspection.inspection import conclude, inspect
from fedsynth.inspection.primary import graph_from
from fedsynth.inspection.released import ReleasedAnswers
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.selection import Selection
from fedsynth.inspection.unlabelled import strip_labels, without_label
from fedsynth.inspection.verdict import Simulation
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.request import Request

pytest.importorskip("onnx", reason="ONNX files are made by onnx")
pytest.importorskip("onnxruntime", reason="ONNX files are run by onnxruntime (extra inspect)")
pytestmark = pytest.mark.recipe
LOW = {"by": "user", "criterion": "correct", "below": "25%"}
HIGH = {"by": "user", "criterion": "correct", "above": "75%"}
WRONG = {"by": "example", "criterion": "misclassified", "at_least": 2}
WEAK = {"by": "example", "criterion": "weak_slices", "accuracy_below": 0.9}
TABLE = Schema.from_dict(
    {
        "version": 1,
        "label": "ill",
        "columns": [
            {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
            {"name": "dose", "type": "integer", "min": 0, "max": 9},
            {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
        ],
    }
)


def lines_of(ledger):
    return [(line.what, line.holder, line.event, line.count) for line in ledger.lines()]


def close(one, other):
    """Nested JSON values that are equal up to rounding."""
    if isinstance(one, dict):
        return set(one) == set(other) and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other, strict=True))
    return one == (pytest.approx(other, abs=1e-6) if isinstance(other, float) else other)


def compared(inspection, raw, sites, tmp_path, **more):
    """The findings and the ledger of an inspection over sites, which are those of the simulator."""
    simulated = inspect(inspection, raw, out=tmp_path / "simulated")
    ledger = Ledger(None)
    seen = looked(call_to(sites, inspection, **more), Payer(ledger, "look"))
    found = conclude(inspection, seen, ledger)
    assert close(found.to_dict(), simulated.to_dict())
    for name, model in simulated.models.items():
        for part, flat in model.generator.parts.items():
            torch.testing.assert_close(found.models[name].generator.parts[part], flat, rtol=1e-6, atol=1e-6)
    assert lines_of(ledger) == lines_of(Ledger(tmp_path / "simulated" / "ledger.jsonl"))
    return found, ledger, seen


def with_model(plain, content, schema=SCHEMA):
    """An inspection whose model also runs in this process."""
    return replace(plain, model=graph_from(schema, content, "the classifier"))


@pytest.fixture(scope="module")
def by_user(tmp_path_factory):
    folder = tmp_path_factory.mktemp("by user")
    content = classifier()
    whole = with_model(asked(LOW, HIGH, model=None, models=4), content)
    sites = sites_of(bars(0.5), folder / "sites")
    return (*compared(whole, bars(0.5), sites, folder, content=content), sites)


def test_a_bug_is_found_over_sites_as_in_the_simulator(by_user):
    found, _, _, _ = by_user
    assert found.fires is True and found.empty == []


def test_every_site_paid_for_the_questions_and_both_models(by_user):
    _, ledger, _, sites = by_user
    released = [(line.what, line.event) for line in ledger.lines()]
    for site in sites.values():
        assert site.ledger.verify() == []
        assert [(line.what, line.event) for line in site.ledger.lines()] == released
        runs = list(dict.fromkeys(line.run for line in site.ledger.lines()))
        assert runs == ["look-shares-0", "look-meeting-1", "look-train-0", "look-train-1"]
        assert 0.9 * 20 < site.ledger.epsilon(1e-2, unit="client") <= 20


def test_nothing_of_a_run_is_left_at_a_site_but_its_plan(by_user):
    _, _, _, sites = by_user
    for site in sites.values():
        left = {path.name for path in (site.folder / "runs").rglob("*") if path.is_file()}
        assert left == {"begin.bin", "standing.bin"}


def people(seed=0):
    """Clients with a table, in which women get other doses than men."""
    draw = np.random.default_rng(seed)
    owner = np.repeat(np.arange(30), 5)
    sex = draw.choice(["F", "M"], len(owner))
    dose = np.where(sex == "F", draw.integers(6, 10, len(owner)), draw.integers(0, 4, len(owner)))
    ill = draw.choice(["no", "yes"], len(owner))
    return RawClients(owner, 30, (), data=pd.DataFrame({"sex": sex, "dose": dose, "ill": ill}))


def test_a_table_by_example_with_parts_that_stay_at_the_clients(tmp_path):
    request = Request(
        recipe="dpd_fvae",
        epsilon=500.0,
        delta=1e-2,
        rounds=2,
        noise_multiplier=1.0,
        seed=1,
        arguments={"hidden": (8,), "latent": 2, "rate": 0.8},
    )
    chosen = {"women": by_rule("sex", "==", "F", at_least=2), "men": by_rule("sex", "==", "M")}
    inspection = Inspection(request, TABLE, chosen, None, Simulation(models=0), shown=100)
    compared(inspection, people(), sites_of(people(), tmp_path, TABLE), tmp_path)


def open_request(plain):
    """The same without privacy: no time is spent on noise."""
    request = replace(plain.request, private=False, epsilon=None, delta=None)
    return replace(plain, request=request)


def test_mistakes_by_example_and_weak_classes(tmp_path):
    content = classifier()
    whole = with_model(open_request(asked(WRONG, WEAK, model=None, models=0)), content)
    compared(whole, bars(0.5), sites_of(bars(0.5), tmp_path), tmp_path, content=content)


def test_rows_that_a_public_model_finds_unlikely(tmp_path):
    content = classifier(np.ones((64, 1)))  # how bright a row is
    dark = {"by": "example", "criterion": "unlikely", "threshold": 32.0}
    bright = {"by": "example", "criterion": "told_apart", "threshold": 32.0}
    whole = with_model(open_request(asked(dark, bright, model=None, models=0)), content)
    found, _, _ = compared(whole, bars(0.5), sites_of(bars(0.5), tmp_path), tmp_path, content=content)
    assert found.models["bad"].share.told == pytest.approx(0.5, abs=1e-6)


def test_rows_of_sites_whose_schema_has_no_label(tmp_path):
    raw, plain = strip_labels(bars(0.0), SCHEMA), without_label(SCHEMA)
    whole = open_request(asked({"criterion": "unlabelled", "by": "example"}, None, model=None, models=0))
    whole = replace(whole, schema=plain)
    found, _, _ = compared(whole, raw, sites_of(raw, tmp_path, plain), tmp_path)
    assert found.models["bad"].sample.data[1] is None


def test_texts_with_unknown_words(tmp_path):
    words = ("see", "the", "red", "cat", "run")
    draw = np.random.default_rng(0)
    texts = tuple(" ".join(draw.choice((*words, "zebra"), 4)) for _ in range(90))
    raw = RawClients(np.repeat(np.arange(30), 3), 30, (), data=texts)
    schema = Schema(kind="text", vocabulary=words, length=5)
    unknown = Selection.parse({"by": "example", "criterion": "out_of_vocabulary"})
    request = Request(recipe="dp_fedavg_lm", epsilon=20.0, delta=1e-2, rounds=2, seed=1)
    whole = Inspection(request, schema, {"unknown": unknown}, None, Simulation(models=0), shown=40)
    found, _, _ = compared(whole, raw, sites_of(raw, tmp_path, schema), tmp_path)
    assert found.models["unknown"].sample


def test_what_was_released_is_written_and_read_again(by_user, tmp_path):
    _, ledger, seen, _ = by_user
    plain = asked(LOW, HIGH, model=None, models=0)
    written = {path.name for path in seen.save(tmp_path)}
    assert written == {"bad.safetensors", "good.safetensors", "seen.json"}
    again = ReleasedAnswers.load(tmp_path, plain.request, plain.trained)
    told = [conclude(plain, one, ledger).to_dict() for one in (again, seen)]
    assert json.dumps(told[0]) == json.dumps(told[1])


def test_a_site_that_forbids_it_is_left_out_and_says_why(tmp_path):
    closed = {"cern": allowing(inspect=False)}
    sites = sites_of(bars(0.5), tmp_path, policies=closed)
    with pytest.raises(TooFewSites, match=r"cern refuses: inspections are not allowed here.*inspect = true"):
        call_to(sites, content=classifier()).gather()
    assert call_to(sites, content=classifier(), minimum=2).gather().clients == 40


def test_a_site_whose_budget_is_too_small_for_all_of_it_pays_for_nothing(tmp_path):
    poor = {"bern": allowing(budget=Budget(16.0, 1e-2))}  # enough for the questions and one model
    sites = sites_of(bars(0.5), tmp_path, policies=poor)
    ledger = Ledger(None)
    seen = looked(call_to(sites, content=classifier(), minimum=2), Payer(ledger, "look"))
    assert seen.trainer.task.clients == 40 and not sites["bern"].ledger.lines()
    assert lines_of(sites["ada"].ledger) == lines_of(ledger)


def test_a_selection_that_nobody_meets_costs_the_same_and_is_said_to_be_noise(tmp_path):
    nobody = asked({**WRONG, "at_least": 100}, None, model=None, models=0, epsilon=12.0)
    sites = sites_of(bars(0.5), tmp_path)
    ledger = Ledger(None)
    found = conclude(
        nobody, looked(call_to(sites, nobody, content=classifier()), Payer(ledger, "look")), ledger
    )
    assert found.empty == ["bad"] and found.fires is None
    assert len(sites["ada"].ledger.lines()) == len(ledger.lines()) == 4
