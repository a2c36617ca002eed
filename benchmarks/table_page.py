"""The page of the comparison of tables, from the cells that were measured."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from scipy.stats import rankdata

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "tables"
TABLES = ("heart", "fair", "EEG", "RAND", "Adult")
SCORES = {"auc": -1, "accuracy": -1, "pairs": 1}  # the sign by which less is better
NAMES = {"auc": "AUC", "accuracy": "accuracy", "pairs": "pairs"}
TIE = 0.0005
TITLES = {
    "real": "real rows",
    "fedsynth": "**fedsynth `marginals`**",
    "mbi mst": "MST (mbi 2.0)",
    "mbi aim": "AIM (mbi 2.0)",
    "dpmm mst": "MST (dpmm 0.1.9)",
    "dpmm aim": "AIM (dpmm 0.1.9)",
    "dpmm privbayes": "PrivBayes (dpmm 0.1.9)",
    "smartnoise mst": "MST (SmartNoise 1.0.8)",
}
SHORT = {
    "fedsynth": "**fedsynth**",
    "mbi mst": "MST (mbi)",
    "mbi aim": "AIM (mbi)",
    "dpmm mst": "MST (dpmm)",
    "dpmm aim": "AIM (dpmm)",
    "dpmm privbayes": "PrivBayes",
    "smartnoise mst": "MST (SmartNoise)",
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
defaults. mbi 2.0 comes without mechanisms: MST and AIM on it are written from their papers and their authors' programs
(benchmarks/table_peers.py), with these programs' defaults (AIM: all pairs as workload, 80 MB), and are told the number
of rows. Seeds are 0, 1, ...; the mean over runs, ± their standard deviation where there are several; tools are compared
by the seeds that all of them have. One run says little on a small table: compare the spread. An empty cell was not
measured; *over the limit*: the run took more processor than it was allowed.
"""
CODE = (  # of the recipe: cells of before it changed are of another one
    *(f"src/fedsynth/models/{name}.py" for name in ("table_*", "graphical", "distribution", "tree_sampling")),
    "src/fedsynth/recipes/marginals.py",
    "src/fedsynth/training/table_sums.py",
)
LEARNED = 0.9  # AUC: the parity is in the rows
AIM = ("mbi aim", "dpmm aim")
Cells = dict[tuple[str, str, float], list[dict[str, Any]]]
Over = dict[tuple[str, str, float], float]  # cells over the limit, in seconds of processor


def commit() -> str:
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def write(folder: Path) -> None:
    """Write tables.json and tables.md from the cells in `folder`, and those of before that it does not have."""
    stored = RESULTS.with_suffix(".json")
    earlier = json.loads(stored.read_text())["cells"] if stored.exists() else []
    cells = {_key(one): one for one in earlier}
    cells |= {_key(one): one for one in map(json.loads, map(Path.read_text, folder.glob("*.json")))}
    ordered = [cells[key] for key in sorted(cells)]
    stored.write_text(json.dumps({"machine": machine(), "cells": ordered}, indent=1) + "\n")
    grouped: Cells = defaultdict(list)
    for one in ordered:
        if "over_limit_s" not in one:
            grouped[_key(one)[:3]].append(one)
    over = {_key(one)[:3]: one["over_limit_s"] for one in ordered if "over_limit_s" in one}
    RESULTS.with_suffix(".md").write_text("\n".join(page(grouped, over)) + "\n")


def _key(cell: dict[str, Any]) -> tuple[str, str, float, int]:
    return cell["table"], cell["method"], cell["epsilon"], cell["seed"]


def page(cells: Cells, over: Over) -> list[str]:
    here = machine()
    lines = [
        "# Private tables by fedsynth and by other tools",
        "",
        *INTRODUCTION.splitlines(),
        f"{here['cpu']}, {here['cores']} shared cores, one thread a run; {here['date']}.",
        _measured(cells),
        "",
    ]
    lines += _ranks(cells) + _best(cells) + _losses(cells)
    for table in TABLES:
        lines += _table(cells, over, table, ABOUT[table])
    lines += _parity(cells, over) + _times(cells, over)
    return lines


def _measured(cells: Cells) -> str:
    """At which commits fedsynth was measured, and which tools have no cell."""
    commits = sorted({run["commit"] for key, runs in cells.items() if key[1] == "fedsynth" for run in runs})
    missing = [TITLES[tool] for tool in SHORT if all(key[1] != tool for key in cells)]
    nowhere = f" Not measured anywhere yet: {', '.join(missing)}." if missing else ""
    code = ["--", *CODE]
    differences = (
        subprocess.run(
            ["git", "diff", "--quiet", one, *code], cwd=HERE.parent, capture_output=True, check=False
        )
        for one in commits
    )
    changed = " (the recipe's code has changed since)" if any(one.returncode for one in differences) else ""
    return f"fedsynth's cells: commit {', '.join(commits)}{changed}.{nowhere}"


def _mean(runs: list[dict[str, Any]], score: str) -> float:
    return float(np.mean([run[score] for run in runs]))


def _alike(cells: Cells, table: str, epsilon: float, tools: list[str]) -> list[list[dict[str, Any]]]:
    """The runs of these tools with the seeds that all of them have: a seed may decide who is in the test."""
    seeds = set.intersection(*({run["seed"] for run in cells[table, tool, epsilon]} for tool in tools))
    return [[run for run in cells[table, tool, epsilon] if run["seed"] in seeds] for tool in tools]


def _ranks(cells: Cells) -> list[str]:
    """The sum of ranks of all tools, and of those that are quick enough for more cells."""
    tools = [tool for tool in SHORT if any(key[1] == tool for key in cells)]
    quick = [tool for tool in tools if tool not in AIM]
    wide = [tool for tool in tools if tool != "mbi aim"]
    lines, earlier = [], set()
    for ranked in (quick, wide, tools):
        shared = [
            (table, epsilon)
            for table in TABLES
            for epsilon in sorted({key[2] for key in cells})
            if all((table, tool, epsilon) in cells for tool in ranked)
        ]
        if shared and tuple(ranked) not in earlier:
            lines += _ranked(cells, ranked, shared)
        earlier.add(tuple(ranked))
    return ["## Sum of ranks", "", *lines] if lines else []


def _ranked(cells: Cells, tools: list[str], shared: list[tuple[str, float]]) -> list[str]:
    """The sum of ranks of these tools over these cells."""
    sums = {tool: defaultdict(float) for tool in tools}
    for table, epsilon in shared:
        for score, sign in SCORES.items():
            values = [sign * _mean(runs, score) for runs in _alike(cells, table, epsilon, tools)]
            for tool, rank in zip(tools, rankdata(values), strict=True):
                sums[tool][score] += float(rank)
    where = "; ".join(
        f"{table} at {', '.join(f'{epsilon:g}' for other, epsilon in shared if other == table)}"
        for table in dict.fromkeys(table for table, _ in shared)
    )
    least = len(SCORES) * len(shared)
    lines = [
        *wrap(
            f"The {len(tools)} tools below, in the cells that all of them have ({len(shared)}: {where}). 1 is the best "
            f"in a cell: {least} is the least sum, {least * len(tools)} the largest.",
            120,
        ),
        "",
        "| | sum | AUC | accuracy | pairs |",
        "|---|---:|---:|---:|---:|",
    ]
    for tool in sorted(tools, key=lambda one: sum(sums[one].values())):
        each = " | ".join(f"{sums[tool][score]:g}" for score in SCORES)
        lines.append(f"| {TITLES[tool]} | {sum(sums[tool].values()):g} | {each} |")
    return [*lines, ""]


def _best(cells: Cells) -> list[str]:
    """Who is best where."""
    epsilons = sorted({key[2] for key in cells} - {0.0})
    lines = [
        "## Who is best where",
        "",
        "AUC / accuracy / pairs; in brackets how many tools were measured.",
        "",
        "| | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |",
        "|---" * (len(epsilons) + 1) + "|",
    ]
    for table in TABLES:
        each = []
        for epsilon in epsilons:
            tools = [tool for tool in SHORT if (table, tool, epsilon) in cells]
            runs = dict(zip(tools, _alike(cells, table, epsilon, tools), strict=True)) if tools else {}
            best = [
                min(runs, key=lambda tool: sign * _mean(runs[tool], score))
                for score, sign in SCORES.items()
                if len(runs) > 1
            ]
            each.append(" / ".join(SHORT[tool] for tool in best) + f" ({len(runs)})" if best else "")
        lines.append(f"| {table} | " + " | ".join(each) + " |")
    return [*lines, ""]


def _losses(cells: Cells) -> list[str]:
    """Where another tool is better than ours; scores that differ by no more than TIE are equal."""
    lines, places = [], {table: place for place, table in enumerate(TABLES)}
    behind = {tool: Counter() for tool in SHORT}
    for table, tool, epsilon in sorted(cells, key=lambda key: (places.get(key[0], 9), key[2])):
        if (
            tool not in SHORT
            or tool == "fedsynth"
            or table not in places
            or (table, "fedsynth", epsilon) not in cells
        ):
            continue
        ours, theirs = _alike(cells, table, epsilon, ["fedsynth", tool])
        lost = [s for s, sign in SCORES.items() if sign * (_mean(theirs, s) - _mean(ours, s)) < -TIE]
        behind[tool].update(["cells", *lost])
        if lost:
            each = (f"{NAMES[s]} {_mean(theirs, s):.3f} against {_mean(ours, s):.3f}" for s in lost)
            lines.append(f"- {table}, epsilon {epsilon:g}: {TITLES[tool]} has {', '.join(each)}")
    compared = sum(counts["cells"] for counts in behind.values())
    if not compared:
        return []
    return [
        "## Where fedsynth loses",
        "",
        f"In {compared - len(lines)} of {compared} comparisons with one tool fedsynth is not behind in any of the",
        "three scores. In how many cells a tool is ahead of fedsynth:",
        "",
        "| | cells compared | AUC | accuracy | pairs |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {TITLES[tool]} | {counts['cells']} | " + " | ".join(str(counts[s]) for s in SCORES) + " |"
            for tool, counts in behind.items()
            if counts
        ),
        "",
        *(lines or ["- nowhere"]),
        "",
    ]


def _table(cells: Cells, over: Over, table: str, about: str) -> list[str]:
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
        keys = [(table, method, epsilon) for epsilon in epsilons]
        if any(key in cells or key in over for key in keys):
            each = (_cell(cells.get(key, [])) or ("over the limit" if key in over else "") for key in keys)
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


def _parity(cells: Cells, over: Over) -> list[str]:
    tables = ("parity of two", "parity of three")
    ours = [
        run
        for (table, method, _), runs in cells.items()
        if table in tables and method == "fedsynth"
        for run in runs
    ]
    if not ours:
        return []
    learned = [run for run in ours if run["auc"] > LEARNED]
    others = [run["auc"] for run in ours if run["auc"] <= LEARNED]
    where = ", ".join(
        f"{table} at epsilon {epsilon:g} ({sum(run in learned for run in runs)} of {len(runs)} runs)"
        for (table, method, epsilon), runs in cells.items()
        if method == "fedsynth" and table in tables and any(run in learned for run in runs)
    )
    words = (
        "Ten coins, and a label that says whether an odd number of the first two or three show heads: no pair of "
        "columns says anything of the label. `marginals` asks for the label together with two other columns only "
        "where its model holds these two as a pair, and between independent coins noise alone decides which pairs it "
        "holds. "
    )
    if learned:
        words += f"In {len(learned)} of {len(ours)} runs the right pair is among them, by luck: {where}. "
    if others:
        words += (
            f"In {len(others)} of {len(ours)} runs every pair is right and the label cannot be learned: AUC "
            f"{min(others):.3f} to {max(others):.3f}. The recipe does not notice, as no noisy answer contradicts its "
            "model; only a comparison with real rows (`fedsynth report`) shows it."
        )
    lines = ["## Where pairs must fail", "", *wrap(words, 120), ""]
    for table in tables:
        lines += _table(cells, over, table, "As many test rows")
    return lines


def _times(cells: Cells, over: Over) -> list[str]:
    """The median seconds of processor of a tool's runs on a table."""
    lines = ["## Seconds of processor a run", "", "| | " + " | ".join(TABLES) + " |", "|---" * 6 + "|"]
    for method, title in TITLES.items():
        each = []
        for table in TABLES:
            runs = [
                run["processor_s"] for key, of in cells.items() for run in of if key[:2] == (table, method)
            ]
            limits = [limit for key, limit in over.items() if key[:2] == (table, method)]
            each.append(f"{np.median(runs):.0f}" if runs else f"over {max(limits):.0f}" if limits else "")
        if method != "real" and any(each):
            lines.append(f"| {title} | " + " | ".join(each) + " |")
    return [*lines, ""]
