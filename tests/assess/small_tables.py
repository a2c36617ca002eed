"""A small table with a known structure, for tests of what compares tables."""

import numpy as np
import pandas as pd

from fedsynth.data.schema import Column, Schema
from fedsynth.rng import Rng

SCHEMA = Schema(
    columns=(
        Column("age", "integer", min=0, max=99, missing=True),
        Column("weight", "continuous", min=0.0, max=200.0),
        Column("town", "categorical", categories=("a", "b", "c", "d")),
        Column("grade", "ordinal", categories=("low", "middle", "high")),
        Column("sex", "categorical", categories=("F", "M")),
        Column("ill", "binary", categories=("no", "yes")),
    ),
    label="ill",
)


def table(rows: int = 600, key: str = "real") -> pd.DataFrame:
    """Age drives weight, grade and illness; a tenth of the ages is missing."""
    random = Rng(3).at(key).numpy()
    age = random.integers(20, 80, rows)
    frame = pd.DataFrame(
        {
            "age": pd.array(age, dtype="Int64"),
            "weight": 40.0 + age + random.normal(0, 3, rows),
            "town": random.choice(["a", "b", "c"], rows),
            "grade": np.array(["low", "middle", "high"])[np.digitize(age, [40, 60])],
            "sex": random.choice(["F", "M"], rows),
            "ill": np.where(age + random.normal(0, 8, rows) > 55, "yes", "no"),
        }
    )
    return frame.assign(age=frame["age"].mask(random.random(rows) < 0.1))


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    """Every column by itself: shapes stay, what goes together is lost."""
    random = Rng(1).numpy()
    return pd.DataFrame(
        {name: column.to_numpy()[random.permutation(len(frame))] for name, column in frame.items()}
    )
