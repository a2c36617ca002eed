"""What a draft reads from linked rows: rules between moments, rows that are numbered, and no accident."""

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.linked_draft import draft_linked


@pytest.fixture
def clinic():
    rng = np.random.default_rng(4)
    persons, visits = 200, 3
    start = pd.Timestamp("2018-01-01") + pd.to_timedelta(rng.integers(0, 900, persons), unit="D")
    of = np.repeat(np.arange(persons), visits)
    at = start[of] + pd.to_timedelta(np.tile([0, 40, 90], persons), unit="D")
    end = at + pd.to_timedelta(rng.integers(0, 9, len(of)), unit="D")
    death = pd.Series((start + pd.Timedelta(days=120)).strftime("%d.%m.%Y")).where(rng.random(persons) < 0.3)
    person = pd.DataFrame({"person id": np.arange(persons), "death": death})
    visit = pd.DataFrame({"visit id": np.arange(len(of)), "person id": of})
    visit["in"], visit["out"] = at.strftime("%d.%m.%Y"), end.strftime("%d.%m.%Y")
    visit.loc[::5, "out"] = None
    visit["score"] = rng.integers(0, 9, len(of))
    taken = at + pd.to_timedelta(rng.integers(0, 3, len(of)), unit="D")
    test = pd.DataFrame({"visit id": visit["visit id"], "taken": taken.strftime("%d.%m.%Y")})
    return {"person": person, "visit": visit, "test": test}


def rules(frames):
    drafted = draft_linked(frames)
    return {t.name: {*t.schema.constraints, *t.across} for t in drafted.schema.tables}, drafted


def test_moments_in_order_are_found_also_across_tables_and_with_missing_ones(clinic):
    found, drafted = rules(clinic)
    assert found == {
        "person": set(),
        "visit": {"out >= in", "in <= person.death", "out <= person.death"},
        "test": {"taken >= visit.in", "taken <= person.death"},
    }
    assert {"visit.constraints", "test.constraints"} <= {*drafted.schema.inferred()}
    assert any("in all rows taken >= visit.in" in note for note in drafted.notes)


def test_one_row_that_breaks_a_rule_is_enough_to_leave_it_out(clinic):
    clinic["test"].loc[7, "taken"] = "01.01.2017"
    clinic["person"].loc[3, "death"] = "02.01.2017"
    found, _ = rules(clinic)
    assert found == {"person": set(), "visit": {"out >= in"}, "test": set()}


def test_what_holds_by_accident_is_no_rule(clinic):
    clinic["person"]["death"] = "31.12.2030"  # whoever belonged to whom, no visit would be later
    found, _ = rules(clinic)
    assert found["visit"] == {"out >= in"} and found["test"] == {"taken >= visit.in"}


def test_rows_that_are_numbered_are_ordered(clinic):
    visit = clinic["visit"].drop(columns=["in", "out"])
    visit["visit number"] = np.tile([1, 2, 3], 200)
    drafted = draft_linked({"person": clinic["person"], "visit": visit})
    assert drafted.schema.tables[1].order == "visit number"
    visit["visit number"] = np.random.default_rng(0).permutation(visit["visit number"])
    assert draft_linked({"person": clinic["person"], "visit": visit}).schema.tables[1].order is None
    visit["visit number"] = np.arange(
        600
    )  # numbers that nobody shares, whoever they belong to, order nothing
    assert draft_linked({"person": clinic["person"], "visit": visit}).schema.tables[1].order is None
