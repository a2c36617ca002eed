"""`fedsynth ledger show` and `fedsynth ledger verify`."""

import json

import pytest
from dp_accounting import GaussianDpEvent
from typer.testing import CliRunner

from fedsynth.cli.ledger import app
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger


@pytest.fixture
def run_folder(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for number in range(3):
        ledger.append(GaussianDpEvent(5.0), what=f"round {number + 1}", run="a")
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_show_lists_each_release_and_what_they_cost(run_folder):
    text = invoke("show", run_folder, "--delta", "1e-5").stdout
    assert all(f"round {number}" in text for number in (1, 2, 3)) and "Together: epsilon 1.3" in text


def test_show_as_json(run_folder):
    found = json.loads(invoke("show", run_folder, "--delta", "1e-5", "--json").stdout)
    assert len(found["lines"]) == 3 and found["epsilon"] == pytest.approx(1.32, abs=0.05)
    assert found["lines"][1]["previous"] == found["lines"][0]["hash"]


def test_verify_says_intact_and_exits_with_0(run_folder):
    result = invoke("verify", run_folder)
    assert result.exit_code == 0 and result.stdout.startswith("Intact: 3 lines")
    assert json.loads(invoke("verify", run_folder, "--json").stdout) == {"intact": True, "problems": []}


@pytest.mark.parametrize("damage", ["change", "cut", "reorder"])
def test_verify_finds_damage_and_exits_with_1(run_folder, damage):
    path = run_folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = {
        "change": [lines[0], lines[1].replace(b"5.0", b"9.0"), lines[2]],
        "cut": lines[:2],
        "reorder": [lines[1], lines[0], lines[2]],
    }[damage]
    path.write_bytes(b"".join(damaged))
    result = invoke("verify", run_folder)
    assert result.exit_code == 1 and "Broken:" in result.stdout
    found = invoke("verify", path, "--json")
    assert found.exit_code == 1 and json.loads(found.stdout)["intact"] is False


def test_a_folder_without_a_ledger_is_named(tmp_path):
    with pytest.raises(BadInput, match="there is no ledger"):
        invoke("show", tmp_path)


def test_show_tells_each_release_in_words(run_folder):
    assert "Gaussian noise of 5 times the clip bound" in invoke("show", run_folder).stdout


def test_an_unknown_unit_is_refused(run_folder):
    with pytest.raises(BadInput, match="did you mean 'record'"):
        invoke("show", run_folder, "--delta", "1e-5", "--unit", "recrod")


def test_what_is_not_protected_costs_no_number(tmp_path):
    Ledger(tmp_path / "ledger.jsonl").append(GaussianDpEvent(5.0), what="a", unit="record")
    asked = ("show", tmp_path, "--delta", "1e-5", "--unit", "client")
    assert "epsilon unbounded" in invoke(*asked).stdout
    assert json.loads(invoke(*asked, "--json").stdout)["epsilon"] is None
