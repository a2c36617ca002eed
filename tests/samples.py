"""Small schemas, settings and rows that tests of many rooms start from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

SIZES = (0, 1, 2, 3, 5, 7, 4, 1, 9, 6)  # rows of the ten clients
ROWS = {"latent": 2, "hidden": (8,), "epochs": 1, "batch_size": 4}  # small networks of tables
SMALL = {**ROWS, "width": 2}  # and of images
MOMENTS = {"frequencies": 12, "directions": 4}  # of recipes that open with class moments
LOCAL = {"epsilon": 8.0, "group": 2, "participations": 2, "pretraining": 5}  # of recipes that take turns
TABLE = {
    "version": 1,
    "kind": "table",
    "label": "ill",
    "client": "owner",
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 99},
        {"name": "bmi", "type": "continuous", "min": 10.0, "max": 60.0, "missing": True},
        {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
        {"name": "grade", "type": "ordinal", "categories": ["low", "middle", "high"]},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ],
}
IMAGE = {
    "version": 1,
    "kind": "image",
    "height": 8,
    "width": 8,
    "channels": 1,
    "label": {"name": "digit", "categories": ["0", "1"]},
}
TEXT = {"version": 1, "kind": "text", "vocabulary": ["see", "the", "red", "cat", "run"], "length": 5}
LINKED = {
    "version": 2,
    "kind": "linked",
    "tables": {
        "person": {
            "id": "person",
            "columns": [{"name": "sex", "type": "categorical", "categories": ["F", "M"]}],
        },
        "visit": {
            "parent": "person",
            "key": "person",
            "order": "day",
            "most": 4,
            "columns": [
                {"name": "day", "type": "integer", "min": 0, "max": 30},
                {"name": "ward", "type": "categorical", "categories": ["A", "B", "C"]},
            ],
        },
    },
}
KINDS = {"table": TABLE, "image": IMAGE, "text": TEXT, "linked": LINKED}


def make_histories(sizes: Sequence[int], seed: int = 0) -> dict[str, pd.DataFrame]:
    """Persons with so many visits each: the ward of a visit is mostly that of the one before."""
    draw = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    ward = np.where(draw.random(len(owner)) < 0.8, owner % 3, draw.integers(0, 3, len(owner)))
    return {
        "person": pd.DataFrame(
            {"person": np.arange(len(sizes)), "sex": np.array(["F", "M"])[np.arange(len(sizes)) % 2]}
        ),
        "visit": pd.DataFrame(
            {
                "person": owner,
                "day": draw.integers(0, 31, len(owner)),
                "ward": np.array(["A", "B", "C"])[ward],
            }
        ),
    }


def make_frame(owners: np.ndarray, seed: int = 0) -> pd.DataFrame:
    """Rows whose columns depend on the label, one for each owner."""
    draw = np.random.default_rng(seed)
    count = len(owners)
    ill = draw.integers(0, 2, count)
    bmi = np.round(np.clip(draw.normal(25 + 10 * ill, 5), 10, 60), 2)
    return pd.DataFrame(
        {
            "owner": owners,
            "age": np.clip(draw.normal(30 + 40 * ill, 9), 0, 99).astype(int),
            "bmi": np.where(draw.random(count) < 0.2, np.nan, bmi),
            "sex": np.where(draw.random(count) < 0.5, "F", "M"),
            "grade": np.array(["low", "middle", "high"])[draw.integers(0, 3, count)],
            "ill": np.where(ill == 1, "yes", "no"),
        }
    )
