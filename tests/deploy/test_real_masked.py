"""Few sites with many patients, over real processes: nobody sees an update, each row is protected from the server."""

import json

import pandas as pd
import pytest
from real_sites import SITES, Federation, command

from fedsynth.privacy.ledger import Ledger
from fedsynth.transport import keys

pytest_plugins = ["real_sites"]
pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def finished(federation: Federation, tmp_path_factory):
    """Three steps of DP-SGD over three sites, masked, with the operating system's noise."""
    folder = tmp_path_factory.mktemp("masked")
    keys.create(folder / "keys", sites=SITES)
    settings = {}
    for name in SITES:
        settings[name] = {
            "data": {"file": "rows-only.csv", "schema": str(federation.schema)},
            "budget": {"epsilon": 9.0, "delta": 1e-3, "unit": "record"},
            "policy": {"recipes": ["site_vae"], "transports": ["secagg"], "minimum_cohort": 3},
            "keys": {"folder": str(folder / "keys" / name)},
            "state": {"folder": "masked-state"},
        }
        frame = pd.read_csv(federation.folder / name / "rows.csv").drop(columns="patient")
        frame.to_csv(federation.folder / name / "rows-only.csv", index=False)
    out = folder / "RUN"
    words = ["run", "--federation", federation.kits, "--schema", federation.schema, "--recipe", "site_vae"]
    small = ["--set", "hidden=8", "--set", "latent=2", "--set", "records=360", "--set", "batch_size=60"]
    budget = ["--epsilon", "8", "--delta", "1e-3", "--rounds", "3", "--minimum-sites", "3", "--rows", "50"]
    with federation.with_site_files(settings):
        yield out, command(*map(str, [*words, *small, *budget, "--out", out]))


def test_the_statement_is_about_rows_and_trusts_no_server(finished):
    out, done = finished
    assert done.returncode == 0, done.stderr
    told = json.loads((out / "privacy.json").read_text())
    assert told["private"] and (told["unit"], told["trust"]) == ("record", "distributed")
    assert 7 < told["epsilon"] <= 8
    assert any("3 of the 3 parties" in caveat for caveat in told["caveats"])
    assert len(pd.read_parquet(out / "synthetic.parquet")) == 50


def test_each_site_s_ledger_shows_the_steps_it_took_part_in(finished, federation: Federation):
    out, _ = finished
    shared = Ledger(out / "ledger.jsonl").epsilon(1e-3, unit="record")
    for name in SITES:
        own = list((federation.folder / name / "masked-state").rglob("*ledger.jsonl"))
        assert own, name
        assert max(Ledger(path).epsilon(1e-3, unit="record") for path in own) >= shared * 0.999


def test_the_server_keeps_no_identity_of_a_site(finished, federation: Federation):
    out, _ = finished
    secrets = [(out.parent / "keys" / name / keys.IDENTITY).read_bytes() for name in SITES]
    for path in (federation.kits / "server").rglob("*"):
        if path.is_file():
            held = path.read_bytes()
            assert not any(secret in held for secret in secrets), path
