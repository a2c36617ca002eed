import json

import pytest

from fedsynth.data.schema import Column, Schema
from fedsynth.errors import BadInput

WRITTEN = {
    "version": 1,
    "kind": "table",
    "label": "income",
    "client": "patient id",
    "columns": [
        {"name": "age", "type": "integer", "min": 17, "max": 90},
        {"name": "bmi", "type": "continuous", "min": 12.0, "max": 70.0, "missing": True, "decimals": 1},
        {"name": "education", "type": "ordinal", "categories": ["none", "school", "degree"]},
        {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
        {"name": "income", "type": "categorical", "categories": ["<=50K", ">50K"]},
    ],
    "provenance": {"age": "public", "bmi": "paid"},
}


def test_the_documented_schema_is_read_and_written_unchanged():
    assert Schema.from_dict(WRITTEN).to_dict() == WRITTEN


def test_a_saved_schema_loads_as_the_same(tmp_path):
    schema = Schema.from_dict(WRITTEN)
    schema.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == schema
    assert hash(Schema.load(tmp_path / "schema.json")) == hash(schema)


def test_an_image_schema_carries_its_classes_in_the_label(tmp_path):
    written = {"kind": "image", "height": 28, "width": 28, "channels": 1}
    written["label"] = {"name": "digit", "categories": ["0", "1"]}
    schema = Schema.from_dict(written)
    assert (schema.label, schema.classes, schema.feature_columns) == ("digit", ("0", "1"), ())
    assert Schema.from_dict(schema.to_dict()) == schema


def test_a_text_schema_has_a_vocabulary():
    assert Schema.from_dict({"kind": "text", "vocabulary": "bytes"}).vocabulary == "bytes"
    assert Schema.from_dict({"kind": "text", "vocabulary": ["a", "b"]}).vocabulary == ("a", "b")


def test_features_are_the_columns_without_label_and_client():
    schema = Schema.from_dict(WRITTEN).with_client("sex")
    assert [column.name for column in schema.feature_columns] == ["age", "bmi", "education"]
    assert schema.names == ("age", "bmi", "education", "income")


def test_inferred_columns_are_named():
    schema = Schema.from_dict({**WRITTEN, "provenance": {"age": "inferred", "sex": "public"}})
    assert schema.inferred() == ("age",)


def test_an_integer_label_has_its_values_as_classes():
    schema = Schema(columns=(Column("a", "binary"), Column("grade", "integer", min=2, max=4)), label="grade")
    assert schema.classes == ("2", "3", "4")


def test_another_label_drops_the_class_balance_of_the_old_one():
    schema = Schema.from_dict({**WRITTEN, "label_probabilities": [0.76, 0.24]})
    assert schema.label_probabilities == (0.76, 0.24)
    assert schema.with_label("sex").label_probabilities is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"labl": "x"}, "unknown key 'labl', did you mean 'label'"),
        ({"kind": "tabel"}, "did you mean 'table'"),
        ({"version": 2}, "version 2"),
        ({"label": "incom"}, "did you mean 'income'"),
        ({"label": "bmi"}, "must not allow missing"),
        (
            {
                "label": "patient id",
                "columns": [*WRITTEN["columns"], {"name": "patient id", "type": "binary"}],
            },
            "client",
        ),
        ({"columns": []}, "at least one column"),
        ({"columns": [WRITTEN["columns"][0], *WRITTEN["columns"]]}, "'age' is listed twice"),
        ({"columns": "age"}, "must be a list"),
        ({"columns": [*WRITTEN["columns"], 3]}, "column 3"),
        ({"provenance": {"agee": "public"}}, "did you mean 'age'"),
        ({"provenance": {"age": "pubic"}}, "did you mean 'public'"),
        ({"label_probabilities": [0.5, 0.4]}, "add up to 1"),
        ({"label_probabilities": [1.0]}, "1 numbers for 2 classes"),
        ({"label_probabilities": 1.0}, "expected a list"),
        ({"height": 3}, "'height' is for images"),
        ({"provenance": ["age"]}, "'provenance' must"),
    ],
)
def test_a_wrong_schema_is_refused_with_the_reason(change, told):
    with pytest.raises(BadInput) as refused:
        Schema.from_dict({**WRITTEN, **change})
    assert told in str(refused.value)


def test_a_label_with_too_many_values_is_refused():
    columns = (Column("a", "binary"), Column("cost", "integer", min=0, max=5000))
    with pytest.raises(BadInput, match="too many values"):
        Schema(columns=columns, label="cost")


def test_all_problems_of_a_schema_are_told_together():
    columns = [{"name": "a", "type": "catgorical"}, {"name": "b", "type": "integer"}]
    with pytest.raises(BadInput) as refused:
        Schema.from_dict({"columns": columns, "lable": "a", "label": "c", "version": 3})
    for told in (
        "'lable'",
        "'catgorical'",
        "column 'b': 'min' is missing",
        "label 'c' is no column",
        "version 3",
    ):
        assert told in str(refused.value)


def test_a_label_whose_column_cannot_be_read_is_not_called_unknown():
    with pytest.raises(BadInput) as refused:
        Schema.from_dict(
            {"columns": [{"name": "a", "type": "x"}, {"name": "b", "type": "binary"}], "label": "a"}
        )
    assert "is no column" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "told"), [("{", "not JSON"), ("[]", "not a list"), (None, "cannot be read")]
)
def test_an_unreadable_schema_file_is_named(tmp_path, content, told):
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match="schema.json") as refused:
        Schema.load(path)
    assert told in str(refused.value)


def test_saving_into_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        Schema.from_dict(WRITTEN).save(tmp_path / "no" / "schema.json")


def test_the_file_has_a_line_for_each_column(tmp_path):
    Schema.from_dict(WRITTEN).save(tmp_path / "schema.json")
    text = (tmp_path / "schema.json").read_text()
    assert json.loads(text) == WRITTEN
    assert '\n  {"name": "age", "type": "integer", "min": 17, "max": 90},\n' in text
