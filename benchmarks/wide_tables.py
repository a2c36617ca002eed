"""How long tables of many columns take, in how much memory, and whether their values come out as they are.

    python benchmarks/wide_tables.py                 # all cases, or --case wide: minutes
    make bench-wide                                  # the same

The table has a known law: a hidden group of each row decides how its columns are distributed, and given the group they
are independent. `fedsynth run` and `fedsynth sample` are processes of their own, whose time and memory the system
counts. Results go to benchmarks/results/wide_tables.{md,json}.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from table_page import machine

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "wide_tables"
SEED = 17
GROUPS = 6
ZEROS = 0.89
CASES = {  # rows, columns, columns of 900 codes
    "wide": (100_000, 50, 3),
    "wider": (20_000, 300, 3),
}
CODES = [f"{letter}{number:02d}" for letter in "ABCDEFGHI" for number in range(100)]
INTRODUCTION = f"""\
`make bench-wide` makes this page: `fedsynth run` with `marginals` at epsilon 1, from a CSV file to all files of the
run, with as many synthetic rows as real ones, then `fedsynth sample` of 100,000 rows. The table has a known law (seed
{SEED}): three columns of 900 codes, counts that are zero in 89 % of rows, numbers, categories, amounts. On a shared
machine look at the seconds of processor; the load is the number of processes that wanted one.

"""
Result = dict[str, Any]


def generated(rows: int, columns: int, coded: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A table of the known law, and its schema."""
    rng = np.random.default_rng(SEED)
    group = rng.choice(GROUPS, rows, p=np.arange(1, GROUPS + 1) / (GROUPS * (GROUPS + 1) / 2))
    frame, described = {}, []
    for place in range(columns - 1):
        if place < coded:
            name, one = _codes(f"code {place}", group, rng)
        else:
            name, one = (_counts, _numbers, _categories, _amounts)[place % 4](str(place), group, rng)
        frame[name] = one.pop("values")
        described.append({"name": name, **one})
    frame["outcome"] = np.where(rng.random(rows) < 0.1 + 0.8 * group / (GROUPS - 1), "yes", "no")
    described.append({"name": "outcome", "type": "binary", "categories": ["no", "yes"]})
    schema = {"version": 1, "kind": "table", "label": "outcome", "columns": described}
    return pd.DataFrame(frame), schema


def _codes(name: str, group: np.ndarray, rng: np.random.Generator) -> tuple[str, Result]:
    """Codes by Zipf's law, of which each group prefers others."""
    places = (rng.zipf(1.3, len(group)) - 1 + 40 * group) % len(CODES)
    return name, {"values": np.array(CODES)[places], "type": "text-code", "categories": CODES}


def _counts(name: str, group: np.ndarray, rng: np.random.Generator) -> tuple[str, Result]:
    """Zero in 89 % of rows, and more often in some groups than in others; else up to 200."""
    shares = np.bincount(group, minlength=GROUPS) / len(group)
    zero = ZEROS + 0.08 * (np.arange(GROUPS) - (shares * np.arange(GROUPS)).sum()) / GROUPS
    counts = rng.geometric(0.05, len(group)).clip(1, 200)
    values = np.where(rng.random(len(group)) < zero[group], 0, counts)
    return f"count {name}", {"values": values, "type": "integer", "min": 0, "max": 200}


def _numbers(name: str, group: np.ndarray, rng: np.random.Generator) -> tuple[str, Result]:
    values = rng.normal(rng.uniform(30, 70, GROUPS)[group], 10).round().clip(0, 110).astype(int)
    return f"number {name}", {"values": values, "type": "integer", "min": 0, "max": 110}


def _categories(name: str, group: np.ndarray, rng: np.random.Generator) -> tuple[str, Result]:
    many = int(rng.integers(2, 12))
    ends = rng.dirichlet(np.ones(many), GROUPS).cumsum(axis=1)
    values = (rng.random(len(group))[:, None] > ends[group]).sum(axis=1).clip(0, many - 1)
    named = [f"kind {one}" for one in range(many)]
    return f"category {name}", {
        "values": np.array(named)[values],
        "type": "categorical",
        "categories": named,
    }


def _amounts(name: str, group: np.ndarray, rng: np.random.Generator) -> tuple[str, Result]:
    values = rng.lognormal(rng.uniform(2, 5, GROUPS)[group], 1).clip(0, 10_000).round(2)
    described = {"type": "continuous", "min": 0, "max": 10_000, "scale": "log", "decimals": 2}
    return f"amount {name}", {"values": values, **described}


def timed(*words: str) -> Result:
    """A command of fedsynth in a process of its own: seconds, seconds of processor, most memory."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore"}
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "fedsynth.cli.main", *words], stdout=said, stderr=said, env=environment
        )
        _, status, used = os.wait4(process.pid, 0)
        said.seek(0)
        words_said = said.read()
    if status:
        raise SystemExit(f"fedsynth {' '.join(words)}\n{words_said}")
    seconds = time.perf_counter() - start
    processor = used.ru_utime + used.ru_stime
    return {"seconds": seconds, "processor": processor, "gib": used.ru_maxrss / 2**20}


def measured(case: str, folder: Path) -> Result:
    rows, columns, coded = CASES[case]
    frame, schema = generated(rows, columns, coded)
    frame.to_csv(folder / "table.csv", index=False)
    (folder / "schema.json").write_text(json.dumps(schema))
    run, out = folder / "run", folder / "rows.parquet"
    flags = ["--schema", str(folder / "schema.json"), "--epsilon", "1", "--out", str(run)]
    flags += ["--recipe", "marginals", "--seed", str(SEED), "--rows", str(rows)]
    trained = timed("run", str(folder / "table.csv"), *flags)
    sampled = timed("sample", str(run), "--rows", "100000", "--seed", "1", "--out", str(out))
    synthetic = pd.read_parquet(out)
    zeros = {
        name: (float((frame[name] == 0).mean()), float((synthetic[name] == 0).mean()))
        for name in frame
        if name.startswith("count")
    }
    statement = json.loads((run / "privacy.json").read_text())
    return {
        "case": case,
        "rows": rows,
        "columns": columns,
        "run": trained,
        "sample": sampled,
        "zeros": zeros,
        "codes": float(np.mean([_distance(frame[name], synthetic[name]) for name in list(frame)[:coded]])),
        "caveats": sorted((one for one in _texts(statement) if "not counted" in one), key=len)[:1],
    }


def _texts(value: Any) -> list[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


def _distance(one: pd.Series, other: pd.Series) -> float:
    """The total variation of two columns."""
    shares = [column.value_counts(normalize=True) for column in (one, other)]
    return float(shares[0].sub(shares[1], fill_value=0).abs().sum() / 2)


def page(results: list[Result]) -> list[str]:
    here = machine()
    lines = [
        "# Wide and long tables",
        "",
        *INTRODUCTION.splitlines(),
        f"{here['cpu']}, {here['cores']} shared cores; {here['date']}, commit {here['commit']}.",
        "",
        "| rows | columns | run, s | processor, s | GiB | sample, s | processor, s | GiB | load |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in results:
        numbers = (
            f"{one[part][key]:.{digits}f}" for part in ("run", "sample") for key, digits in _SHOWN.items()
        )
        lines.append(
            f"| {one['rows']:,} | {one['columns']} | " + " | ".join(numbers) + f" | {one['load']:.0f} |"
        )
    lines.append("")
    for one in results:
        real, synthetic = np.array(list(one["zeros"].values())).T
        lines += [
            f"**{one['columns']} columns**: zero has {real.min():.1%} to {real.max():.1%} of real rows in "
            f"{len(real)} counts, and {synthetic.min():.1%} to {synthetic.max():.1%} of synthetic ones. The codes of a "
            f"column differ by a total variation of {one['codes']:.3f}. " + " ".join(one["caveats"]),
            "",
        ]
    return lines


_SHOWN = {"seconds": 0, "processor": 0, "gib": 2}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES)
    options = parser.parse_args()
    stored = RESULTS.with_suffix(".json")
    results = {one["case"]: one for one in json.loads(stored.read_text())} if stored.exists() else {}
    for case in [options.case] if options.case else CASES:
        with tempfile.TemporaryDirectory() as folder:
            results[case] = {**measured(case, Path(folder)), "load": os.getloadavg()[0], "machine": machine()}
        stored.write_text(json.dumps(list(results.values()), indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text("\n".join(page(list(results.values()))))


if __name__ == "__main__":
    main()
