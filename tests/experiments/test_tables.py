import importlib.util
import json
from pathlib import Path

import pytest

from fedsynth.research.experiment import Experiment

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tables():
    specification = importlib.util.spec_from_file_location("tables", ROOT / "experiments" / "tables.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def result(title: str, order: int, accuracy: float | None, epsilon: float | None = None) -> dict:
    def score(name, value):
        detail = {"train_on_real": 0.873, "train_on_real_spread": 0.001, "majority": 0.764}
        failed = None if value is not None else "one class"
        return {"name": name, "value": value, "spread": 0.002, "detail": detail, "failed": failed}

    names = ("gradient boosting: accuracy", "gradient boosting: auc", "column shapes", "column pairs")
    return {
        "title": title,
        "order": order,
        "scores": [score(name, accuracy) for name in names],
        "privacy": {
            "private": epsilon is not None,
            "unit": "client",
            "epsilon": epsilon,
            "delta": 1e-5,
            "simulation": 1,
        },
        "seconds_training": [10.0, 12.0],
        "runs": 2,
        "data": {"train_rows": 32561, "test_rows": 16281},
        "machine": {"device": "cpu", "cores": 2, "cpu": "a processor"},
    }


def test_a_table_has_every_result_between_real_rows_and_guessing(tables, tmp_path):
    for name, made in {"b": result("first", 1, 0.8), "a": result("second", 2, 0.82, 7.995)}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(made))
    lines = tables.table(tables.load(tmp_path)).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:6]] == [
        "| real rows", "| first", "| second", "| none: always the majority class",
    ]  # fmt: skip
    assert (
        "0.820 ± 0.002" in lines[4]
        and "each client: ε = 8.00, δ = 1e-05" in lines[4]
        and "| 11 |" in lines[4]
    )


def test_a_failed_score_and_a_useless_table_are_named(tables):
    text = tables.table([result("broken", 1, None), result("blind", 2, 0.764)])
    assert "broken: gradient boosting: accuracy failed (one class)" in text
    assert "blind taught no more than the majority class" in text


def test_filling_twice_changes_nothing_more_and_leaves_the_rest_alone(tables):
    page = "before\n<!-- results:x -->\nold\n<!-- end:x -->\nafter\n"
    once = tables.fill(page, "x", "new")
    assert once == "before\n<!-- results:x -->\nnew\n<!-- end:x -->\nafter\n" == tables.fill(once, "x", "new")
    with pytest.raises(ValueError, match="results:y"):
        tables.fill(page, "y", "new")


def test_the_tables_in_the_pages_are_those_of_the_results(tables):
    front = (ROOT / "README.md").read_text()
    for name, found in tables.sources():
        expected = tables.table(tables.load(found))
        topic = found.relative_to(ROOT / "experiments").parts[0]
        page = (ROOT / "experiments" / topic / "README.md").read_text()
        assert tables.fill(page, name, expected) == page, "run make tables"
        if f"results:{name} " in front:
            assert tables.fill(front, name, expected) == front, "run make tables"


def test_the_overview_is_that_of_the_results(tables, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    overview = importlib.import_module("overview")
    page = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    assert tables.fill(page, "overview", overview.overview(overview.LINES)) == page, "make tables"
    assert tables.fill(page, "openings", overview.openings(overview.OPENINGS)) == page, "make tables"
    assert tables.fill(page, "unmeasured", overview.unmeasured()) == page, "make tables"


def test_what_rounds_add_is_told_only_where_the_judges_are_the_same(tables, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    openings = importlib.import_module("openings")

    def row(runs, passes=6):
        detail = {"runs": runs, "passes": passes}
        return {"scores": [{"name": "cnn: accuracy", "detail": detail}]}

    whole = row([0.9, 0.92])
    assert openings.gained(whole, row([0.9, 0.9]), "cnn: accuracy") == "+1.0 ± 1.0"
    assert openings.gained(whole, row([0.9]), "cnn: accuracy") == "+1.0"
    assert openings.gained(whole, row([0.9, 0.9], 2), "cnn: accuracy") == "judged differently"
    assert openings.gained(whole, None, "cnn: accuracy") == ""


ROWS = [path for path in (ROOT / "experiments").glob("*/*.toml") if path.parent.name != "inspection"]


@pytest.mark.parametrize("path", sorted(ROWS), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_file_of_every_row_can_be_read_and_its_budget_counted(path):
    experiment = Experiment.load(path)
    if not experiment.baseline:
        assert (experiment.request.target is not None) == experiment.request.private


def test_results_may_bring_their_own_cells(tables):
    rows = [
        {"order": place, "layout": "plain", "cells": {"what": what, "seconds": value}, "note": "On 2 cores."}
        for place, (what, value) in enumerate((("client", 0.25), ("server", 0.0041)))
    ]
    lines = tables.table(rows).splitlines()
    assert lines == [
        "| what | seconds |",
        "| --- | ---: |",
        "| client | 0.250 |",
        "| server | 0.004 |",
        "",
        "On 2 cores.",
    ]


def test_local_systems_show_the_papers_scores_beside_its_claim(tables):
    names = list(tables.LOCAL)
    scores = [
        {"name": name, "value": 0.1 * place, "spread": None, "detail": {}, "failed": None}
        for place, name in enumerate(names)
    ]
    row = {
        "title": "CALM",
        "order": 1,
        "layout": "local",
        "scores": scores,
        "runs": 2,
        "clients": {"count": 50_000},
        "data": {"synthetic_rows": 20_000, "test_rows": 16_281},
        "privacy": {"private": True, "unit": "client", "trust": "local", "epsilon": 8.0, "delta": 1e-9},
        "claim": "NN .815",
        "deviations": ["each person once"],
        "seconds_training": [10.0, 20.0],
        "machine": {"cores": 2, "cpu": "a processor"},
    }
    text = tables.table([row])
    assert "| CALM | 50,000 | each client: ε = 8.00, δ = 1e-09, nobody trusted | 0.000 | 0.100 |" in text
    assert "| NN .815 | 1 | 15 |" in text and "1. each person once" in text


def test_a_claim_stands_beside_what_was_measured_and_what_was_done_otherwise_below(tables):
    rows = [
        {
            **result(title, order, value, epsilon),
            "layout": "claims",
            "measure": "gradient boosting: auc",
            "claim": f"paper: {order}",
            "deviations": ["fewer rounds", *told],
            "sets": 5,
        }
        for title, order, value, epsilon, told in (
            ("open", 1, 0.9, None, []),
            ("local", 2, 0.6, 12345.678, ["own split"]),
        )
    ]
    rows[1]["privacy"]["trust"] = "local"
    lines = tables.table(rows).splitlines()
    assert lines[2].startswith("| real rows | nobody | 0.873 ± 0.001 |")
    assert "| open | nobody | 0.900 ± 0.002 | paper: 1 | 1 | 11 |" in lines
    assert "ε = 12,345.68, δ = 1e-05, nobody trusted | 0.600 ± 0.002 | paper: 2 | 1, 2 | 11 |" in lines[4]
    assert lines[-2:] == ["1. fewer rounds", "2. own split"]


def test_images_have_their_distance_beside_the_accuracy(tables):
    def score(name, value, detail):
        return {"name": name, "value": value, "spread": None, "detail": detail, "failed": None}

    made = result("`mixture`", 1, 0.8, 10.0)
    row = {
        **made,
        "layout": "claims",
        "measure": "cnn: accuracy",
        "claim": "97%",
        "deviations": [],
        "privacy": {**made["privacy"], "unit": "record", "trust": "distributed"},
        "scores": [score("cnn: accuracy", 0.96, {"train_on_real": 0.98}), score(tables.FID, 12.5, {})],
    }
    heads, _, real, line = tables.table([row]).splitlines()[:4]
    assert "| cnn: accuracy | FID in features of a LeNet | the paper |" in heads
    assert "| real rows | nobody | 0.980 |  |" in real
    assert "δ = 1e-05, noise shared out inside masked sums | 0.960 | 12.500 | 97% |" in line
