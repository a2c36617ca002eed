"""The two commands of docs/federation.md over four hospitals: the real ones where their data are, else made-up ones."""

import json
from pathlib import Path

import pandas as pd
import pytest
from real_sites import SCHEMA, free_port, patients

from fedsynth.cli.federation import kits_in
from fedsynth.cli.main import main
from fedsynth.data.schema import Schema
from fedsynth.deploy.nvflare.node import running
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.datasets import heart_disease

pytestmark = pytest.mark.recipe
PAGE = Path(__file__).parents[2] / "docs" / "federation.md"


def command(*words) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    assert left.value.code == 0, words


def hospitals(folder):
    """Patients of four hospitals, each patient a client."""
    try:
        frame, schema = heart_disease()
        frame = frame.assign(patient=[f"patient {number}" for number in range(len(frame))])
    except BadInput:  # the data are not here
        parts = [
            patients(number).assign(site=name) for number, name in enumerate(["Ada", "Bern", "Cern", "Delft"])
        ]
        frame, schema = pd.concat(parts, ignore_index=True), Schema.from_dict(SCHEMA)
    frame.to_parquet(folder / "patients.parquet")
    schema.with_client(None).save(folder / "schema.json")
    return folder / "patients.parquet", folder / "schema.json", sorted(frame["site"].unique())


def test_the_two_commands_of_the_page_make_a_data_set_over_four_hospitals(tmp_path):
    data, schema, names = hospitals(tmp_path)
    out, run = tmp_path / "try", tmp_path / "RUN"
    text = PAGE.read_text()
    assert "fedsynth federation try" in text and "fedsynth run --federation try" in text
    deal = ["--site-column", "site", "--client-column", "patient", "--port", free_port()]
    try:
        command("federation", "try", data, "--schema", schema, "--out", out, *deal)
        settings = ["--recipe", "dpd_fvae", "--epsilon", 8, "--delta", "1e-3", "--rounds", 2, "--rows", 200]
        command("run", "--federation", out, "--schema", schema, *settings, "--out", run)
    finally:
        command("federation", "stop", out)
    told = json.loads((run / "privacy.json").read_text())
    assert told["private"] and told["epsilon"] <= 8 and told["unit"] == "client"
    assert len(pd.read_parquet(run / "synthetic.parquet")) == 200
    folders = sorted((out / "sites").iterdir())
    assert len(folders) == len(names) == 4
    for folder in folders:
        ledger = Ledger(folder / "state" / "ledger.jsonl")
        assert ledger.verify() == [] and ledger.lines()
        assert len(pd.read_parquet(folder / "rows.parquet")) and "site" not in pd.read_parquet(
            folder / "rows.parquet"
        )
    assert all(running(kit) is None for kit in kits_in(out))
