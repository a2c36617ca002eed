import pytest

from fedsynth.data.column import Column
from fedsynth.errors import BadInput


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"type": "integr", "min": 0, "max": 1}, "did you mean 'integer'"),
        ({"type": "integer", "max": 1}, "'min' is missing"),
        ({"type": "integer", "min": 0, "max": float("nan")}, "'max' is nan"),
        ({"type": "integer", "min": 0.5, "max": 2}, "whole numbers"),
        ({"type": "integer", "min": 0, "max": 2**23}, "too many to tell apart"),
        ({"type": "integer", "min": 0, "max": 2**20, "scale": "log"}, "too many to tell apart"),
        ({"type": "continuous", "min": 1, "max": 1}, "must be less than"),
        ({"type": "continuous", "min": 2, "max": 1}, "must be less than"),
        ({"type": "continuous", "min": 0, "max": 1, "scale": "logg"}, "did you mean 'log'"),
        ({"type": "continuous", "min": 0, "max": 1, "bins": 0}, "bins=0"),
        ({"type": "continuous", "min": 0, "max": 1, "decimals": -1}, "decimals=-1"),
        ({"type": "categorical"}, "needs 'categories'"),
        ({"type": "categorical", "categories": ("a", "a")}, "'a' is listed twice"),
        ({"type": "categorical", "categories": ("a", "")}, "not empty"),
        ({"type": "categorical", "categories": ("a", "b"), "min": 0}, "min=0 is for integer"),
        ({"type": "categorical", "categories": ("a", "b"), "scale": "log"}, "scale 'log' is for"),
        ({"type": "binary", "categories": ("a", "b", "c")}, "two categories, not 3"),
        ({"type": "binary", "missing": "yes"}, "missing='yes'"),
    ],
)
def test_a_wrong_column_is_refused_with_its_name_and_the_reason(arguments, told):
    with pytest.raises(BadInput, match="column 'height'") as refused:
        Column(name="height", **arguments)
    assert told in str(refused.value)


def test_all_problems_of_a_column_are_told_together():
    with pytest.raises(BadInput) as refused:
        Column.from_dict({"name": "a", "type": "continuous", "mn": 1, "scale": "cubic"})
    for told in ("'mn'", "'min' is missing", "'max' is missing", "unknown scale 'cubic'"):
        assert told in str(refused.value)


def test_a_binary_column_has_the_categories_0_and_1_by_default():
    assert Column("ill", "binary").categories == ("0", "1")


def test_numbers_and_truth_values_listed_as_categories_are_text():
    written = {"name": "a", "type": "categorical", "categories": [1, True, "x"]}
    assert Column.from_dict(written).categories == ("1", "true", "x")


def test_a_column_written_and_read_is_the_same():
    column = Column("a", "integer", min=0, max=9, missing=True, scale="log", bins=5)
    assert Column.from_dict(column.to_dict()) == column


def test_only_what_differs_from_the_default_is_written():
    assert Column("a", "integer", min=0.0, max=9).to_dict() == {
        "name": "a",
        "type": "integer",
        "min": 0,
        "max": 9,
    }
