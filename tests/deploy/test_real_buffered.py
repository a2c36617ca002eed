"""A buffer of sealed updates over real processes: the site with most rows is slow, and nobody waits for it."""

import json
import os
import signal
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from real_sites import COMMAND, SITES, Federation, command, patients, until

from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import Folder
from fedsynth.transport import keys

pytest_plugins = ["real_sites"]
pytestmark = pytest.mark.recipe
ROUNDS = 6
ROWS = {"ada": 200, "bern": 200, "cern": 20_000}  # DP-SGD looks at half of them at every step


@contextmanager
def agreed(federation: Federation, folder, transport: str, rows: dict[str, int]):
    """Site files for PP-FedGAN with a state folder of this name; those from before come back afterwards."""
    files = {}
    for number, name in enumerate(SITES):
        settings = files[name] = {
            "data": {"file": f"{folder.name}.csv", "schema": str(federation.schema)},
            "budget": {"epsilon": 9.0, "delta": 1e-4, "unit": "record"},
            "policy": {"recipes": ["pp_fedgan"], "transports": [transport], "minimum_cohort": 1},
            "state": {"folder": folder.name},
        }
        if transport == "he":
            settings["keys"] = {"folder": str(folder / "keys" / name)}
            settings["policy"]["minimum_cohort"] = 2
        frame = patients(number, rows[name]).drop(columns="patient")
        frame.to_csv(federation.folder / name / f"{folder.name}.csv", index=False)
    with federation.with_site_files(files):
        yield


def words_of(federation: Federation, out, transport: str, rounds: int) -> list[str]:
    words = ["run", "--federation", federation.kits, "--schema", federation.schema, "--recipe", "pp_fedgan"]
    small = [
        "latent=2",
        "hidden=4",
        "batch_rate=.5",
        "steps=10",
        "usual_records=200",
        "generator_batch=16",
        "pretraining=5",
    ]
    settings = [part for pair in small for part in ("--set", pair)]
    budget = ["--epsilon", "8", "--delta", "1e-4", "--rounds", rounds, "--transport", transport]
    return [*COMMAND, *map(str, [*words, *settings, *budget, "--out", out])]


@pytest.fixture(scope="module")
def finished(federation: Federation, tmp_path_factory):
    """PP-FedGAN over he, each site one client, with the operating system's noise."""
    folder = tmp_path_factory.mktemp("buffered")
    keys.create(folder / "keys", sites=SITES)
    with agreed(federation, folder, "he", ROWS):
        out = folder / "RUN"
        done = command(*words_of(federation, out, "he", ROUNDS)[len(COMMAND) :])
        yield out, folder / "keys", done


def test_it_ends_in_a_statement_about_records_that_trusts_no_server(finished, federation: Federation):
    out, _, done = finished
    assert done.returncode == 0, done.stderr
    told = json.loads((out / "privacy.json").read_text())
    assert told["private"] and not told["simulation"] and 0 < told["epsilon"] <= 8
    assert (told["unit"], told["trust"], told["adjacency"]) == ("record", "local", "zero-out")
    rounds = Folder(federation.server_run()).read_rounds()
    assert [line["version"] for line in rounds] == list(range(1, ROUNDS + 1))
    assert all((line["clients"], line["dropped"]) == (2, 0) for line in rounds)


def test_a_key_holder_opens_the_model(finished, tmp_path):
    out, folder, _ = finished
    made, secret = tmp_path / "generator.safetensors", folder / "bern" / keys.SECRET
    words = ["keys", "open", str(out), "--key", str(secret), "--out", str(made)]
    assert command(*words).returncode == 0 and made.exists()


def test_the_fast_sites_were_used_more_often_and_each_paid_for_its_own_uses(finished, federation: Federation):
    out, *_ = finished
    lines = [line for line in Ledger(out / "ledger.jsonl").lines() if ", round " in line.what]
    uses = Counter(SITES[int(line.holder)] for line in lines)
    assert sum(uses.values()) == 2 * ROUNDS and uses["cern"] < min(uses["ada"], uses["bern"])
    for name in SITES:
        own = Ledger(federation.folder / name / out.parent.name / "ledger.jsonl")
        paid = Counter(line.what for line in own.lines() if ", round " in line.what)
        assert own.verify() == [] and set(paid.values()) <= {1}
        assert (
            uses[name] <= sum(paid.values()) <= uses[name] + 1
        )  # one may be under way when the last version is made


def charged(ledger) -> list[tuple[str, str]]:
    """Every use that a ledger holds: who was used, and under which name."""
    return [(line.holder, line.what) for line in Ledger(ledger).lines() if ", round " in line.what]


@pytest.mark.parametrize("party", ["server", pytest.param("ada", marks=pytest.mark.slow)])
def test_kill_9_in_the_middle_of_a_buffer_loses_and_doubles_no_use_that_was_charged(
    federation: Federation, tmp_path, party
):
    """Two sites are held up, so the third's result waits in the buffer; then the coordinator and a job are killed."""
    folder, before = tmp_path / f"killed-{party}", federation.server_run()
    folder.mkdir()
    out, rounds = folder / "RUN", 12
    own = {name: federation.folder / name / folder.name / "ledger.jsonl" for name in SITES}

    def waiting() -> bool:
        """The free site has charged a use that is in no version, and nothing moves any more."""
        counted = Counter(holder for holder, _ in charged(federation.server_run() / "ledger.jsonl"))
        if len(charged(own["ada"])) <= counted["0"]:
            return False
        moving = [path.read_bytes() for path in own.values()]
        time.sleep(1)
        return moving == [path.read_bytes() for path in own.values()]

    with agreed(federation, folder, "clear", dict.fromkeys(SITES, 200)):
        coordinator = federation.begin_run(out, words=words_of(federation, out, "clear", rounds))
        begun = lambda: federation.server_run() != before and federation.rounds_done() >= 1  # noqa: E731
        until("the first version", begun, every_s=0.02)
        held_up = [job for name in ("bern", "cern") for job in federation.family(name)["job"]]
        for process in held_up:
            process.suspend()
        until("a buffer that is half full", waiting)
        assert federation.rounds_done() < rounds
        coordinator.kill()
        for process in federation.family(party)["job"]:
            os.kill(process.pid, signal.SIGKILL)
        for process in held_up:
            process.resume()
        coordinator.wait()
        held = {name: charged(path) for name, path in own.items()}
        resumed = federation.resume(out)
        assert resumed.returncode == 0, resumed.stderr
    told = json.loads((out / "privacy.json").read_text())
    assert told["private"] and not told["simulation"] and 0 < told["epsilon"] <= 8
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [line["version"] for line in history] == list(range(1, rounds + 1))
    counted = charged(out / "ledger.jsonl")
    assert len(set(counted)) == len(counted) == 2 * rounds  # no result is in two versions
    uses = Counter(SITES[int(holder)] for holder, _ in counted)
    for name, path in own.items():
        paid = charged(path)
        assert Ledger(path).verify() == [] and paid[: len(held[name])] == held[name]
        assert len(set(paid)) == len(paid)  # nothing was charged twice for the crash
        assert uses[name] <= len(paid) <= uses[name] + 1  # one may be under way when the last version is made
