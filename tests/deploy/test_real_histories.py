"""Linked tables at three sites, over real processes: each holds whole persons, and nobody sees a site's counts."""

import json

import pandas as pd
import pytest
from real_sites import SITES, Federation, command

from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Schema
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.hospital_records import write
from fedsynth.transport import keys

pytest_plugins = ["real_sites"]
pytestmark = pytest.mark.recipe
PERSONS = 30  # of each site


@pytest.fixture(scope="module")
def finished(federation: Federation, tmp_path_factory):
    """Two rounds over masked sums, with the operating system's noise in shares."""
    folder = tmp_path_factory.mktemp("hospitals")
    keys.create(folder / "keys", sites=SITES)
    settings = {}
    for number, name in enumerate(SITES):
        write(folder / name, PERSONS, seed=number)
        for table in ("person", "visit"):
            frame = pd.read_csv(folder / name / f"{table}.csv")
            frame["person id"] = [f"person-of-{name}-{number}" for number in frame["person id"]]
            frame.to_csv(folder / name / f"{table}.csv", index=False)
        settings[name] = {
            "data": {"file": str(folder / name), "schema": str(folder / "schema.json")},
            "budget": {"epsilon": 9.0, "delta": 1e-3, "unit": "client"},
            "policy": {"recipes": ["histories"], "transports": ["secagg"], "minimum_cohort": 3},
            "keys": {"folder": str(folder / "keys" / name)},
            "state": {"folder": "histories-state"},
        }
    out = folder / "RUN"
    words = [
        "run",
        "--federation",
        federation.kits,
        "--schema",
        folder / "schema.json",
        "--trust",
        "distributed",
    ]
    small = ["--set", "rounds=2", "--set", "pair_rounds=1", "--set", "most_cells=4000", "--rows", "60"]
    budget = ["--epsilon", "8", "--delta", "1e-3", "--minimum-sites", "3", "--out", out]
    with federation.with_site_files(settings):
        yield out, command(*map(str, [*words, *small, *budget]))


def test_whole_persons_come_out_and_the_statement_is_about_persons(finished):
    out, done = finished
    assert done.returncode == 0, done.stderr
    statement = json.loads((out / "privacy.json").read_text())
    assert statement["private"] and (statement["unit"], statement["trust"]) == ("client", "distributed")
    assert 7 < statement["epsilon"] <= 8
    assert (
        statement["against"]["public"] < statement["against"]["participant"] <= 8
    )  # a site knows its own noise
    frames = modality_of(Schema.load(out / "schema.json")).read(out / "synthetic")
    assert (
        len(frames["person"]) == 60 and frames["visit"]["person id"].isin(frames["person"]["person id"]).all()
    )
    assert frames["measurement"]["visit id"].isin(frames["visit"]["visit id"]).all()
    assert (
        pd.to_datetime(frames["visit"]["discharge"]) >= pd.to_datetime(frames["visit"]["admission"])
    ).all()


def test_each_site_s_ledger_has_every_round_once(finished, federation: Federation):
    shared = Ledger(finished[0] / "ledger.jsonl").epsilon(1e-3, unit="client")
    for name in SITES:
        (own,) = (federation.folder / name / "histories-state").rglob("*ledger.jsonl")
        ledger = Ledger(own)
        assert [(line.unit, line.trust, line.count) for line in ledger.lines()] == [
            ("client", "distributed", 1)
        ] * 2
        assert ledger.epsilon(1e-3, unit="client") >= shared * 0.999


def test_no_name_of_a_person_reaches_the_server(finished, federation: Federation):
    for path in (federation.kits / "server").rglob("*"):
        assert not path.is_file() or b"person-of-" not in path.read_bytes(), path
