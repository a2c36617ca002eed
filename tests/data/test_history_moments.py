"""Moments of linked tables: counted from the row that they follow, whatever their grain, and within their bounds."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.histories import Histories
from fedsynth.data.history_draw import HistoryDraw
from fedsynth.data.history_moments import anchor_of
from fedsynth.data.linked import LinkedSchema, link

DAY = {"type": "date", "min": "2015-01-01", "max": "2024-12-31"}
MINUTE = {"type": "timestamp", "min": "2015-01-01", "max": "2024-12-31", "grain": "minute"}


def tables(order=DAY, taken=MINUTE, root="person", key="person id", names=("kind",)):
    kinds = {"type": "categorical", "categories": ["a", "b"]}
    return LinkedSchema.from_dict(
        {
            root: {"id": key, "columns": [{"name": "age", "type": "integer", "min": 0, "max": 99}]},
            "visit": {
                "parent": root, "key": key, "id": "visit id", "order": "at", "most": 9,
                "columns": [{"name": "at", **order}, *({**kinds, "name": name} for name in names)],
            },
            "test": {
                "parent": "visit", "key": "visit id", "most": 5, "order": "taken",
                "columns": [{"name": "taken", **taken}, {"name": "ready", **DAY, "missing": True}],
                "constraints": ["taken >= visit.at"],
            },
        }
    )  # fmt: skip


def frames(persons=40, seed=1):
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(persons), 3)
    at = pd.Timestamp("2015-02-01") + pd.to_timedelta(rng.integers(0, 3500, len(of)), unit="D")
    visit = pd.DataFrame({"visit id": np.arange(len(of)), "person id": of, "at": at.strftime("%Y-%m-%d")})
    visit["kind"] = rng.choice(["a", "b"], len(of))
    taken = at + pd.to_timedelta(rng.integers(0, 2000, len(of)), unit="min")
    ready = (taken + pd.Timedelta(days=2)).strftime("%Y-%m-%d")
    test = pd.DataFrame({"visit id": visit["visit id"], "taken": taken.astype(str), "ready": ready})
    test.loc[::4, "ready"] = None
    person = pd.DataFrame({"person id": np.arange(persons), "age": rng.integers(0, 100, persons)})
    return {"person": person, "visit": visit, "test": test}


def drawn(schema, persons, seed=0):
    """Histories out of codes by chance."""
    histories, chance = Histories(schema), np.random.default_rng(seed)

    def codes(view, rows, first):
        sizes = [axis.size for axis in histories.views[view].axes][first:]
        return np.stack([chance.integers(0, size, rows) for size in sizes], axis=1)

    return HistoryDraw(
        histories,
        lambda count: codes(0, count, 0),
        lambda view, known: codes(view, len(known), known.shape[1]),
        chance,
    ).rows(persons)


def test_a_grandchild_is_dated_from_its_parent_and_not_by_the_calendar():
    schema = tables()
    histories, rows = Histories(schema), link(schema, frames())
    numbers = histories.numbers(rows)["test"]
    assert anchor_of(schema, schema.table("test"), "taken").name == "visit.at"
    assert numbers["test start"].min() >= 0 and numbers["test start"].max() < 2000  # minutes since the visit
    known = numbers["test.ready"][~np.isnan(numbers["test.ready"])]
    assert set(known) == {2.0}  # days since it was taken: another grain than minutes
    assert np.isnan(numbers["test.ready"]).sum() == len(rows["test"]) // 4
    names = [column.name for column in histories.views[histories.places["first test"]].drawn]
    assert names == ["test start", "test.ready"]


def test_what_is_drawn_from_real_codes_lies_as_far_from_its_parent():
    schema = tables()
    histories, rows = Histories(schema), link(schema, frames())
    x, y, _ = histories.encode(rows)
    every = [
        x[y == place][:, : len(view.columns)].long().numpy() for place, view in enumerate(histories.views)
    ]
    rng = np.random.default_rng(2)

    def like(view, known):
        return every[view][rng.integers(0, len(every[view]), len(known)), known.shape[1] :]

    again = HistoryDraw(histories, lambda count: every[0][:count].copy(), like, rng).rows(40)
    after = again["test"].numbers["taken"] - again["visit"].numbers["at"][again["test"].parent] * 1440
    assert len(after) > 50 and (after >= 0).all() and after.max() < 2500


@pytest.mark.parametrize("grain", ["minute", "second"])
def test_gaps_of_many_grains_are_counted(grain):
    schema = tables(
        order={**MINUTE, "max": "2015-03-01" if grain == "second" else "2024-12-31", "grain": grain}
    )
    rows = drawn(schema, 200)
    visit = rows["visit"]
    same = visit.parent[1:] == visit.parent[:-1]
    assert len(visit) > 100 and (np.diff(visit.numbers["at"])[same] >= 0).all()
    assert (visit.numbers["at"] % 1 == 0).all()


@pytest.mark.parametrize(
    "order",
    [
        {"type": "integer", "min": 2015, "max": 2019},
        {"type": "continuous", "min": 0.5, "max": 2.0, "decimals": 1},
    ],
)
def test_numbers_that_order_rows_stay_within_their_bounds(order):
    schema = tables(order=order)
    visit = drawn(schema, 300)["visit"]
    numbers = visit.numbers["at"]
    assert len(visit) > 300
    assert numbers.min() >= order["min"] and numbers.max() <= order["max"]
    assert np.allclose(numbers, np.round(numbers, order.get("decimals", 0)), atol=1e-12)
    assert len(np.unique(numbers)) > 4


def test_names_that_sound_like_views_are_only_names():
    """A column called "kind before", and persons called "next of kin"."""
    schema = tables(root="next of kin", key="kin id", names=("kind", "kind before"))
    data = frames()
    data["next of kin"] = data.pop("person").rename(columns={"person id": "kin id"})
    data["visit"] = data["visit"].rename(columns={"person id": "kin id"})
    data["visit"]["kind before"] = "b"
    histories, rows = Histories(schema), link(schema, data)
    x, y, _ = histories.encode(rows)
    assert int((y == 0).sum()) == 40
    view = histories.views[histories.places["next visit"]]
    names = [column.name for column in view.columns]
    codes = x[y == histories.places["next visit"]].numpy()
    assert (codes[:, names.index("visit.kind before")] == 1).all()
    assert len(np.unique(codes[:, names.index("before visit.kind")])) == 2


def joined_tables(first="2015-01-01", rules=("at >= person.joined",)):
    joined = {"name": "joined", "type": "date", "min": first, "max": "2022-12-31"}
    return LinkedSchema.from_dict(
        {
            "person": {"id": "person id", "columns": [joined]},
            "visit": {
                "parent": "person", "key": "person id", "order": "at", "most": 3,
                "columns": [{"name": "at", **DAY}], "constraints": list(rules),
            },
        }
    )  # fmt: skip


def test_first_rows_are_counted_from_the_day_on_which_a_person_begins():
    schema = joined_tables()
    visit = schema.table("visit")
    assert anchor_of(schema, visit, "at").name == "person.joined"
    person = pd.DataFrame({"person id": [1, 2], "joined": ["2016-01-01", "2020-05-01"]})
    at = pd.DataFrame({"person id": [1, 1, 2], "at": ["2016-01-11", "2016-03-01", "2020-05-31"]})
    numbers = Histories(schema).numbers(link(schema, {"person": person, "visit": at}))["visit"]
    assert numbers["visit start"][[0, 2]].tolist() == [10, 30]
    rows = drawn(schema, 200)
    assert (rows["visit"].numbers["at"] >= rows["person"].numbers["joined"][rows["visit"].person]).all()


def test_a_first_row_far_from_a_moment_above_or_without_a_rule_is_learned_as_it_is():
    births, free = joined_tables(first="1930-01-01"), joined_tables(rules=())
    assert anchor_of(births, births.table("visit"), "at") is None
    assert anchor_of(free, free.table("visit"), "at") is None


def test_no_row_is_lost_because_gaps_are_long():
    """Nine visits each: gaps by chance would lead beyond the last day after a few."""
    schema = joined_tables(rules=())
    schema = LinkedSchema((schema.root, replace(schema.table("visit"), most=9)))
    histories, chance = Histories(schema), np.random.default_rng(0)
    view = histories.views[histories.places["next visit"]]
    gaps = view.axes[[column.name for column in view.columns].index("visit gap")].size

    def people(count):
        return np.stack([chance.integers(0, 100, count), np.full(count, 9)], axis=1)

    def long_ones(view, known):
        return chance.integers(gaps * 3 // 4, gaps, (len(known), 1))

    rows = HistoryDraw(histories, people, long_ones, chance).rows(100)["visit"]
    assert (
        len(rows) == 900 and rows.numbers["at"].max() <= schema.table("visit").schema.column("at").bounds[1]
    )
    assert (np.diff(rows.numbers["at"])[np.diff(rows.person) == 0] >= 0).all()
