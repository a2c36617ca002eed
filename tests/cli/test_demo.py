import json
import sys

import pandas as pd
import pytest

from fedsynth.assess.scores.score import load_scores
from fedsynth.cli import demo
from fedsynth.data.rand_health import rand_health
from fedsynth.data.table import check
from fedsynth.errors import BadInput


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        demo.main([*arguments, "--quiet"])
    return stopped.value.code or 0


@pytest.mark.recipe
def test_the_demo_is_a_private_run_that_says_what_it_did(tmp_path, capsys):
    pytest.importorskip("statsmodels", reason="the extra 'demo' is not installed")
    out = tmp_path / "demo-run"
    for _ in range(2):  # the second run removes what the first one left
        assert run("--out", str(out), "--rounds", "2", "--people", "300") == 0
    told = capsys.readouterr().out
    for expected in (
        "differentially private with epsilon",
        "gradient boosting",
        "always the same",
        "saw_doctor",
    ):
        assert expected in told
    assert all(name in told for name in ("privacy.json", "synthetic.parquet", "scores.json"))
    statement = json.loads((out / "privacy.json").read_text())
    assert statement["private"] and not statement["simulation"] and statement["unit"] == "client"
    assert statement["epsilon"] <= 1.0 and statement["delta"] == 1e-5
    real = pd.read_csv(f"{out}-real.csv")
    assert len(pd.read_parquet(out / "synthetic.parquet")) == len(real)
    assert f"fedsynth report {out} --real {out}-real.csv --test {out}-test.csv" in told
    _, schema = rand_health()
    assert [check(pd.read_csv(f"{out}-{rows}.csv"), schema) for rows in ("real", "test")] == [[], []]
    assert all("train_on_real" in score.detail for score in load_scores(out / "scores.json"))


def test_a_folder_that_is_no_demo_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("three years of work")
    with pytest.raises(BadInput, match="not an earlier demo"):
        demo._remove_earlier(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_without_its_extra_the_demo_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    assert run("--out", str(tmp_path / "run")) == 2
    assert "pip install 'fedsynth[demo]'" in capsys.readouterr().err
