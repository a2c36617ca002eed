"""Linked tables: what does not fit is said, rows find their parents, and what was drawn keeps all links."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedsynth.data import linked as linked_data
from fedsynth.data.histories import Histories
from fedsynth.data.history_draw import HistoryDraw
from fedsynth.data.linked import LinkedSchema, link
from fedsynth.data.linked_tables import Linked
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.research.hospital_records import records, schema
from samples import LINKED, make_histories


@pytest.fixture
def tables():
    return records(60, seed=3)


@pytest.fixture(scope="module")
def linked():
    return LinkedSchema.from_dict(schema()["tables"])


def test_a_schema_comes_back(linked):
    assert LinkedSchema.from_dict(linked.to_dict()) == linked


def test_rows_are_ordered_and_know_their_parents(linked, tables):
    shuffled = {name: frame.sample(frac=1, random_state=1) for name, frame in tables.items()}
    rows = link(linked, shuffled)
    visit = rows["visit"]
    assert len(visit) == len(tables["visit"])
    same = visit.parent[1:] == visit.parent[:-1]
    assert (np.diff(visit.numbers["admission"])[same] >= 0).all()
    assert (visit.place[1:][same] == visit.place[:-1][same] + 1).all()
    ages = shuffled["person"].set_index("person id")["age"]
    by_hand = shuffled["visit"]["person id"].map(ages).mean()
    assert rows["person"].numbers["age"][visit.person].mean() == pytest.approx(by_hand)


def test_rows_beyond_the_bound_do_not_count(linked, tables):
    few = LinkedSchema.from_dict({**linked.to_dict(), "visit": {**linked.to_dict()["visit"], "most": 2}})
    rows = link(few, tables)
    assert np.bincount(rows["visit"].parent).max() == 2
    assert rows["measurement"].parent.max() < len(rows["visit"])


@pytest.mark.parametrize(
    "spoil, sentence",
    [
        (
            lambda t: t["visit"].loc.__setitem__((0, "person id"), 999),
            "belong to no row of 'person', for example person id 999",
        ),
        (lambda t: t["person"].loc.__setitem__((1, "person id"), 1), "column 'person id': 1 is there twice"),
        (
            lambda t: t["visit"].loc.__setitem__((0, "discharge"), "2015-01-01"),
            "constraint 'discharge >= admission'",
        ),
        (lambda t: t["visit"].loc.__setitem__((0, "admission"), "yesterday"), "column 'admission'"),
        (lambda t: t["visit"].loc.__setitem__((0, "admission"), "2020-02-30"), "column 'admission'"),
        (lambda t: t["visit"].drop(columns="visit id", inplace=True), "no column 'visit id'"),
        (lambda t: t.pop("measurement"), "table 'measurement': is not there"),
    ],
)
def test_what_does_not_fit_is_said(linked, tables, spoil, sentence):
    spoil(tables)
    with pytest.raises(BadInput, match=sentence):
        link(linked, tables)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"parent": "persons"}, "no parent 'persons'"),
        ({"order": "start"}, "order 'start'"),
        ({"most": 0}, "most=0"),
        ({"key": None}, "no 'key'"),
        ({"colums": []}, "unknown key 'colums'"),
    ],
)
def test_a_wrong_schema_is_refused(linked, change, sentence):
    written = linked.to_dict()
    written["visit"] = {
        name: value for name, value in {**written["visit"], **change}.items() if value is not None
    }
    with pytest.raises(BadInput, match=sentence):
        LinkedSchema.from_dict(written)


def test_drawn_histories_repeat_what_the_views_say(linked):
    """A draw that repeats real codes gives real histories back, but for the place of a number in its cell."""
    rows = link(linked, records(200, seed=5))
    histories = Histories(linked)
    x, y, _ = histories.encode(rows)
    codes = [
        x[y == place][:, : len(view.columns)].long().numpy() for place, view in enumerate(histories.views)
    ]
    draw = np.random.default_rng(0)

    def like(view, known):
        every = codes[view]
        first = {tuple(line[: known.shape[1]]): line[known.shape[1] :] for line in every}
        other = every[draw.integers(0, len(every), len(known)), known.shape[1] :]
        return np.array([first.get(tuple(line), spare) for line, spare in zip(known, other, strict=True)])

    drawn = HistoryDraw(histories, lambda count: codes[0][:count].copy(), like, draw).rows(200)
    visit, again = rows["visit"], drawn["visit"]
    counts = np.bincount(again.parent, minlength=200), np.bincount(visit.parent, minlength=200)
    assert (counts[0] <= counts[1]).all() and len(again) > 0.97 * len(visit)
    same = again.parent[1:] == again.parent[:-1]
    assert (np.diff(again.numbers["admission"])[same] >= 0).all()
    assert (again.numbers["discharge"] >= again.numbers["admission"]).all()
    latest = linked.table("visit").schema.column("admission").bounds[1]
    assert again.numbers["admission"].max() <= latest and again.numbers["discharge"].max() <= latest


def test_keys_are_found():
    from fedsynth.data.linked_draft import draft_linked

    drafted = draft_linked(records(100, seed=1))
    schema_found = drafted.schema
    assert [(table.name, table.parent, table.key, table.order) for table in schema_found.tables] == [
        ("person", None, None, None),
        ("visit", "person", "person id", "admission"),
        ("measurement", "visit", "visit id", None),
    ]
    assert schema_found.tables[1].schema.constraints == ("discharge >= admission",)
    assert not drafted.left_out and "rows belong to 'visit' by 'visit id', in no order" in drafted.notes[-1]
    assert {"visit.admission", "visit.type", "person.age", "visit.constraints"} < {*schema_found.inferred()}
    assert "person.constraints" not in schema_found.inferred()


@pytest.mark.parametrize("visit_ids", [[7, 8, 9, 10], [1, 2, 3, 4]], ids=["other ids", "the same ids"])
def test_a_bare_id_is_found_by_the_name_of_its_table(visit_ids):
    from fedsynth.data.linked_draft import draft_linked

    person = pd.DataFrame({"id": [1, 2, 3], "age": [20, 31, 40]})
    days = ["2020-01-01", "2020-02-01", "2020-01-01", "2020-03-01"]
    visit = pd.DataFrame({"id": visit_ids, "person_id": [1, 1, 2, 3], "day": days})
    drafted = draft_linked({"person": person, "visit": visit})
    assert [(table.name, table.id, table.parent, table.key) for table in drafted.schema.tables] == [
        ("person", "id", None, None),
        ("visit", "id", "person", "person_id"),
    ]


def test_a_draft_bounds_numbers_of_children_by_the_rows_and_says_so():
    from fedsynth.data.linked_draft import draft_linked
    from fedsynth.data.review import inferred_in, public_as

    person = pd.DataFrame({"person id": ["a", "b", "c"], "age": [20, 31, 40]})
    home = pd.DataFrame({"person id": ["a", "b", "c"], "rooms": [2, 3, 4]})
    call = pd.DataFrame({"person id": ["a"] * 70 + ["b"] * 7, "seconds": np.arange(77)})
    drafted = draft_linked({"person": person, "home": home, "call": call})
    assert {table.name: table.most for table in drafted.schema.tables[1:]} == {"home": 1, "call": 50}
    assert any(
        "the first 50 count (20 of 77 rows are further ones)" in note and "'call'" in note
        for note in drafted.notes
    )
    assert {"home.most", "call.most"} < {*drafted.schema.inferred()}
    assert ("home.most", "1") in [(entry.name, entry.described) for entry in inferred_in(drafted.schema)]
    assert "home.most" not in public_as(drafted.schema, "home.most", {}).inferred()


def test_a_table_without_rows_is_left_out_of_a_draft_and_that_is_said():
    from fedsynth.data.linked_draft import draft_linked

    person = pd.DataFrame({"person id": [1, 2], "age": [20, 31]})
    empty = pd.DataFrame({"person id": [], "day": []})
    drafted = draft_linked({"person": person, "visit": empty})
    assert [table.name for table in drafted.schema.tables] == ["person"]
    assert drafted.notes[-1] == "table 'visit': has no rows and is left out of the schema"
    with pytest.raises(BadInput, match="none of them has a row"):
        draft_linked({"person": person.head(0), "visit": empty})


def test_a_draft_of_persons_with_an_id_that_is_there_twice_says_which():
    from fedsynth.data.linked_draft import draft_linked

    frames = records(60, seed=1)
    frames["person"] = pd.concat([frames["person"], frames["person"].tail(1)])
    with pytest.raises(BadInput, match="table 'person': column 'person id' .* 60 is there twice"):
        draft_linked(frames)


def test_each_problem_of_linked_tables_is_a_sentence_of_its_own(linked, tmp_path):
    frames = records(50, seed=1)
    frames["person"] = frames["person"].assign(age=200)
    frames["visit"] = frames["visit"].assign(type="flying")
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    problems = Linked(Schema.from_dict(schema())).check_file(tmp_path, "text")
    assert [problem.split(":")[0] for problem in problems] == ["table 'person'", "table 'visit'"]


def test_a_person_without_children_is_there(linked):
    person = pd.DataFrame(
        {"person id": ["a", "b"], "age": [30, 40], "sex": "F", "region": "north", "chronic": "no"}
    )
    visit = pd.DataFrame(
        {
            "person id": ["b"],
            "visit id": [1],
            "admission": ["2020-01-01"],
            "discharge": ["2020-01-02"],
            "type": "inpatient",
            "diagnosis": "I10",
        }
    )
    measurement = pd.DataFrame({"visit id": [1], "test": ["glucose"], "value": [6.0]})
    rows = link(linked, {"person": person, "visit": visit, "measurement": measurement})
    x, y, who = Histories(linked).encode(rows)
    assert np.bincount(y.numpy()).tolist() == [2, 1, 0, 1, 1]
    assert who[y.numpy() == 1].tolist() == [1]


def test_a_constraint_may_name_a_parents_column(tables):
    written = schema()["tables"]
    written["person"]["columns"].append(
        {"name": "death", "type": "date", "min": "2015-01-01", "max": "2024-12-31", "missing": True}
    )
    written["visit"]["constraints"].append("admission <= person.death")
    linked = LinkedSchema.from_dict(written)
    assert LinkedSchema.from_dict(linked.to_dict()) == linked
    tables["person"]["death"] = None
    assert len(link(linked, tables)["visit"]) == len(tables["visit"])
    tables["person"]["death"] = "2015-01-02"
    with pytest.raises(BadInput, match="constraint 'admission <= person.death': .* rows break it"):
        link(linked, tables)
    written["visit"]["constraints"].append("admission <= person.birth")
    with pytest.raises(BadInput, match="table 'visit': constraint 'admission <= person.birth'"):
        LinkedSchema.from_dict(written)


def test_no_drawn_row_breaks_a_constraint_whatever_codes_are_drawn():
    """Codes by chance: visits after death, before birth and with impossible stays are drawn again or left out."""
    written = schema()["tables"]
    death = {"name": "death", "type": "date", "min": "2015-01-01", "max": "2024-12-31", "missing": True}
    written["person"]["columns"].append(death)
    written["visit"]["constraints"] += [
        "discharge <= person.death",
        "type == 'inpatient' implies discharge > admission",
    ]
    linked = LinkedSchema.from_dict(written)
    histories, chance = Histories(linked), np.random.default_rng(0)

    def any_codes(view, rows, first):
        sizes = [axis.size for axis in histories.views[view].axes][first:]
        return np.stack([chance.integers(0, size, rows) for size in sizes], axis=1)

    drawn = HistoryDraw(
        histories,
        lambda count: any_codes(0, count, 0),
        lambda view, known: any_codes(view, len(known), known.shape[1]),
        chance,
    ).rows(300)
    visit, person = drawn["visit"], drawn["person"]
    assert len(visit) > 300
    end = person.numbers["death"][visit.person]
    assert not (visit.numbers["discharge"] > end).any()
    ill = visit.numbers["type"] == 2
    assert (visit.numbers["discharge"][ill] > visit.numbers["admission"][ill]).all()
    assert drawn["measurement"].parent.max() < len(visit)
    same = visit.parent[1:] == visit.parent[:-1]
    assert (np.diff(visit.numbers["admission"])[same] >= 0).all()


def within_bounds(linked, frames) -> bool:
    """Whether no parent has more rows than count, and every code has its place in the tables that are asked for."""
    rows = link(linked.tables, frames)
    x, y, _ = linked.histories.encode(rows)
    bounded = all(rows[table.name].place.max(initial=0) < table.most for table in linked.tables.tables)
    sized = all(
        (x[y == place][:, : len(view.axes)].numpy() < [axis.size for axis in view.axes]).all()
        for place, view in enumerate(linked.histories.views)
    )
    return bounded and sized


def test_a_bound_on_children_that_is_not_applied_is_found(monkeypatch):
    linked, frames = Linked(Schema.from_dict(LINKED)), make_histories([100_000, 3, 0])
    assert within_bounds(linked, frames)
    plain = linked_data._sorted
    monkeypatch.setattr(
        linked_data, "_sorted", lambda table, *words: plain(replace(table, most=10**9), *words)
    )
    assert not within_bounds(linked, frames)
