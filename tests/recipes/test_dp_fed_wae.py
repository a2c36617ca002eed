"""DP-Fed-WAE: who takes part how often, what a client spends, where training starts, and what is refused."""

import numpy as np
import pytest
import torch

from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, BudgetExhausted
from fedsynth.federation.schedule import Clock
from fedsynth.models.model import layouts
from fedsynth.models.wae import OBJECTIVE
from fedsynth.privacy import account
from fedsynth.recipes.budget import Target, cost, fit_budget
from fedsynth.recipes.opening import UniformRows, pretrain
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.wae import smallest_alpha
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer

SMALL = {"latent": 2, "hidden": (8,), "pretraining": 5}


def made(schema, clients=40, **settings):
    recipe = recipe_named("dp_fed_wae")
    return recipe.build(recipe.task(schema, clients), {**SMALL, "epsilon": 4.0, "group": 5, **settings})


def turns(algorithm):
    """How often each client takes part, in training and in the opening."""
    counts = np.zeros(algorithm.schedule.clients, dtype=int)
    for version in range(algorithm.rounds):
        counts[algorithm.schedule.start(Clock(version), Rng(1))] += 1
    asked = np.zeros_like(counts)
    if algorithm.balance is not None:
        asked[algorithm.balance.schedule.start(Clock(0), Rng(1))] += 1
    return counts, asked


@pytest.mark.parametrize("participations", [1, 3])
@pytest.mark.parametrize("opening", [0.0, 0.2, 0.5])
def test_nobody_takes_part_more_often_than_allowed_and_who_answers_does_not_train(
    schema, participations, opening
):
    algorithm = made(schema, clients=43, participations=participations, opening=opening)
    counts, asked = turns(algorithm)
    assert counts.max() == participations == algorithm.schedule.participations(algorithm.rounds)
    assert not (counts[asked > 0]).any() and ((counts > 0) | (asked > 0)).all()


@pytest.mark.parametrize("participations", [1, 4])
def test_a_clients_budget_is_divided_by_its_turns(schema, participations):
    algorithm = made(schema, participations=participations)
    assert algorithm.mechanism.epsilon == pytest.approx(4.0 / participations)
    assert algorithm.balance.mechanism.epsilon == 4.0
    spent = account.epsilon(cost(algorithm), 1e-9, adjacency="replace-one")
    assert spent <= 4.0 * (1 + 1e-9)


def test_fewer_rounds_than_turns_leave_more_for_each(schema):
    algorithm = made(schema, participations=4, rounds=4)  # four groups, each has one turn
    assert algorithm.mechanism.epsilon == 4.0


def test_a_message_is_one_signed_index_and_carries_no_loss(schema, ten):
    algorithm = made(schema, clients=10)
    state = algorithm.init(Rng(1))
    messages, kept = algorithm.client_round(state, {}, ten["table"].gather([1, 2]), np.array([1, 2]), Rng(1))
    size = sum(layouts(algorithm.model)[part].size for part in ("encoder", "decoder"))
    assert messages.shape == (2, 1) and messages.dtype == torch.int64 and kept == {}
    assert algorithm.dim == size and (messages.abs() <= size).all()
    after, loss = algorithm.server_round(state, algorithm.wire.zero(), Rng(1))
    assert loss is None and after.version == 1


def test_several_indices_are_sent_where_asked_for(schema, ten):
    algorithm = made(schema, clients=10, indices=3)
    state = algorithm.init(Rng(1))
    messages, _ = algorithm.client_round(state, {}, ten["table"].gather([1]), np.array([1]), Rng(1))
    assert messages.shape == (1, 3) and len(messages.abs().unique()) == 3


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"top": 10_000}, BadInput, "top=10000: fewer than the .* coordinates"),
        ({"alpha": -0.1}, BadInput, "alpha=-0.1: .*\\(0, 1\\]"),
        ({"alpha": 1.5}, BadInput, "alpha=1.5: .*\\(0, 1\\]"),
        ({"indices": 10_000}, BadInput, "count=10000"),
        ({"rounds": 5}, BudgetExhausted, "rounds=5: 20 clients in groups of 5 .* 4 rounds"),
        ({"participations": 0}, BadInput, "participations=0"),
        ({"epsilon": 0.0}, BadInput, "epsilon=0"),
        ({"decode": "best"}, BadInput, "decode='best'"),
        ({"opening": 1.0}, BadInput, "opening=1"),
    ],
)
def test_impossible_settings_are_refused_when_the_recipe_is_built(schema, settings, error, words):
    with pytest.raises(error, match=words):
        made(schema, **settings)


def test_the_budget_is_given_whole_and_noise_is_refused(schema):
    recipe = recipe_named("dp_fed_wae")
    values = recipe.values({**SMALL, "group": 5})
    task = recipe.task(schema, 40)
    algorithm, chosen = fit_budget(recipe, task, values, Target(2.5, 1e-6))
    assert chosen["epsilon"] == algorithm.mechanism.epsilon == 2.5
    with pytest.raises(BadInput, match="noise_multiplier"):
        fit_budget(recipe, task, values, Target(2.5, 1e-6, noise_multiplier=1.0))
    with pytest.raises(BudgetExhausted, match="spent"):
        fit_budget(recipe, task, values, Target(2.5, 1e-6), [account.EpsilonDeltaDpEvent(3.0)])


def test_alpha_follows_the_budget_unless_it_is_given(schema):
    chance = smallest_alpha(4.0)
    gain = np.exp(4.0) * chance
    assert gain / (1 - chance + gain) == pytest.approx(0.85)
    assert made(schema).mechanism.ratio == chance and made(schema, alpha=0.25).mechanism.ratio == 0.25


def test_pretraining_lowers_the_loss_on_uniform_rows(schema):
    algorithm = made(schema, opening=0.0, pretraining=0)
    model = algorithm.model
    rows = UniformRows(model.width, model.blocks, model.classes)
    before = algorithm.init(Rng(1)).parts
    after = pretrain(model, before, rows, 150, Rng(1))
    batch = rows(400, torch.Generator().manual_seed(9))
    noise = torch.randn(400, 2, generator=torch.Generator().manual_seed(8))

    def loss(parts):
        named = {name: layout.split(parts[name]) for name, layout in layouts(model).items()}
        return float(model.loss(OBJECTIVE, named, batch, noise))

    assert loss(after) < loss(before) - 0.02
    ready = made(schema, opening=0.0, pretraining=150).init(Rng(1)).parts
    assert not torch.equal(ready["decoder"], before["decoder"])


def dependent(rows=4000):
    """Two columns that follow the label, and one that does not."""
    import pandas as pd

    draw = np.random.default_rng(0)
    ill = draw.random(rows) < 0.3
    frame = pd.DataFrame({"ill": np.where(ill, "yes", "no")})
    for name, share in (("fever", 0.8), ("cough", 0.7), ("tall", 0.5)):
        frame[name] = np.where(draw.random(rows) < np.where(ill, share, 1 - share), "yes", "no")
    return frame


def test_the_opening_teaches_the_balance_and_what_follows_the_label():
    categories = ["no", "yes"]
    columns = [
        {"name": n, "type": "categorical", "categories": categories} for n in ("fever", "cough", "tall")
    ]
    label = {"name": "ill", "type": "binary", "categories": categories}
    schema = Schema.from_dict({"version": 1, "kind": "table", "label": "ill", "columns": [*columns, label]})
    frame = dependent()
    synthesizer = Synthesizer(
        "dp_fed_wae", schema, epsilon=4, delta=1e-6, seed=1, latent=4, hidden=(16,), pretraining=800, rounds=3
    )
    rows = synthesizer.fit(clients_from(frame, clients=4000, rng=Rng(1))).sample(4000, seed=1)
    ill = rows["ill"] == "yes"
    assert ill.mean() == pytest.approx(0.3, abs=0.05)
    among = {n: (rows[n][ill] == "yes").mean() - (rows[n][~ill] == "yes").mean() for n in ("fever", "tall")}
    assert among["fever"] > 0.2 and among["fever"] > abs(among["tall"]) + 0.1


def test_the_statement_is_local_pure_and_of_the_client_that_spent_most(schema, frame):
    synthesizer = Synthesizer(
        "dp_fed_wae", schema, epsilon=2, delta=1e-3, trust="local", group=4, participations=2, **SMALL
    )
    made = synthesizer.fit(clients_from(frame, client_column="owner")).privacy
    assert (made.trust, made.unit, made.adjacency) == ("local", "client", "replace-one")
    assert 1.99 < made.epsilon <= 2.0 and made.private
    counts = {release["what"]: release["count"] for release in made.releases}
    assert counts == {
        "randomized answers for a few columns": 1,
        "sign and indices of large coordinates": 2,
    }
    by_holder = {}
    for line in synthesizer._ledger.lines():
        by_holder.setdefault(line.holder, []).append(line.event["epsilon"] * line.count)
    assert len(by_holder) == 40 and max(map(sum, by_holder.values())) <= 2.0 * (1 + 1e-12)
