"""Stopping and going on, and what the ledger and the statement say then."""

import json

import numpy as np
import pytest

from fedsynth import Rng, Synthesizer, clients_from
from fedsynth.data.clients import encode_clients
from fedsynth.data.review import with_proposals
from fedsynth.errors import BadInput, BudgetExhausted, Incompatible, NotPrivate
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import When
from fedsynth.recipes.registry import recipe_named
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.training import check_request, prepare
from noise_scale import fits

SMALL = {"hidden": (8,), "latent": 2, "batch_size": 8, "rounds": 3}
BUDGET = {"epsilon": 8.0, "delta": 1e-3}


class Stop(Exception):
    """Pulls the plug."""


def stop_after(version):
    def watch(done, epsilon, rounds):
        if done.version >= version:
            raise Stop

    return watch


@pytest.fixture(scope="module")
def owners(frame):
    return clients_from(frame, client_column="owner")


def read(path, schema):
    return Synthesizer.of(Request.from_toml(Folder(path).read_recipe()), schema)


def of_recipe(recipe):
    """The small settings that this recipe has."""
    return {name: value for name, value in SMALL.items() if name in recipe_named(recipe).arguments()}


def stopped(recipe, schema, owners, path, after, **settings):
    with pytest.raises(Stop):
        Synthesizer(recipe, schema, **{**BUDGET, **of_recipe(recipe), **settings}).fit(
            owners, folder=path, watch=stop_after(after)
        )


def ledger_epsilon(path, unit="client"):
    return Ledger(path / "ledger.jsonl").epsilon(1e-3, unit=unit)


@pytest.mark.parametrize(
    ("recipe", "after"), [("central_vae", 2), ("fvae", 2), ("dpd_fvae", 1), ("fed_vae", 2), ("marginals", 2)]
)
def test_a_resumed_run_equals_one_straight_through_to_the_bit(recipe, after, schema, owners, tmp_path):
    settings = of_recipe(recipe)
    straight = Synthesizer(recipe, schema, **BUDGET, **settings, seed=5).fit(owners, folder=tmp_path / "a")
    stopped(recipe, schema, owners, tmp_path / "b", after, seed=5)
    assert not (tmp_path / "b" / "generator.safetensors").exists()
    again = read(tmp_path / "b", schema).resume(owners, tmp_path / "b")
    files = [(tmp_path / run / "generator.safetensors").read_bytes() for run in "ab"]
    assert files[0] == files[1]
    keys = ("version", "loss", "clients")
    told = [[{key: line[key] for key in keys} for line in run.history] for run in (straight, again)]
    assert told[0] == told[1] and [line["version"] for line in told[0]] == [1, 2, 3]
    assert not (tmp_path / "b" / "state").exists()


def test_a_round_lost_after_its_payment_is_repeated_and_stays_on_the_ledger(
    schema, owners, tmp_path, monkeypatch
):
    """Killed while the second round's line is written: the seeded rerun equals a run that was not."""
    path = tmp_path / "run"

    def torn(place, line):
        if line["version"] < 2:
            return append(place, line)
        place.history.open("a").write('{"version": 2, "lo')
        raise Stop

    append = Folder.append_history
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(Folder, "append_history", torn)
        Synthesizer("dpd_fvae", schema, **BUDGET, **SMALL, seed=5).fit(owners, folder=path)
    made = read(path, schema).resume(owners, path)
    assert [line["version"] for line in made.history] == [1, 2, 3]
    ledger = Ledger(path / "ledger.jsonl")
    numbers = [line.what.rpartition(" ")[2] for line in ledger.releases()]
    assert numbers == ["balance", "1", "2", "2", "3"] and ledger.verify() == []
    assert made.history[-1]["epsilon"] == pytest.approx(8, rel=0.01)


@pytest.fixture(scope="module")
def unseeded(schema, owners, tmp_path_factory):
    """A run without a seed, stopped after its second round."""
    path = tmp_path_factory.mktemp("unseeded") / "run"
    stopped("dpd_fvae", schema, owners, path, 2)
    return path


def copied(path, tmp_path):
    import shutil

    return shutil.copytree(path, tmp_path / "run")


def test_without_a_seed_a_run_that_lost_nothing_finishes_all_rounds(unseeded, schema, owners, tmp_path):
    path = copied(unseeded, tmp_path)
    made = read(path, schema).resume(owners, path)
    assert [line["version"] for line in made.history] == [1, 2, 3]
    assert made.privacy.private and 7.9 < made.privacy.epsilon <= 8


def test_without_a_seed_lost_rounds_are_not_repeated_beyond_the_budget(unseeded, schema, owners, tmp_path):
    path = copied(unseeded, tmp_path)
    ledger = Ledger(path / "ledger.jsonl")
    last = ledger.lines()[-1]
    algorithm_charge = _charge(last)
    Payer(ledger, "run").pay(When(3), [algorithm_charge], [0])  # paid for, and then the plug was pulled
    made = read(path, schema).resume(owners, path)
    assert [line["version"] for line in made.history] == [1, 2]
    assert ledger_epsilon(path) <= 8 and made.privacy.epsilon <= 8


def test_a_spent_budget_releases_nothing_more(unseeded, schema, owners, tmp_path):
    path = copied(unseeded, tmp_path)
    ledger = Ledger(path / "ledger.jsonl")
    for number in range(10):
        Payer(ledger, "run").pay(When(number), [_charge(ledger.lines()[-1])], [0])
    before = len(ledger.lines())
    made = read(path, schema).resume(owners, path)  # what was trained is released as it stands
    assert [line["version"] for line in made.history] == [1, 2] and len(
        Ledger(ledger.path).releases()
    ) == before
    assert made.privacy.epsilon > 8  # and the statement tells what was really spent


def test_a_run_that_spent_its_budget_before_its_first_round_is_refused(unseeded, schema, owners, tmp_path):
    path = copied(unseeded, tmp_path)
    (path / "state" / "checkpoint.safetensors").unlink()
    ledger = Ledger(path / "ledger.jsonl")
    for number in range(10):
        Payer(ledger, "run").pay(When(number), [_charge(ledger.lines()[-1])], [0])
    with pytest.raises(BudgetExhausted, match="spent"):
        read(path, schema).resume(owners, path)


def _charge(line):
    from fedsynth.privacy.events import event_from_json
    from fedsynth.privacy.mechanism import Charge, Release

    event = event_from_json(line.event)
    return Charge(Release("noisy sum of clipped client updates", "client", "central", event), event)


def test_the_ledger_has_a_line_for_each_release(unseeded):
    lines = Ledger(unseeded / "ledger.jsonl").lines()
    assert [line.what.rpartition(", ")[2] for line in lines] == ["class balance", "round 1", "round 2"]
    history = [json.loads(text) for text in (unseeded / "history.jsonl").read_text().splitlines()]
    assert len(history) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delta": 1 / 40}, "40 clients.*accept=.delta."),
        ({"recipe": "central_vae", "delta": 1 / 120}, "120 records"),
    ],
)
def test_a_delta_that_protects_nobody_needs_the_users_word(changes, words, schema, owners):
    request = Request(**{"recipe": "dpd_fvae", **BUDGET, **changes})
    with pytest.raises(NotPrivate, match=words):
        Synthesizer.of(request, schema).fit(owners)
    accepted = request.changed(accept=("delta",))
    assert check_request(accepted, schema, encode_clients(owners, schema)).name == request.recipe


def inferred(schema):
    from dataclasses import replace

    return replace(schema, provenance={"age": "inferred"})


def test_inferred_columns_need_the_users_word(schema, owners):
    with pytest.raises(NotPrivate, match="age.*accept=.inferred."):
        Synthesizer("dpd_fvae", inferred(schema), **BUDGET).fit(owners)


def test_accepted_inferred_columns_are_not_called_private(schema, owners):
    made = Synthesizer(
        "dpd_fvae", inferred(schema), **BUDGET, **{**SMALL, "rounds": 1}, accept=("inferred",)
    ).fit(owners)
    assert not made.privacy.private and any("age" in caveat for caveat in made.privacy.caveats)


def test_what_nobody_called_public_by_itself_is_named_in_the_statement(schema, owners):
    accepted = with_proposals(inferred(schema))
    made = Synthesizer("dpd_fvae", accepted, **BUDGET, **{**SMALL, "rounds": 1}).fit(owners)
    assert any(
        "decimals, bounds or categories of these columns were proposed from the rows and accepted all at once: age"
        in caveat
        for caveat in made.privacy.caveats
    )
    declared = Synthesizer("dpd_fvae", schema, **BUDGET, **{**SMALL, "rounds": 1}).fit(owners)
    assert not any("accepted" in caveat for caveat in declared.privacy.caveats)


@pytest.mark.parametrize(
    ("recipe", "wish"), [("central_vae", {"unit": "client"}), ("dpd_fvae", {"trust": "nobody"})]
)
def test_a_promise_that_a_recipe_cannot_make_is_refused(recipe, wish, schema, owners):
    request = Request(recipe, epsilon=8, delta=1e-3, **wish)
    with pytest.raises(Incompatible, match="=".join(*wish.items())):
        Synthesizer.of(request, schema).fit(owners)


def test_an_unknown_transport_is_refused(schema, owners):
    with pytest.raises(BadInput, match="transport='pigeon'.*clear"):
        Synthesizer("dpd_fvae", schema, **BUDGET, **SMALL, transport="pigeon").fit(owners)


def test_under_local_trust_each_client_pays_for_its_own_turns(schema, owners):
    made = Synthesizer("dpd_fvae", schema, **BUDGET, **{**SMALL, "rounds": 10}, trust="local", rate=0.5).fit(
        owners
    )
    said = made.privacy
    assert (said.trust, said.adjacency, said.sampling) == ("local", "replace-one", "none")
    assert said.private and 7.5 < said.epsilon <= 8.0
    assert {release["count"] for release in said.releases} == {1, 5}


def paid_count(recipe, trust, schema, clients):
    """The number of records that a run learns, and its ledger."""
    budget = {"epsilon": 50.0, "delta": 1e-3, "rounds": 1, "noise_multiplier": 2.0}
    request = Request(recipe, **budget, trust=trust, arguments={"hidden": (8,), "latent": 2})
    ledger = Ledger(None)
    made = prepare(request, schema, clients, Rng(), Payer(ledger, "run"))
    return made.values["records"], ledger


@pytest.mark.parametrize(("recipe", "trust"), [("central_vae", None), ("site_vae", "distributed")])
def test_a_paid_number_of_records_has_the_noise_that_was_paid_for(recipe, trust, schema, frame):
    alone = schema.with_client(None)
    clients = encode_clients(clients_from(frame.drop(columns="owner"), clients=6, rng=Rng(1)), alone)
    counted = [paid_count(recipe, trust, alone, clients) for _ in range(60)]
    (line,) = counted[-1][1].lines()
    assert (line.what, line.unit, line.count) == ("number of records", "record", 1)
    noise = np.array([number for number, _ in counted]) - clients.rows
    assert fits(noise, line.cost.noise_multiplier) and not fits(noise, line.cost.noise_multiplier / 2)


def test_split_clients_are_the_same_under_a_seed(frame):
    rows = frame.drop(columns="owner")
    first, second = (clients_from(rows, clients=7, rng=Rng(3)).owner for _ in range(2))
    assert (first == second).all()


@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_run_that_diverged_states_the_epsilon_of_its_plan(trust, schema, owners, monkeypatch):
    """Where it stopped depends on what was released, so the value of the odometer there is no bound."""
    step = Algorithm.server_round

    def broken(self, state, total, rng, weight=1.0):
        after, loss = step(self, state, total, rng, weight)
        if after.version == 2:
            after.parts["decoder"][0] = float("nan")
        return after, loss

    monkeypatch.setattr(Algorithm, "server_round", broken)
    made = Synthesizer("dpd_fvae", schema, **{**BUDGET, **SMALL, "rounds": 12}, trust=trust).fit(owners)
    assert len(made.history) == 1 and "diverged" in made.notes[0]
    assert 8.0 * 0.99 < made.privacy.epsilon <= 8.0
    (rest,) = [line for line in made.privacy.releases if "not run" in line["what"]]
    assert "rounds 3 to 12, planned and not run" in rest["what"] and rest["count"] >= 1
