"""The RAND Health Insurance Experiment as histories: a person, and a row for each year in the experiment."""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fedsynth.data.rand_health import hold_out, rand_health

FIXED = ("site", "coinsurance", "individual_deductible", "sex", "black", "education_years")
YEARLY = ("year", "age", "health", "physical_limitation", "chronic_diseases", "mental_health", "saw_doctor")


def linked(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Two tables: what a person was at first, and each year."""
    first = frame.sort_values("year").groupby("person", sort=False).first().reset_index()
    return {
        "person": first[["person", *FIXED]].rename(columns={"person": "person id"}),
        "year": frame[["person", *YEARLY]].rename(columns={"person": "person id"}).reset_index(drop=True),
    }


def rand_histories() -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame], dict]:
    """The people that train, those that are held out, and the public schema."""
    frame, schema = rand_health()
    train, test = hold_out(frame, "person")
    columns = {column.name: column.to_dict() for column in schema.columns}
    tables = {
        "person": {"id": "person id", "columns": [columns[name] for name in FIXED]},
        "year": {
            "parent": "person",
            "key": "person id",
            "order": "year",
            "most": 5,
            "columns": [columns[name] for name in YEARLY],
        },
    }
    return linked(train), linked(test), {"version": 2, "tables": tables}


def next_year(frames: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, np.ndarray]:
    """What is known of a person in a year, and whether they see a doctor in the next."""
    years = frames["year"].sort_values(["person id", "year"]).merge(frames["person"], on="person id")
    later = years.groupby("person id")["saw_doctor"].shift(-1)
    known = years[later.notna().to_numpy()]
    return known[[*YEARLY, *FIXED]], (later.dropna() == "yes").to_numpy()


def taught(train: dict[str, pd.DataFrame], test: dict[str, pd.DataFrame], seed: int = 0) -> float:
    """The AUC, on people nobody has seen, of boosted trees that learn from these histories."""
    (x, y), (test_x, test_y) = next_year(train), next_year(test)
    both = pd.concat([x, test_x])
    for name in both:
        if not pd.api.types.is_numeric_dtype(both[name]):
            both[name] = both[name].astype("category").cat.codes
    both = both.astype(float)
    model = HistGradientBoostingClassifier(random_state=seed, max_iter=60, learning_rate=0.05)
    model.fit(both.iloc[: len(x)], y)
    return float(roc_auc_score(test_y, model.predict_proba(both.iloc[len(x) :])[:, 1]))
