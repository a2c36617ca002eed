"""Recipes over sealed sums: the same as in the clear up to rounding, and refused where they cannot be."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsynth.cli.main import main
from fedsynth.errors import Incompatible
from fedsynth.federation.loop import run
from fedsynth.federation.server import Momentum, ServerAdam
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalGaussian
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.transport.clear import Clear
from fedsynth.transport.he import Homomorphic
from fedsynth.transport.he_scheme import Keys, Parameters
from fedsynth.transport.registry import transport_named

COARSE = Parameters("bfv", 4096, (54, 55), 21)  # as few bits as large models have, where small ones have many
PLAIN = {"private": False, "momentum": 0.0, "cohort": 6}


def trained(algorithm, clients, chunk=None):
    rng = Rng(1)
    held = clients.pooled() if algorithm.name == "central_vae" else clients
    link = InProcess(held, rng, chunk=chunk)
    return run(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None, lambda *_: None, 3)


def shared(algorithm, state):
    return torch.cat([state.parts[part] for part in algorithm.shared])


def step(algorithm) -> float:
    return algorithm.transport.laid_out.grid.step


@pytest.mark.parametrize("name", ["fvae", "dpd_fvae"])
@pytest.mark.parametrize("transport", ["he", "he-open", "he-ckks"])
def test_a_sealed_run_is_the_clear_one_up_to_rounding(build, ten, name, transport):
    clear = build(name, encoder_optimizer="sgd", **PLAIN)
    sealed = replace(clear, transport=transport_named(transport))
    expected, found = (shared(a, trained(a, ten["table"])) for a in (clear, sealed))
    assert float((expected - shared(clear, clear.init(Rng(1).at("init")))).abs().max()) > 0.01
    moved = 0.0 if transport == "he-ckks" else 40 * step(sealed)  # three rounds of at most one step a client
    assert 0 < float((expected - found).abs().max()) < 1e-4 + moved < 0.03


@pytest.mark.parametrize("blind", [True, False])
def test_coarse_steps_stay_within_their_size(build, ten, blind):
    clear = build("fvae", **PLAIN)
    coarse = Homomorphic(blind=blind, keys=Keys.fresh(COARSE), reach=2.0)
    sealed = replace(clear, transport=coarse)
    assert step(sealed) > 1e-5
    expected, found = (shared(a, trained(a, ten["table"])) for a in (clear, sealed))
    off = (expected - found).abs()
    assert step(sealed) / 100 < float(off.mean()) < step(sealed)
    assert float(off.max()) < 20 * step(sealed)


def test_local_noise_goes_over_sealed_sums(build, ten):
    clear = build("fvae", private=False, momentum=0.0, cohort=6)
    noise = LocalGaussian(Clip(0.4), 1.0)
    clear = replace(clear, mechanism=noise)
    sealed = replace(clear, transport=Homomorphic(keys=Keys.fresh(COARSE)))
    assert step(sealed) < 1e-3 and sealed.transport.laid_out.grid.most * step(sealed) > 8 + 9 * 0.4
    expected, found = (shared(a, trained(a, ten["table"])) for a in (clear, sealed))
    assert float((expected - found).abs().max()) < 0.02


def test_record_level_noise_in_the_plan_goes_over_sealed_sums(build, ten):
    clear = build("central_vae", clients=1)
    sealed = replace(clear, transport=Homomorphic())
    assert [charge.release.unit for charge in sealed.charges()] == ["record"]
    expected, found = (shared(a, trained(a, ten["table"])) for a in (clear, sealed))
    assert float((expected - found).abs().max()) < 20 * step(sealed) + 1e-4


def test_noise_shared_out_opens_the_same_sum_as_masks_do(ten, schema):
    recipe = recipe_named("fvae")
    values = recipe.values({"latent": 2, "hidden": (8,), "rounds": 3, "noise_multiplier": 1.0})
    found = []
    for transport in ("he-open", "secagg"):
        task = Task(schema, 10, trust="distributed", transport=transport)
        algorithm = recipe.build(task, values)
        assert algorithm.transport.name == transport
        found.append(shared(algorithm, trained(algorithm, ten["table"])))
    assert torch.equal(*found)


def test_chunks_change_nothing_of_a_sealed_run(build, ten):
    sealed = replace(build("fvae", **PLAIN), transport=Homomorphic())
    one, three = (shared(sealed, trained(sealed, ten["table"], chunk=size)) for size in (1, 3))
    torch.testing.assert_close(one, three, rtol=0, atol=2 * step(sealed) + 1e-6)


def test_a_round_without_clients_changes_nothing(build):
    sealed = replace(build("fvae", private=False, momentum=0.0, rate=0.5), transport=Homomorphic())
    state = sealed.init(Rng(0))
    after, _ = sealed.server_round(state, sealed.transport.zero(sealed.wire), Rng(0))
    assert after.version == 1
    assert torch.equal(shared(sealed, after), shared(sealed, state))


def test_the_server_of_a_blind_sum_can_only_average(build):
    plain = build("fvae", **PLAIN)
    for rule in (Momentum(0.9), Momentum(0.0, learning_rate=0.5), ServerAdam()):
        with pytest.raises(Incompatible, match=f"which can average but not apply {type(rule).__name__}"):
            replace(plain, server=rule, transport=Homomorphic())
        replace(plain, server=rule, transport=Homomorphic(blind=False))


@pytest.mark.parametrize(
    ("transport", "reason"), [("he", "cannot add its noise there"), ("he-open", "longer than the")]
)
def test_noise_at_the_server_is_refused_over_sealed_sums(build, transport, reason):
    plain = build("fvae", **PLAIN)
    with pytest.raises(Incompatible, match=reason):
        replace(plain, mechanism=CentralGaussian(Clip(1.0), 1.0), transport=transport_named(transport))


def test_signs_of_single_coordinates_are_not_sealed(build):
    plain = build("fvae", **PLAIN)
    assert "signed-index" in Clear().carries
    assert "signed-index" not in transport_named("he").carries
    assert plain.transport.name == "clear"


@pytest.fixture(scope="module")
def files(tmp_path_factory, frame, schema):
    folder = tmp_path_factory.mktemp("data")
    frame.to_csv(folder / "rows.csv", index=False)
    schema.save(folder / "schema.json")
    return folder


def command(files, out, *more: str) -> int:
    settings = [part for pair in ("latent=2", "hidden=8", "momentum=0") for part in ("--set", pair)]
    with pytest.raises(SystemExit) as stopped:
        main(
            [
                "run",
                str(files / "rows.csv"),
                "--schema",
                str(files / "schema.json"),
                "--recipe",
                "fvae",
                *settings,
            ]
            + ["--transport", "he", "--rounds", "2", "--rows", "20", "--quiet", "--out", str(out), *more]
        )
    return int(stopped.value.code or 0)


@pytest.mark.parametrize(
    "protection", [["--no-privacy"], ["--trust", "local", "--epsilon", "50", "--delta", "1e-3"]]
)
def test_the_command_runs_over_sealed_sums_and_the_statement_names_the_key(files, tmp_path, protection):
    assert command(files, tmp_path / "RUN", "--accept", "inferred", *protection) == 0
    made = json.loads((tmp_path / "RUN" / "privacy.json").read_text())
    assert any("any one client that helps the server" in text for text in made["caveats"])
    assert made["private"] == ("--no-privacy" not in protection)
    assert len((tmp_path / "RUN" / "history.jsonl").read_text().splitlines()) == 2
    assert "he-" not in {path.suffix for path in (tmp_path / "RUN").iterdir()}


def test_a_sealed_sum_has_room_for_the_largest_cohort_and_not_for_all_clients(build):
    plain = {"private": False, "momentum": 0.0, "clients": 1000}
    some = replace(build("fvae", rate=0.05, **plain), transport=Homomorphic()).transport.laid_out
    everybody = replace(build("fvae", rate=1.0, **plain), transport=Homomorphic()).transport.laid_out
    assert 50 + 7 * 7 < some.clients < 150 and everybody.clients == 1000
    assert some.traffic < everybody.traffic


def test_history_counts_sealed_bytes_up_and_down(build, ten):
    sealed = replace(build("fvae", private=False, momentum=0.0, rate=1.0), transport=Homomorphic())
    rng, seen = Rng(1), []
    link = InProcess(ten["table"], rng)
    state = sealed.init(rng.at("init"))
    run(sealed, link, state, rng, lambda *_: None, lambda state, line: seen.append(line), 1)
    transport = sealed.transport
    one = transport.seal(transport.rounded(torch.zeros(1, sealed.dim), Rng(), np.arange(1)))
    assert seen[0].bytes_up == 10 * len(one)
    total = transport.add(transport.zero(sealed.wire), one)
    assert seen[0].bytes_down == 10 * len(transport.close(total))


def test_the_command_refuses_central_noise_over_sealed_sums(files, tmp_path, capsys):
    assert command(files, tmp_path / "RUN", "--epsilon", "8", "--delta", "1e-3") == 2
    assert "hides the sum from the server" in capsys.readouterr().err
    assert not (tmp_path / "RUN").exists()
