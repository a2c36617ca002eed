"""The page of the comparison of tables, from the cells that were measured."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "tables"
TABLES = ("heart", "fair", "EEG", "RAND", "Adult")
SCORES = {"auc": -1, "accuracy": -1, "pairs": 1}  # the sign by which less is better
TITLES = {
    "real": "real rows",
    "fedsynth": "**fedsynth `marginals`**",
    "mbi mst": "MST (mbi 2.0)",
    "mbi aim": "AIM (mbi 2.0, published settings)",
    "dpmm mst": "MST (dpmm 0.1.9)",
    "dpmm aim": "AIM (dpmm 0.1.9)",
    "dpmm privbayes": "PrivBayes (dpmm 0.1.9)",
    "smartnoise mst": "MST (SmartNoise 1.0.8)",
}
ABOUT = {
    "heart": "UCI Heart Disease, four hospitals; label: disease. A fifth of the rows is for the test",
    "fair": "Fair's survey of married women, from statsmodels; label: any affair. A fifth is for the test",
    "EEG": "Bonn EEG, spread of the signal in eight parts of a second; label: seizure. Test: other recordings",
    "RAND": "RAND Health Insurance Experiment, from statsmodels; label: saw a doctor. Test: other people",
    "Adult": "UCI Adult; label: income. Test: the published test split",
}
INTRODUCTION = """\
`make bench-tables` makes this page. One row is one person, delta 1e-5, add or remove a row. Scores: gradient boosting
learns the label from as many synthetic rows as there are training rows and is tested on real test rows (AUC /
accuracy); *pairs* is the total variation of two columns together between synthetic and test rows, sixteen public bins a
number, the mean over all pairs (less is better). All tools have the same public bounds; the others get numbers in 32
public bins (zero and missing by themselves), fedsynth finds its bins under noise from 128. Settings are each tool's
defaults. Seeds are 0, 1, ...; the mean over runs, ± their standard deviation where there are several; tools are ranked
by the seeds that all of them have. One run says little on a small table: compare the spread. An empty cell was not
measured, nor was AIM yet.
"""
Cells = dict[tuple[str, str, float], list[dict[str, Any]]]


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
    }


def write(folder: Path) -> None:
    """Write tables.json and tables.md from the cells in `folder`, and those of before that it does not have."""
    stored = RESULTS.with_suffix(".json")
    earlier = json.loads(stored.read_text())["cells"] if stored.exists() else []
    cells = {_key(one): one for one in earlier}
    cells |= {_key(one): one for one in (json.loads(file.read_text()) for file in folder.glob("*.json"))}
    ordered = [cells[key] for key in sorted(cells)]
    stored.write_text(json.dumps({"machine": machine(), "cells": ordered}, indent=1) + "\n")
    grouped: Cells = defaultdict(list)
    for one in ordered:
        grouped[one["table"], one["method"], one["epsilon"]].append(one)
    RESULTS.with_suffix(".md").write_text("\n".join(page(grouped)) + "\n")


def _key(cell: dict[str, Any]) -> tuple[str, str, float, int]:
    return cell["table"], cell["method"], cell["epsilon"], cell["seed"]


def page(cells: Cells) -> list[str]:
    here = machine()
    lines = [
        "# Private tables by fedsynth and by other tools",
        "",
        *INTRODUCTION.splitlines(),
        f"{here['cpu']}, {here['cores']} shared cores, one thread a run; {here['date']}, commit {here['commit']}.",
        "",
    ]
    lines += _ranks(cells) + _losses(cells)
    for table in TABLES:
        lines += _table(cells, table, ABOUT[table], SCORES)
    lines += _parity(cells) + _times(cells)
    return lines


def _mean(runs: list[dict[str, Any]], score: str) -> float:
    return float(np.mean([run[score] for run in runs]))


def _alike(cells: Cells, table: str, epsilon: float, tools: list[str]) -> list[list[dict[str, Any]]]:
    """The runs of these tools with the seeds that all of them have: a seed may decide who is in the test."""
    seeds = set.intersection(*({run["seed"] for run in cells[table, tool, epsilon]} for tool in tools))
    return [[run for run in cells[table, tool, epsilon] if run["seed"] in seeds] for tool in tools]


def _ranks(cells: Cells) -> list[str]:
    """The sum of ranks over the cells that all ranked tools have; a tool with too few cells is not ranked."""
    tools = [method for method in TITLES if method != "real"]
    epsilons = sorted({epsilon for _, _, epsilon in cells} - {0.0})
    everywhere = [(table, epsilon) for table in TABLES for epsilon in epsilons]
    ranked = [tool for tool in tools if all((table, tool, 1.0) in cells for table in TABLES)]
    shared = [one for one in everywhere if all((one[0], tool, one[1]) in cells for tool in ranked)]
    if len(ranked) < 2 or not shared:
        return []
    sums = {tool: defaultdict(float) for tool in ranked}
    for table, epsilon in shared:
        for score, sign in SCORES.items():
            values = [sign * _mean(runs, score) for runs in _alike(cells, table, epsilon, ranked)]
            for tool, rank in zip(ranked, rankdata(values), strict=True):
                sums[tool][score] += float(rank)
    lines = [
        "## Sum of ranks",
        "",
        f"Over {len(shared)} cells (table and epsilon) that all of these tools have; 1 is the best of {len(ranked)},",
        f"so {3 * len(shared)} is the least sum. Tools that are not in it have too few cells.",
        "",
        "| | sum | AUC | accuracy | pairs |",
        "|---|---:|---:|---:|---:|",
    ]
    for tool in sorted(ranked, key=lambda one: sum(sums[one].values())):
        each = " | ".join(f"{sums[tool][score]:g}" for score in SCORES)
        lines.append(f"| {TITLES[tool]} | {sum(sums[tool].values()):g} | {each} |")
    return [*lines, ""]


def _losses(cells: Cells) -> list[str]:
    """Where another tool is better than ours."""
    lines = []
    for table, method, epsilon in sorted(
        cells, key=lambda key: (TABLES.index(key[0]) if key[0] in TABLES else 9, key[2])
    ):
        if method in ("real", "fedsynth") or table not in TABLES or (table, "fedsynth", epsilon) not in cells:
            continue
        ours, theirs = _alike(cells, table, epsilon, ["fedsynth", method])
        better = [
            f"{name} {_mean(theirs, score):.3f} against {_mean(ours, score):.3f}"
            for name, (score, sign) in zip(("AUC", "accuracy", "pairs"), SCORES.items(), strict=True)
            if sign * _mean(theirs, score) < sign * _mean(ours, score) - 0.0005
        ]
        if better:
            lines.append(f"- {table}, epsilon {epsilon:g}: {TITLES[method]} has {', '.join(better)}")
    compared = sum(method not in ("real", "fedsynth") and table in TABLES for table, method, _ in cells)
    ahead = f"In {compared - len(lines)} of {compared} comparisons with one tool"
    head = f"{ahead} fedsynth is not behind in any of the three scores. The others:"
    return ["## Where fedsynth loses", "", head, "", *(lines or ["- nowhere"]), ""] if compared else []


def _table(cells: Cells, table: str, about: str, scores: dict[str, int]) -> list[str]:
    epsilons = sorted({epsilon for name, _, epsilon in cells if name == table} - {0.0})
    some = next((runs[0] for key, runs in cells.items() if key[0] == table), None)
    if some is None:
        return []
    lines = [
        f"## {table}: {some['rows']:,} training rows, {some['columns']} columns",
        "",
        f"{about}. AUC / accuracy / pairs:",
        "",
        "| | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |",
        "|---" * (len(epsilons) + 1) + "|",
    ]
    for method, title in TITLES.items():
        if method == "real" and (table, method, 0.0) in cells:
            lines.append(f"| {title} | {_cell(cells[table, method, 0.0])} |" + " |" * (len(epsilons) - 1))
        elif any((table, method, epsilon) in cells for epsilon in epsilons):
            each = (_cell(cells.get((table, method, epsilon), [])) for epsilon in epsilons)
            lines.append(f"| {title} | " + " | ".join(each) + " |")
    return [*lines, ""]


def _cell(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return ""
    one = " / ".join(f"{_mean(runs, score):.3f}".removeprefix("0") for score in SCORES)
    if len(runs) == 1:
        return one
    spread = " / ".join(f"{np.std([run[score] for run in runs]):.3f}".removeprefix("0") for score in SCORES)
    return f"{one} ± {spread}"


def _parity(cells: Cells) -> list[str]:
    if not any(table.startswith("parity") for table, _, _ in cells):
        return []
    lines = [
        "## Where pairs must fail",
        "",
        "Ten coins, and a label that says whether an odd number of the first two or three show heads: no pair of",
        "columns says anything of the label. `marginals` asks for three columns together only where two of them go",
        "together, so it does not see this: its rows have every pair right, and nothing can be learned from them (AUC",
        "about one half at every epsilon). It does not notice either: no noisy answer contradicts its model. Only a",
        "comparison with real rows (`fedsynth report`) shows it.",
        "",
    ]
    for table in ("parity of two", "parity of three"):
        lines += _table(cells, table, "As many test rows", SCORES)
    return lines


def _times(cells: Cells) -> list[str]:
    lines = ["## Seconds of processor a run", "", "| | " + " | ".join(TABLES) + " |", "|---" * 6 + "|"]
    for method, title in TITLES.items():
        each = []
        for table in TABLES:
            runs = [
                run["processor_s"] for key, of in cells.items() for run in of if key[:2] == (table, method)
            ]
            each.append(f"{np.median(runs):.0f}" if runs else "")
        if method != "real" and any(each):
            lines.append(f"| {title} | " + " | ".join(each) + " |")
    return [*lines, ""]
