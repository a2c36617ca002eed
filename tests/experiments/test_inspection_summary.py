"""What inspections measured becomes rows of tables: verdicts are counted, and what was not run is no zero."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

FILE = Path(__file__).parents[2] / "experiments" / "inspection" / "summary.py"


@pytest.fixture
def summary(tmp_path):
    found = importlib.util.spec_from_file_location("inspection_summary", FILE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    module.HERE, module.RESULTS = tmp_path, tmp_path / "results"
    module.RESULTS.mkdir()
    return module


def line(seed, affected, fires, value, epsilon=8.0):
    contrast = {"mean intensity": [value, 0.1], "mean image": [value / 2, 0.1]}
    settings = {"recipe": "moment_vae", "by": "user", "seed": seed, "epsilon": epsilon, "affected": affected}
    return {**settings, "fires": fires, "contrast": contrast, "intensity": {"bad": value, "good": 0.0}}


def keep(summary, name, lines):
    (summary.RESULTS / name).write_text("".join(json.dumps(each) + "\n" for each in lines))


def cells(folder):
    return [json.loads(path.read_text())["cells"] for path in sorted(folder.glob("*.json"))]


def test_inspections_that_ended_without_a_verdict_do_not_count(summary):
    keep(summary, "user.jsonl", [line(0, 0.5, True, 0.7), line(1, 0.5, None, 0.9), line(2, 0.5, False, 0.05)])
    keep(summary, "vae.jsonl", [{**line(0, 0.5, None, 0.8), "recipe": "dpd_fvae"}])
    summary.firing()
    assert [row["fires"] for row in cells(summary.RESULTS)] == ["–", "1 of 2"]


def test_a_share_that_was_not_tried_is_a_dash_and_one_that_cannot_be_told_is_not_found(summary):
    lines = [line(0, 0.05, False, 0.08, 1.0), line(1, 0.05, None, 0.3, 1.0), line(0, 0.1, True, 0.2)]
    keep(summary, "sense.jsonl", lines)
    summary.sensitivity()
    first, second = cells(summary.HERE / "results" / "sensitivity")
    ends = {"worst and best clients": "25% each"}
    assert first == {**ends, "epsilon": "1", "5%": "0 of 2", "10%": "–"}
    assert second == {**ends, "epsilon": "8", "5%": "–", "10%": "1 of 1"}
    assert (summary.HERE / "results" / "figures" / "sensitivity.png").stat().st_size > 1000


def test_the_farthest_statistic_decides(summary):
    assert summary.over_threshold(line(0, 0.5, True, 0.3)) == pytest.approx(3.0)


def test_an_interval_covers_its_share_as_often_as_it_says(summary):
    chances = np.linspace(0.05, 0.95, 19)
    ends = [summary.wilson(hits, 10) for hits in range(11)]
    covered = [
        sum(binom.pmf(hits, 10, p) for hits, (low, high) in enumerate(ends) if low <= p <= high)
        for p in chances
    ]
    assert 0.93 < np.mean(covered) < 0.98 and min(covered) > 0.8


def test_runs_without_a_bug_name_no_column(summary):
    contrast = {"hours_per_week": [0.1, 0.2]}
    known = {"bug": "hours_per_week", "epsilon": 8.0, "seed": 0, "contrast": contrast}
    without = {**known, "affected": 0.0, "fires": False, "fired": []}
    found = {**known, "affected": 0.3, "fires": True, "fired": ["hours_per_week"]}
    keep(summary, "records.jsonl", [without, found])
    summary.bugs_in_a_table()
    rows = cells(summary.HERE / "results" / "tables")
    assert [(row["bug in"], row["columns named"]) for row in rows] == [
        ("hours_per_week", "hours_per_week"), ("no column", "none"),
    ]  # fmt: skip
