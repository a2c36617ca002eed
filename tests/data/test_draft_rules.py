"""Rules that all rows keep are drafted, marked as inferred; what holds by accident is not."""

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.draft import Wishes, draft_schema
from fedsynth.data.review import inferred_in, with_rules, without
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput

ROWS = 400


@pytest.fixture(scope="module")
def visits() -> pd.DataFrame:
    draw = np.random.default_rng(2)
    age = draw.integers(0, 90, ROWS)
    sex = draw.choice(["F", "M"], ROWS)
    admission = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 700, ROWS), unit="D")
    moved = admission + pd.to_timedelta(draw.integers(0, 4, ROWS), unit="D")
    discharge = moved + pd.to_timedelta(draw.integers(0, 20, ROWS), unit="D")
    tests, scans = draw.integers(0, 9, ROWS), draw.integers(0, 9, ROWS)
    return pd.DataFrame(
        {
            "age": age,
            "group": np.select([age < 18, age < 65], ["child", "adult"], "old"),
            "sex": sex,
            "pregnant": np.where((sex == "F") & (draw.random(ROWS) < 0.3), "yes", "no"),
            "admission": admission.strftime("%Y-%m-%d"),
            "moved": moved.strftime("%Y-%m-%d"),
            "discharge": discharge.strftime("%Y-%m-%d"),
            "days": (discharge - admission).days,
            "tests": tests,
            "scans": scans,
            "all": tests + scans,
            "ward": draw.choice(["north", "south", "west"], ROWS),
            "dead": draw.choice(["no", "yes"], ROWS),
        }
    )


RULES = (
    "moved >= admission",
    "discharge >= moved",
    "all == tests + scans",
    "days == discharge - admission",
    "group == 'child' implies age < 18",
    "group == 'adult' implies age >= 18 and age < 65",
    "group == 'old' implies age >= 65",
    "pregnant == 'yes' implies sex == 'F'",
)


def test_rules_that_all_rows_keep_are_drafted_and_no_others(visits):
    schema = draft_schema(visits, Wishes(label="dead")).schema
    assert schema.constraints == RULES
    assert schema.provenance["constraints"] == "inferred" and "constraints" in schema.inferred()


@pytest.mark.parametrize(
    "rule", ["discharge >= moved", "all == tests + scans", "pregnant == 'yes' implies sex == 'F'"]
)
def test_a_rule_that_one_row_breaks_is_none(visits, rule):
    broken = {"discharge": "2019-12-31", "all": 30, "pregnant": "yes"}
    row = visits.index[visits["sex"] == "M"][0]
    column = rule.split()[0]
    frame = visits.copy()
    frame.loc[row, column] = broken[column]
    drafted = draft_schema(frame).schema.constraints
    assert rule not in drafted and {*drafted} < {*RULES}


def test_what_holds_by_accident_is_no_rule():
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({name: draw.choice(["a", "b", "c"], 60) for name in "xyz"})
    frame["rare"] = ["yes"] * 5 + ["no"] * 55
    frame.loc[:4, "x"] = "a"
    frame["late"], frame["early"] = "2020-02-01", "2020-01-01"
    assert draft_schema(frame).schema.constraints == ()


def test_a_drafted_schema_fits_its_rows_and_is_read_back(visits, tmp_path):
    schema = draft_schema(visits).schema
    schema.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == schema


def test_a_person_keeps_some_rules_all_or_none(visits):
    schema = draft_schema(visits).schema
    assert "1. moved >= admission" in inferred_in(schema)[-1].described
    some = with_rules(schema, "constraints", "1, 3")
    assert some.constraints == (RULES[0], RULES[2]) and some.provenance["constraints"] == "public"
    assert with_rules(schema, "constraints", "").constraints == ()
    for answer in ("9", "first", "0x"):
        with pytest.raises(BadInput, match="numbers of rules"):
            with_rules(schema, "constraints", answer)


def test_a_dropped_column_takes_its_rules_along(visits):
    schema = without(draft_schema(visits).schema, "moved")
    assert not any("moved" in rule for rule in schema.constraints) and len(schema.constraints) == 6
