"""A buffer of sealed updates over real processes: the site with most rows is slow, and nobody waits for it."""

import json
import os
import subprocess
from collections import Counter

import pytest
import tomli_w
from real_sites import COMMAND, SITES, Federation, patients

from fedsynth.privacy.ledger import Ledger
from fedsynth.transport import keys

pytest_plugins = ["real_sites"]
pytestmark = pytest.mark.recipe
ROUNDS = 6
ROWS = {"ada": 200, "bern": 200, "cern": 20_000}  # DP-SGD looks at half of them at every step


@pytest.fixture(scope="module")
def finished(federation: Federation, tmp_path_factory):
    """PP-FedGAN over he, each site one client, with the operating system's noise."""
    folder = tmp_path_factory.mktemp("buffered")
    keys.create(folder / "keys", sites=SITES)
    before = {name: (federation.folder / name / "site.toml").read_text() for name in SITES}
    for number, name in enumerate(SITES):
        settings = {
            "data": {"file": "buffered-rows.csv", "schema": str(federation.schema)},
            "budget": {"epsilon": 9.0, "delta": 1e-4, "unit": "record"},
            "policy": {"recipes": ["pp_fedgan"], "transports": ["he"], "minimum_cohort": 2},
            "keys": {"folder": str(folder / "keys" / name)},
            "state": {"folder": "buffered-state"},
        }
        frame = patients(number, ROWS[name]).drop(columns="patient")
        frame.to_csv(federation.folder / name / "buffered-rows.csv", index=False)
        (federation.folder / name / "site.toml").write_text(tomli_w.dumps(settings))
    out = folder / "RUN"
    words = ["run", "--federation", federation.kits, "--schema", federation.schema, "--recipe", "pp_fedgan"]
    small = ["latent=2", "hidden=4", "batch_rate=.5", "steps=10", "usual_records=200", "generator_batch=16"]
    settings = [part for pair in small for part in ("--set", pair)]
    budget = ["--epsilon", "8", "--delta", "1e-4", "--rounds", ROUNDS, "--transport", "he"]
    done = subprocess.run(
        [*COMMAND, *map(str, [*words, *settings, *budget, "--out", out])],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    yield out, folder / "keys", done
    for name, text in before.items():
        (federation.folder / name / "site.toml").write_text(text)


def test_it_ends_in_a_statement_about_records_that_trusts_no_server(finished):
    out, _, done = finished
    assert done.returncode == 0, done.stderr
    told = json.loads((out / "privacy.json").read_text())
    assert told["private"] and not told["simulation"] and 0 < told["epsilon"] <= 8
    assert (told["unit"], told["trust"], told["adjacency"]) == ("record", "local", "zero-out")
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [line["version"] for line in history] == list(range(1, ROUNDS + 1))
    assert all((line["clients"], line["dropped"]) == (2, 0) for line in history)


def test_a_key_holder_opens_the_model(finished, tmp_path):
    out, folder, _ = finished
    made, secret = tmp_path / "generator.safetensors", folder / "bern" / keys.SECRET
    words = ["keys", "open", str(out), "--key", str(secret), "--out", str(made)]
    assert subprocess.run([*COMMAND, *words], env={**os.environ}).returncode == 0 and made.exists()


def test_the_fast_sites_were_used_more_often_and_each_paid_for_its_own_uses(finished, federation: Federation):
    out, *_ = finished
    lines = [line for line in Ledger(out / "ledger.jsonl").lines() if ", round " in line.what]
    uses = Counter(SITES[int(line.holder)] for line in lines)
    assert sum(uses.values()) == 2 * ROUNDS and uses["cern"] < min(uses["ada"], uses["bern"])
    for name in SITES:
        own = Ledger(federation.folder / name / "buffered-state" / "ledger.jsonl")
        paid = Counter(line.what for line in own.lines() if ", round " in line.what)
        assert own.verify() == [] and set(paid.values()) <= {1}
        assert (
            uses[name] <= sum(paid.values()) <= uses[name] + 1
        )  # one may be under way when the last version is made
