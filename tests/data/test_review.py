import pandas as pd
import pytest

from fedsynth import Schema
from fedsynth.data.column import Column
from fedsynth.data.review import answered, inferred_in, made_public, proposed, with_rules, without
from fedsynth.errors import BadInput


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Column("hour", "integer", min=3, max=22), "0 to 23"),
        (Column("height", "continuous", min=148.0, max=199.0), "100 to 200"),
        (Column("balance", "continuous", min=-130.0, max=4100.0), "-200 to 5000"),
        (Column("loss", "integer", min=-40, max=-3), "-50 to 0"),
        (Column("ward", "categorical", categories=("a", "b")), "a, b"),
    ],
)
def test_a_proposal_is_round_and_holds_what_was_read(column, words):
    assert proposed(column).allowed() == words


def test_a_proposal_that_has_too_many_values_stays_as_it_was():
    wide = Column("number", "integer", min=0, max=2**23 - 2)
    assert proposed(wide) == wide


def test_moments_are_answered_as_dates():
    stay = Column("stay", "timestamp", min="2020-03-01 10:00", max="2020-04-01 11:00", grain="hour")
    assert answered(stay, "2020-01-01 00:00 to 2020-12-31 23:00").allowed().startswith("2020-01-01")
    with pytest.raises(BadInput, match="no bounds"):
        answered(stay, "2020")


def test_an_id_has_no_values_to_answer():
    with pytest.raises(BadInput, match="made anew"):
        answered(Column("id", "id"), "1 to 5")


def test_linked_tables_and_images_are_reviewed_by_the_names_that_inferred_has():
    person = pd.DataFrame({"person id": [1, 2, 3], "age": [20, 31, 40]})
    visit = pd.DataFrame(
        {"person id": [1, 1, 2], "day": ["2020-01-01", "2020-02-01", "2020-01-01"], "ward": ["a", "b", "a"]}
    )
    with pytest.warns(UserWarning, match="each row is a person"):
        schema = Schema.draft({"person": person, "visit": visit})
    names = [entry.name for entry in inferred_in(schema)]
    assert names == list(schema.inferred()) and "visit.ward" in names
    ward = answered(schema.tables[1].schema.column("ward"), "+ c")
    assert made_public(schema, "visit.ward", ward).tables[1].schema.column("ward").labels == ("a", "b", "c")
    assert schema.made_public().inferred() == ()


def test_decimals_that_one_row_alone_has_are_shown_to_whoever_calls_them_public():
    doses = pd.DataFrame({"dose": [0.5, 1.5, 2.5, 3.14159], "ward": ["a", "b", "a", "b"]})
    dose = inferred_in(Schema.draft(doses))[0]
    assert dose.described == "continuous, 0.5 to 3.14159 (5 decimals)"
    assert dose.proposal.allowed() == "0 to 5 (5 decimals)"


def test_a_label_is_not_dropped():
    schema = Schema.draft(pd.DataFrame({"age": [1, 2, 3], "ill": ["no", "yes", "no"]}), label="ill")
    with pytest.raises(BadInput, match="is the label"):
        without(schema, "ill")


@pytest.mark.parametrize(
    ("name", "changes", "words"), [("agee", {}, "did you mean 'age'"), (None, {"min": 0}, "name the column")]
)
def test_a_column_that_is_not_inferred_cannot_be_made_public(name, changes, words):
    schema = Schema.draft(pd.DataFrame({"age": [1, 2, 3], "ill": ["no", "yes", "no"]}))
    with pytest.raises(BadInput, match=words):
        schema.made_public(name, **changes)


def test_rules_across_tables_are_reviewed_with_a_table_s_own_and_go_with_their_column():
    day = {"type": "date", "min": "2020-01-01", "max": "2020-12-31"}
    marks = {"constraints": "inferred", "most": "inferred", "at": "inferred"}
    visit = {
        "parent": "person", "key": "person id", "order": "at", "most": 3, "provenance": marks,
        "columns": [{"name": "at", **day}, {"name": "end", **day}],
        "constraints": ["end >= at", "at <= person.death"],
    }  # fmt: skip
    person = {
        "id": "person id",
        "columns": [{"name": "death", **day, "missing": True}],
        "provenance": {"death": "inferred"},
    }
    schema = Schema.from_dict({"version": 2, "tables": {"person": person, "visit": visit}})
    described = {entry.name: entry.described for entry in inferred_in(schema)}
    assert "2. at <= person.death" in described["visit.constraints"]
    kept = with_rules(schema, "visit.constraints", "2").tables[1]
    assert (kept.schema.constraints, kept.across) == ((), ("at <= person.death",))
    alone = without(schema, "person.death").tables[1]
    assert (alone.schema.constraints, alone.across) == (("end >= at",), ())
    assert without(schema, "visit.most").tables[1].most == 50
