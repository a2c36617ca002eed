"""Do our scores of columns and pairs agree with SDMetrics'? It runs in an environment of its own: no dependency.

    python -m venv sdmetrics && sdmetrics/bin/pip install 'sdmetrics==0.32.*' pyarrow
    FEDSYNTH_DATA=... python benchmarks/sdmetrics_agreement.py --python sdmetrics/bin/python

Adult, 5,000 real rows against three synthetic tables: a fresh draw, independent columns, and a fresh draw with shifted
ages and one town for all. Writes results/sdmetrics_agreement.json with the largest difference of each score.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

ROWS = 5_000


def ours(real, synthetic, schema):
    from fedsynth.assess.scores.fidelity import column_pairs, column_shapes
    from fedsynth.assess.scores.tables import Tables
    from fedsynth.assess.scores.validity import coverage, validity

    tables = Tables.of(real, synthetic, schema)
    boundary, category = (score.detail["adherence_to_real"] for score in validity(tables))
    return {
        "column shapes": column_shapes(tables).detail["parts"],
        "column pairs": column_pairs(tables).detail["parts"],
        "coverage": coverage(tables).detail["parts"],
        "adherence": {**boundary, **category},
    }


def theirs(real, synthetic, numeric):
    from sdmetrics.column_pairs import ContingencySimilarity, CorrelationSimilarity
    from sdmetrics.single_column import (
        BoundaryAdherence,
        CategoryAdherence,
        CategoryCoverage,
        KSComplement,
        RangeCoverage,
        TVComplement,
    )

    found = {"column shapes": {}, "column pairs": {}, "coverage": {}, "adherence": {}}
    for name in real.columns:
        pick = (lambda a, b: a) if name in numeric else (lambda a, b: b)
        columns = real[name], synthetic[name]
        found["column shapes"][name] = pick(KSComplement, TVComplement).compute(*columns)
        found["coverage"][name] = pick(RangeCoverage, CategoryCoverage).compute(*columns)
        found["adherence"][name] = pick(BoundaryAdherence, CategoryAdherence).compute(*columns)
    for one, other in combinations(real.columns, 2):
        both = [one in numeric, other in numeric]
        pair = real[[one, other]], synthetic[[one, other]]
        if all(both):
            value = CorrelationSimilarity.compute(*pair)
        else:
            continuous = [name for name in (one, other) if name in numeric]
            value = ContingencySimilarity.compute(*pair, continuous_column_names=continuous or None)
        found["column pairs"][f"{one}, {other}"] = value
    return {score: {part: float(value) for part, value in parts.items()} for score, parts in found.items()}


def tables():
    from fedsynth.research.datasets import adult

    rows, schema = adult()
    drawn = rows.sample(2 * ROWS, random_state=0)
    real, fresh = drawn.iloc[:ROWS].reset_index(drop=True), drawn.iloc[ROWS:].reset_index(drop=True)
    random = np.random.default_rng(0)
    apart = pd.DataFrame({name: real[name].to_numpy()[random.permutation(ROWS)] for name in real})
    shifted = fresh.assign(age=(fresh["age"] + 10).clip(17, 90), native_country="Cuba")
    return schema, real, {"fresh": fresh, "independent": apart, "shifted": shifted}


def difference(one, other):
    return {
        score: float(np.max([abs(parts[name] - other[score][name]) for name in parts]))  # NaN must show
        for score, parts in one.items()
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", help="the Python of the environment that has SDMetrics")
    parser.add_argument("--theirs", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.theirs:
        real, synthetic, *numeric = given.theirs
        print(json.dumps(theirs(pd.read_parquet(real), pd.read_parquet(synthetic), set(numeric))))
        return
    schema, real, others = tables()
    numeric = [column.name for column in schema.columns if column.numeric]
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        real.to_parquet(Path(folder, "real.parquet"))
        for name, synthetic in others.items():
            path = Path(folder, f"{name}.parquet")
            synthetic.to_parquet(path)
            command = [given.python, __file__, "--theirs", f"{folder}/real.parquet", str(path), *numeric]
            told = subprocess.run(command, capture_output=True, text=True, check=False)
            if told.returncode:
                sys.exit(told.stderr)
            results[name] = difference(ours(real, synthetic, schema), json.loads(told.stdout))
    version = subprocess.run(
        [given.python, "-c", "import sdmetrics; print(sdmetrics.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    written = {"sdmetrics": version, "rows": ROWS, "largest difference": results}
    target = Path(__file__).parent / "results" / "sdmetrics_agreement.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(written, indent=1) + "\n")
    print(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
