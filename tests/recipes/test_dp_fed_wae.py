"""DP-Fed-WAE: who takes part how often, what a client spends, where training starts, and what is refused."""

from dataclasses import replace

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
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.privacy.signds import SignDS
from fedsynth.recipes.budget import Target, cost, fit_budget
from fedsynth.recipes.opening import UniformRows, pretrain
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.wae import smallest_alpha
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.request import Request
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
    if algorithm.opening is not None:
        asked[algorithm.opening.schedule.start(Clock(0), Rng(1))] += 1
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
    assert algorithm.opening.mechanism.epsilon == 4.0
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
        ({"alpha": -0.1}, BadInput, "alpha=-0.1: expected between 0 and 1"),
        ({"alpha": 1.5}, BadInput, "alpha=1.5: expected between 0 and 1"),
        ({"indices": 10_000}, BadInput, "indices=10000: .* fewer indices"),
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
        fit_budget(
            recipe, task, values, Target(2.5, 1e-6), [Entry(account.EpsilonDeltaDpEvent(3.0), "bounds")]
        )


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


def stopped_after(rounds, schema, frame, folder, seed=None):
    """A run that stops after so many rounds, the synthesizer that can go on, and its clients."""

    class Stop(Exception):
        pass

    def watch(done, epsilon, planned):
        if done.version == rounds:
            raise Stop

    clients = clients_from(frame, client_column="owner")
    asked = {"epsilon": 2.0, "delta": 1e-3, "trust": "local", "group": 4, "seed": seed, **SMALL}
    with pytest.raises(Stop):
        Synthesizer("dp_fed_wae", schema, **asked).fit(clients, folder=folder, watch=watch)
    again = Synthesizer("dp_fed_wae", schema, **asked)
    again.request = Request.from_toml(Folder(folder).read_recipe())
    return again, clients


def test_a_resumed_run_is_the_uninterrupted_one(schema, frame, tmp_path):
    again, clients = stopped_after(2, schema, frame, tmp_path / "stopped", seed=5)
    resumed = again.resume(clients, tmp_path / "stopped").generator.parts["decoder"]
    asked = {"epsilon": 2.0, "delta": 1e-3, "trust": "local", "group": 4, "seed": 5, **SMALL}
    whole = Synthesizer("dp_fed_wae", schema, **asked).fit(clients, folder=tmp_path / "whole")
    assert torch.equal(resumed, whole.generator.parts["decoder"])


def test_a_turn_that_was_paid_for_and_lost_is_not_taken_again(schema, frame, tmp_path):
    again, clients = stopped_after(2, schema, frame, tmp_path / "run")
    ledger = Ledger(tmp_path / "run" / "ledger.jsonl")
    event = account.EpsilonDeltaDpEvent(2.0)
    lost = [str(client) for client in made(schema, group=4).schedule.start(Clock(2), Rng(1))]
    ledger.append_all(
        [Entry(event, SignDS(1.0, 1).release.what, who, trust="local", run="run", round=3) for who in lost]
    )
    finished = again.resume(clients, tmp_path / "run")
    counts = {}
    for line in Ledger(tmp_path / "run" / "ledger.jsonl").releases():
        counts[line.holder] = counts.get(line.holder, 0) + line.count
    assert set(counts.values()) == {1} and len(counts) == 40
    assert finished.privacy.epsilon <= 2.0


def test_answers_that_were_paid_for_and_lost_are_not_asked_for_again(schema, frame, tmp_path):
    again, clients = stopped_after(1, schema, frame, tmp_path / "run")
    for checkpoint in (tmp_path / "run").rglob("checkpoint*"):
        checkpoint.unlink()
    with pytest.raises(BudgetExhausted, match="cost them twice"):
        again.resume(clients, tmp_path / "run")


def test_the_epsilon_shown_is_that_of_a_clients_turns_not_of_all_rounds(schema, frame):
    declared = replace(schema, label_probabilities=(0.5, 0.5))  # nothing to ask for: all clients train
    asked = {**SMALL, "epsilon": 4.0, "delta": 1e-6, "trust": "local", "group": 10, "participations": 2}
    run = Synthesizer("dp_fed_wae", declared, opening=0.0, **asked).fit(
        clients_from(frame, client_column="owner")
    )
    shown = {done["version"]: done["epsilon"] for done in run.history if done["epsilon"] is not None}
    assert len(run.history) == 8
    assert shown[1] == pytest.approx(2.0, rel=1e-4) and shown[8] == pytest.approx(4.0, rel=1e-4)
