"""Moments that follow another are learned as the time since it, and come back as they were."""

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.encode import anchors_of
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table, valid_rows

DAYS = {"min": "2020-01-01", "max": "2021-12-31"}


def stays(*constraints: str, **missing: bool) -> Schema:
    kinds = {"admission": "date", "transfer": "date", "discharge": "timestamp"}
    columns = [{"name": n, "type": t, **DAYS, "missing": missing.get(n, False)} for n, t in kinds.items()]
    return Schema.from_dict({"columns": columns, "constraints": list(constraints)})


def anchors(schema: Schema) -> dict[str, str]:
    return {name: anchor.name for name, anchor in anchors_of(schema).items()}


def test_the_nearest_moment_before_is_taken():
    chain = ("discharge >= admission", "transfer >= admission", "transfer <= discharge")
    assert anchors(stays(*chain)) == {"transfer": "admission", "discharge": "transfer"}


def test_nothing_is_counted_from_a_moment_that_may_be_missing():
    chain = ("discharge >= admission", "transfer >= admission", "transfer <= discharge")
    assert anchors(stays(*chain, transfer=True)) == {"transfer": "admission", "discharge": "admission"}


@pytest.mark.parametrize(
    "rules",
    [
        ("discharge >= admission", "admission >= discharge"),
        ("discharge >= admission + 2",),
        ("discharge >= '2020-03-01'",),
        ("discharge >= admission or transfer >= admission",),
        (),
    ],
)
def test_other_rules_leave_moments_as_they_are(rules):
    assert anchors(stays(*rules)) == {}


def test_a_visit_is_not_counted_from_a_birth():
    birth = {"name": "birth", "type": "date", "min": "1920-01-01", "max": "2021-12-31"}
    visit = {"name": "visit", "type": "date", **DAYS}
    schema = Schema.from_dict({"columns": [birth, visit], "constraints": ["visit >= birth"]})
    assert anchors(schema) == {} and Table(schema).learned == schema.columns


def test_rows_come_back_as_they_were():
    schema = stays("discharge >= admission", "transfer >= admission", transfer=True)
    draw = np.random.default_rng(1)
    admission = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 600, 200), unit="D")
    transfer = (admission + pd.to_timedelta(draw.integers(0, 90, 200), unit="D")).strftime("%Y-%m-%d")
    frame = pd.DataFrame(
        {
            "admission": admission.strftime("%Y-%m-%d"),
            "transfer": pd.Series(transfer).where(draw.random(200) < 0.7),
            "discharge": admission + pd.to_timedelta(draw.integers(0, 48, 200), unit="h"),
        }
    )
    table = Table(schema)
    back = table.decode(*table.encode(frame))
    assert [column.bounds[0] for column in table.learned[1:]] == [0, 0]
    assert (pd.to_datetime(back["admission"]) == admission).all()
    assert back["transfer"].isna().equals(frame["transfer"].isna()) and frame["transfer"].isna().any()
    there = frame["transfer"].notna()
    assert (pd.to_datetime(back["transfer"][there]) == pd.to_datetime(frame["transfer"][there])).all()
    error = (pd.to_datetime(back["discharge"]) - frame["discharge"]).abs()
    assert (error <= pd.Timedelta(0)).all()


def test_a_moment_after_the_last_day_is_no_row():
    schema = stays("discharge >= admission")
    last = {"admission": np.array([730.0]), "transfer": np.array([0.0])}
    bound = schema.column("discharge").bounds[1]
    assert valid_rows(schema, {**last, "discharge": np.array([bound])}).all()
    assert not valid_rows(schema, {**last, "discharge": np.array([bound + 1])}).any()
