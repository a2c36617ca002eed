"""Collect what recipes reached, from experiments/ and benchmarks/, into src/fedsynth/recipes/measured.json."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "src" / "fedsynth" / "recipes" / "measured.json"
MEASURE = "AUC of gradient boosting"
LEFT_OUT = ("parity of two", "parity of three")  # made to fail


def entry(
    recipe: str, data: str, units: int, epsilon: float, found: list[float], real: float, source: str
) -> Any:
    """One measurement, rounded as it is shown."""
    return {
        "recipe": recipe,
        "data": data,
        "units": units,
        "epsilon": round(epsilon, 2),
        "measure": MEASURE,
        "low": round(min(found), 3),
        "high": round(max(found), 3),
        "real": round(real, 3),
        "source": source,
    }


def from_benchmarks() -> list[Any]:
    """`marginals` on five public tables, one person a row."""
    cells = json.loads((ROOT / "benchmarks" / "results" / "tables.json").read_text())["cells"]
    cells = [
        cell for cell in cells if cell["table"] not in LEFT_OUT and cell["method"] in ("fedsynth", "real")
    ]
    real: dict[str, list[float]] = {}
    for cell in cells:
        if cell["method"] == "real":
            real.setdefault(cell["table"], []).append(cell["auc"])
    ours = sorted(
        (cell for cell in cells if cell["method"] == "fedsynth"),
        key=lambda one: (one["table"], one["epsilon"]),
    )
    entries = []
    for (table, epsilon), group in groupby(ours, key=lambda one: (one["table"], one["epsilon"])):
        runs = list(group)
        scores = [run["auc"] for run in runs]
        beside = sum(real[table]) / len(real[table])
        source = "benchmarks/results/tables.md"
        entries.append(entry("marginals", table, runs[0]["rows"], epsilon, scores, beside, source))
    return entries


def from_experiments() -> list[Any]:
    """Private rows of experiments whose students are gradient boosting on a table."""
    entries = []
    for path in sorted((ROOT / "experiments").glob("*/results/*.json")):
        row = json.loads(path.read_text())
        privacy = row.get("privacy")
        scores = row.get("scores") if isinstance(row.get("scores"), list) else []
        score = next((one for one in scores if one["name"] == "gradient boosting: auc"), None)
        if not score or not privacy or "clients" not in row or not 0 < (privacy["epsilon"] or 0) <= 100:
            continue
        units = row["data"]["train_rows"] if privacy["unit"] == "record" else row["clients"]["count"]
        found, real = score["detail"]["runs"], score["detail"]["train_on_real"]
        source = path.relative_to(ROOT).as_posix()
        entries.append(
            entry(row["recipe"], row["data"]["name"], units, privacy["epsilon"], found, real, source)
        )
    return entries


def collected() -> str:
    """The file's text."""
    return json.dumps([*from_benchmarks(), *from_experiments()], indent=1) + "\n"


if __name__ == "__main__":
    PLACE.write_text(collected())
    print(f"wrote {PLACE.relative_to(ROOT)}")
