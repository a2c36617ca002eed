"""CALM, LoPub and LoCop as recipes: what they learn, what they cost, what they refuse, and how they resume."""

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth import Rng, Schema, Synthesizer, clients_from
from fedsynth.assess.audit.audit import audit
from fedsynth.data.clients import encode_clients
from fedsynth.errors import BadInput, FedsynthError, Incompatible
from fedsynth.federation.loop import run
from fedsynth.models.copula import Copula
from fedsynth.recipes.local_tables import forest
from fedsynth.recipes.registry import recipe_named
from fedsynth.simulator.inprocess import InProcess
from fedsynth.training.row_answers import RowAnswers
from samples import IMAGE, TABLE

NAMES = ("calm", "lopub", "locop")
YES_NO = ["no", "yes"]
CLIENTS = 3000
SCHEMA = Schema.from_dict(
    {
        "version": 1,
        "kind": "table",
        "label": "y",
        "columns": [
            *({"name": name, "type": "categorical", "categories": YES_NO} for name in "abc"),
            {"name": "d", "type": "categorical", "categories": ["x", "y", "z"]},
            {"name": "y", "type": "binary", "categories": YES_NO},
        ],
    }
)


@pytest.fixture(scope="module")
def people():
    """One row each; b copies a nine times in ten, c follows the label, d has three even values."""
    draw = np.random.default_rng(0)
    label = draw.random(CLIENTS) < 0.3
    a = draw.random(CLIENTS) < 0.4
    b = np.where(draw.random(CLIENTS) < 0.9, a, ~a)
    c = draw.random(CLIENTS) < np.where(label, 0.8, 0.1)
    values = {"a": a, "b": b, "c": c, "y": label}
    frame = pd.DataFrame({name: np.array(YES_NO)[value.astype(int)] for name, value in values.items()})
    frame["d"] = np.array(["x", "y", "z"])[draw.integers(0, 3, CLIENTS)]
    return clients_from(frame, clients=CLIENTS, rng=Rng(1))


def fitted(name, people, **settings):
    settings = {"epsilon": 4.0, "delta": 1e-9, **settings}
    return Synthesizer(name, SCHEMA, **settings).fit(people)


def together(rows, first, second):
    return float(((rows[first] == "yes") == (rows[second] == "yes")).mean())


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_the_strong_dependence_is_learned(name, people):
    rows = fitted(name, people, private=False, epsilon=None).sample(3000, seed=2)
    assert together(rows, "a", "b") > 0.75
    assert (rows["a"] == "yes").mean() == pytest.approx(0.4, abs=0.05)
    assert (rows["y"] == "yes").mean() == pytest.approx(0.3, abs=0.05)
    ill = rows["y"] == "yes"
    assert (rows["c"][ill] == "yes").mean() > 0.6 > 0.3 > (rows["c"][~ill] == "yes").mean()


def test_calm_learns_under_privacy_and_every_client_pays_pure_epsilon_once(people):
    synthesizer = fitted("calm", people)
    rows, stated = synthesizer.sample(3000, seed=2), synthesizer.privacy
    ill = rows["y"] == "yes"
    assert (rows["c"][ill] == "yes").mean() > 0.6 > 0.3 > (rows["c"][~ill] == "yes").mean()
    assert together(rows, "a", "b") > 0.75
    assert (stated.unit, stated.trust, stated.adjacency) == ("client", "local", "replace-one")
    assert stated.epsilon == pytest.approx(4.0, abs=1e-3) and stated.private
    assert any("one of its rows" in caveat for caveat in stated.caveats)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_that_was_written_down_and_read_again_ends_as_the_same_model(name, people):
    recipe = recipe_named(name)
    algorithm = recipe.build(recipe.task(SCHEMA, CLIENTS), recipe.values({"epsilon": 4.0}))
    data = encode_clients(people, SCHEMA)

    def finished(state):
        link = InProcess(data, Rng(1), chunk=700)
        return run(algorithm, link, state, Rng(1), lambda *_: None, lambda *_: None, 1).parts["fitted"]

    first = algorithm.init(Rng(2))
    again = type(first).from_tensors(first.to_tensors())
    assert torch.equal(finished(first), finished(again))


@pytest.mark.parametrize("name", NAMES)
def test_the_audit_stays_below_the_claim_and_finds_a_larger_budget(name):
    recipe = recipe_named(name)

    def built(epsilon):
        return recipe.build(recipe.task(SCHEMA, 10), recipe.values({"epsilon": epsilon}))

    honest = audit(built(1.0), SCHEMA, 1e-6, canaries=2000, rng=Rng(1))
    assert honest.epsilon_lower <= honest.claimed == pytest.approx(1.0, abs=1e-3)
    lying = {"calm": 4.0, "lopub": 30.0, "locop": 30.0}[
        name
    ]  # bits: the worst pair shares some of its filters
    assert audit(built(lying), SCHEMA, 1e-6, canaries=2000, rng=Rng(1), claimed=built(1.0)).exceeds


def test_a_client_answers_for_a_row_of_its_own_drawn_evenly(ten):
    class Plain:
        def privatize(self, x, state, rng, ids):
            return x

    schema = Schema.from_dict(TABLE)
    from fedsynth.models.table_domain import TableDomain

    domain = TableDomain(schema, 8)
    data = ten["table"].gather(np.arange(10))
    own = [{tuple(row) for row in codes.tolist()} for codes in domain.codes(data.x, data.y)]
    told = [
        RowAnswers(domain, Plain()).messages(None, {}, data, np.arange(10), {}, Rng(seed))
        for seed in range(40)
    ]
    for client in range(1, 10):
        rows = {tuple(int(code) for code in one[client]) for one in told}
        real = {tuple(row) for row in domain.codes(data.x, data.y)[client][data.mask[client]].tolist()}
        assert rows <= real <= own[client]
        assert len(rows) == len(real) or len(real) > 6
    assert all((one[0] == -1).all() for one in told)  # the first client has no rows


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("calm", {"epsilon": 0.0}, "epsilon=0"),
        ("lopub", {"hashes": 0}, "hashes=0"),
        ("locop", {"bins": 1}, "bins=1"),
        ("calm", {"columns": 3, "bins": 200}, "bins=200"),
    ],
)
def test_bad_settings_are_refused(name, settings, words):
    recipe = recipe_named(name)
    with pytest.raises(BadInput, match=words):
        recipe.build(recipe.task(SCHEMA, 10), {"epsilon": 1.0, **settings})


def test_images_other_units_and_rounds_are_refused(people):
    with pytest.raises(FedsynthError, match="calm makes tables"):
        recipe_named("calm").build(recipe_named("calm").task(Schema.from_dict(IMAGE), 10), {"epsilon": 1.0})
    with pytest.raises(Incompatible, match="lopub cannot promise that; .*marginals"):
        recipe_named("lopub").protection("record", "central")
    with pytest.raises(BadInput, match="rounds=5: calm asks once"):
        fitted("calm", people, rounds=5)


def test_known_labels_move_what_goes_with_them_in_a_copula():
    shares = [np.array([0.5, 0.5]), np.array([0.2, 0.3, 0.5]), np.array([0.7, 0.3])]
    copula = Copula.of(shares, np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1.0]]))
    again = Copula.unpack(copula.pack(), (2, 3, 2))
    labels = np.repeat([0, 1], 4000)
    rows = again.draw(8000, np.random.default_rng(0), {0: labels})
    assert (rows[:, 0] == labels).all()
    assert rows[labels == 1, 1].mean() - rows[labels == 0, 1].mean() > 0.8
    assert (rows[:, 2] == 1).mean() == pytest.approx(0.3, abs=0.03)
    assert np.bincount(rows[:, 1]) / 8000 == pytest.approx(shares[1], abs=0.03)


def test_a_forest_has_no_circle_and_takes_the_largest_gains():
    gains = {(0, 1): 1.0, (0, 2): 3.0, (1, 2): 2.0, (3, 4): 0.5}
    assert forest(gains, 5) == [(0, 2), (1, 2), (3, 4)]
