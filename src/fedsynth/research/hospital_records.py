"""Made-up hospital records with a known law: persons, their visits in order, and measurements of each visit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

TYPES = ("outpatient", "emergency", "inpatient")
DIAGNOSES = ("I10", "I25", "E11", "J44", "N18", "M54", "F32", "C50", "K21", "S72")
TESTS = ("glucose", "creatinine", "pressure")
FIRST_DAY, DAYS = np.datetime64("2015-01-01"), 3650
MOST_VISITS = 40

# the next type of visit, by the type before: for persons without and with a chronic illness
NEXT_TYPE = np.array(
    [
        [[0.80, 0.15, 0.05], [0.60, 0.25, 0.15], [0.85, 0.05, 0.10]],
        [[0.60, 0.22, 0.18], [0.40, 0.30, 0.30], [0.65, 0.15, 0.20]],
    ]
)
FIRST_TYPE = np.array([[0.70, 0.25, 0.05], [0.55, 0.25, 0.20]])
SAME_DIAGNOSIS = 0.65
DIAGNOSIS_BY_TYPE = np.array(
    [
        [0.22, 0.06, 0.16, 0.06, 0.04, 0.22, 0.12, 0.04, 0.07, 0.01],
        [0.10, 0.18, 0.06, 0.14, 0.04, 0.14, 0.08, 0.02, 0.08, 0.16],
        [0.06, 0.20, 0.08, 0.16, 0.14, 0.04, 0.04, 0.12, 0.04, 0.12],
    ]
)
MEAN_GAP = np.array([90.0, 30.0, 14.0])  # days, after a visit of each type
MEAN_STAY = np.array([0.0, 0.5, 6.0])
MEASUREMENTS = np.array([0.4, 0.8, 1.6])
CENTRES = np.array([[6.0, 1.0, 130.0], [8.5, 1.2, 145.0]])  # of each test, without and with a chronic illness
WIDTHS = np.array([1.0, 0.2, 12.0])


def records(persons: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Tables of `persons` people: about nine visits and six measurements each."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 91, persons)
    chronic = (rng.random(persons) < 0.1 + 0.5 * (age - 18) / 73).astype(int)
    visits = np.minimum(rng.poisson(rng.gamma(2.0, np.where(chronic, 7.0, 2.5))), MOST_VISITS)
    people = pd.DataFrame(
        {
            "person id": np.arange(1, persons + 1),
            "age": age,
            "sex": np.where(rng.random(persons) < 0.52, "F", "M"),
            "region": np.array(["north", "east", "south", "west"])[
                rng.choice(4, persons, p=[0.4, 0.3, 0.2, 0.1])
            ],
            "chronic": np.where(chronic, "yes", "no"),
        }
    )
    visit = _visits(visits, chronic, rng)
    measurement = _measurements(visit, chronic, rng)
    start = FIRST_DAY + visit["day"].to_numpy().astype("timedelta64[D]")
    shown = pd.DataFrame(
        {
            "visit id": np.arange(1, len(visit) + 1),
            "person id": visit["person"] + 1,
            "admission": start.astype(str),
            "discharge": (start + visit["stay"].to_numpy().astype("timedelta64[D]")).astype(str),
            "type": np.array(TYPES)[visit["type"]],
            "diagnosis": np.array(DIAGNOSES)[visit["diagnosis"]],
        }
    )
    return {"person": people, "visit": shown, "measurement": measurement}


def _visits(counts: np.ndarray, chronic: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    """All visits, person by person, in order."""
    person = np.arange(len(counts))[counts > 0]
    kind = _drawn(FIRST_TYPE[chronic[person]], rng)
    diagnosis = _drawn(DIAGNOSIS_BY_TYPE[kind], rng)
    day = rng.integers(0, DAYS // 3, len(person))
    steps = []
    for step in range(1, MOST_VISITS + 1):
        stay = rng.poisson(MEAN_STAY[kind])
        inside = day + stay < DAYS
        person, kind, diagnosis, day, stay = (part[inside] for part in (person, kind, diagnosis, day, stay))
        steps.append(
            {"person": person, "step": step, "day": day, "stay": stay, "type": kind, "diagnosis": diagnosis}
        )
        more = counts[person] > step
        gap = 1 + rng.geometric(1 / MEAN_GAP[kind])
        person, day, diagnosis = person[more], (day + stay + gap)[more], diagnosis[more]
        kind = _drawn(NEXT_TYPE[chronic[person], kind[more]], rng)
        fresh = _drawn(DIAGNOSIS_BY_TYPE[kind], rng)
        diagnosis = np.where(rng.random(len(person)) < SAME_DIAGNOSIS, diagnosis, fresh)
    table = pd.concat([pd.DataFrame(step) for step in steps], ignore_index=True)
    return table.sort_values(["person", "step"], kind="stable", ignore_index=True)


def _measurements(visit: pd.DataFrame, chronic: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    counts = np.minimum(rng.poisson(MEASUREMENTS[visit["type"]]), 6)
    of = np.repeat(np.arange(len(visit)), counts)
    test = rng.integers(0, len(TESTS), len(of))
    ill = chronic[visit["person"].to_numpy()[of]]
    value = CENTRES[ill, test] + WIDTHS[test] * rng.standard_normal(len(of))
    return pd.DataFrame({"visit id": of + 1, "test": np.array(TESTS)[test], "value": value.round(1)})


def _drawn(chances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A place in each line of chances."""
    ends = chances.cumsum(axis=1)
    return (rng.random(len(chances))[:, None] * ends[:, -1:] >= ends).sum(axis=1)


def schema() -> dict[str, object]:
    """The public schema of these records."""
    day = {"type": "date", "min": "2015-01-01", "max": "2024-12-31"}
    return {
        "version": 2,
        "tables": {
            "person": {
                "id": "person id",
                "columns": [
                    {"name": "age", "type": "integer", "min": 18, "max": 90},
                    {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
                    {
                        "name": "region",
                        "type": "categorical",
                        "categories": ["north", "east", "south", "west"],
                    },
                    {"name": "chronic", "type": "categorical", "categories": ["no", "yes"]},
                ],
            },
            "visit": {
                "parent": "person",
                "key": "person id",
                "id": "visit id",
                "order": "admission",
                "most": MOST_VISITS,
                "columns": [
                    {"name": "admission", **day},
                    {"name": "discharge", **day},
                    {"name": "type", "type": "categorical", "categories": list(TYPES)},
                    {"name": "diagnosis", "type": "categorical", "categories": list(DIAGNOSES)},
                ],
                "constraints": ["discharge >= admission"],
            },
            "measurement": {
                "parent": "visit",
                "key": "visit id",
                "most": 6,
                "columns": [
                    {"name": "test", "type": "categorical", "categories": list(TESTS)},
                    {
                        "name": "value",
                        "type": "continuous",
                        "min": 0,
                        "max": 250,
                        "decimals": 1,
                        "scale": "log",
                    },
                ],
            },
        },
    }


def write(folder: Path, persons: int, seed: int = 0) -> None:
    """Write one CSV file a table, and schema.json beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in records(persons, seed).items():
        table.to_csv(folder / f"{name}.csv", index=False)
    (folder.parent / "schema.json").write_text(json.dumps(schema(), indent=1))
