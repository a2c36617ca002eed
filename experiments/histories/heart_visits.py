"""Heart disease as single visits: a person with age, sex and clinic, and the one visit at which all else was found."""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fedsynth.data.schema import Schema
from fedsynth.research.datasets import heart_disease

FIXED = ("age", "sex")
HELD_OUT = 5  # every fifth person, of an order by chance


def linked(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Two tables, with one visit for each person."""
    named = rows.reset_index(drop=True).rename_axis("person id").reset_index()
    return {"person": named[["person id", *FIXED]], "visit": named.drop(columns=[*FIXED])}


def heart_visits() -> tuple[pd.DataFrame, pd.DataFrame, Schema, dict]:
    """The rows that train, those that are held out, their flat schema, and that of two tables."""
    frame, schema = heart_disease()
    frame = frame.drop(columns="site").iloc[np.random.default_rng(0).permutation(len(frame))]
    columns = {column.name: column.to_dict() for column in schema.columns}
    tables = {
        "person": {"id": "person id", "columns": [columns[name] for name in FIXED]},
        "visit": {
            "parent": "person",
            "key": "person id",
            "most": 1,
            "columns": [column for name, column in columns.items() if name not in FIXED],
        },
    }
    test = np.arange(len(frame)) % HELD_OUT == 0
    flat = schema.with_client(None)
    return frame[~test], frame[test], flat, {"version": 2, "tables": tables}


def flat_rows(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Persons with their visits, as one table."""
    return tables["visit"].merge(tables["person"], on="person id").drop(columns="person id")


def taught(train: pd.DataFrame, test: pd.DataFrame, label: str, seed: int = 0) -> float:
    """The AUC, on persons nobody has seen, of boosted trees that learn the label from these rows."""
    both = pd.concat([train[test.columns], test]).drop(columns=label)
    for name in both:
        if not pd.api.types.is_numeric_dtype(both[name]):
            both[name] = both[name].astype("category").cat.codes
    x = both.astype(float).to_numpy()
    first = sorted(test[label].astype(str).unique())[0]
    known, truth = (frame[label].astype(str) != first for frame in (train, test))
    model = HistGradientBoostingClassifier(random_state=seed, max_iter=60, learning_rate=0.05)
    model.fit(x[: len(train)], known)
    return float(roc_auc_score(truth, model.predict_proba(x[len(train) :])[:, 1]))
