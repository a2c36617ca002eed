"""What travels is data: it comes back as it was, and anything else is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.errors import BadInput
from fedsynth.inspection.criterion import Criterion
from fedsynth.inspection.plan import InspectionPlan, ModelSource
from fedsynth.inspection.selection import Selection
from fedsynth.inspection.step import MEETING, SHARES, SLICES, InspectionQuestion, SelectionTraining

TABLES = [
    {"by": "user", "criterion": "correct", "below": 0.5},
    {"by": "user", "criterion": "misclassified", "below": "25%", "above": 0.1, "at_least": 3},
    {"by": "example", "criterion": "rule", "column": "age", "is": ">=", "value": 65},
    {"by": "example", "criterion": "unlikely", "threshold": -1.5},
    {"by": "example", "criterion": "told_apart", "threshold": 0.25, "at_least": 2},
    {"by": "example", "criterion": "unlabelled"},
    {"by": "example", "criterion": "everyone"},
    {"by": "example", "criterion": "weak_slices", "accuracy_below": 0.7},
    {"by": "example", "criterion": "out_of_vocabulary"},
]
ONE = Selection.parse(TABLES[0])
FOUND = Selection(Criterion("weak_slices", (("accuracy_below", 0.7),), (0, 3)), "example")


@pytest.mark.parametrize("table", TABLES)
def test_a_selection_is_made_again_from_its_table(table):
    selection = Selection.parse(table)
    again = Selection.parse(json.loads(json.dumps(selection.table)))
    assert again == selection and again.words == selection.words


@given(st.floats(0, 1))
def test_a_bound_that_was_found_comes_back_to_the_last_bit(value):
    selection = Selection.parse({**TABLES[0], "below": value})
    assert Selection.parse(json.loads(json.dumps(selection.table))).below.value == value


STEPS = [
    InspectionQuestion(SHARES, (ONE,), 0),
    InspectionQuestion(SLICES, (FOUND,), 1),
    InspectionQuestion(MEETING, (ONE, FOUND), 2),
    SelectionTraining("bad", (FOUND,), 1),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("source", [ModelSource(), ModelSource(onnx="ab"), ModelSource(entry_point="triage")])
@pytest.mark.parametrize("noise", [2.5, None])
def test_a_plan_comes_back_as_it_was(step, source, noise):
    plan = InspectionPlan("look", {"bad": ONE, "good": FOUND}, noise, source, step)
    assert InspectionPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert plan.run.startswith("look-")


def test_steps_of_one_inspection_are_runs_with_names_of_their_own():
    plans = [InspectionPlan("look", {"bad": ONE}, 1.0, ModelSource(), step) for step in STEPS]
    assert len({plan.run for plan in plans}) == len(plans)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"noise": 0}, "noise=0"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"noise": "much"}, "noise='much'"),
        ({"name": ""}, "the name is not empty"),
        ({"onnx": 3}, "are texts"),
        ({"onnx": "ab", "entry_point": "x"}, "expected one model"),
        ({"selections": {}}, "one selection or two"),
        ({"selections": {"a": TABLES[0], "b": TABLES[0], "c": TABLES[0]}}, "one selection or two"),
        ({"selections": {"a": "all"}}, "expected a table"),
        ({"selections": {"a": {**TABLES[0], "criterion": "import os"}}}, "unknown"),
        ({"selections": {"a": {**TABLES[0], "classes": [1]}}}, "weak_slices"),
        ({"step": {"kind": "train"}}, "expected the keys"),
        ({"step": {"kind": "train", "name": "x", "place": 99, "of": [TABLES[0]]}}, "place=99"),
        ({"step": {"kind": "steal", "name": "x", "place": 0, "of": [TABLES[0]]}}, "no such step"),
        ({"step": {"kind": "train", "name": "x", "place": 0, "of": TABLES[:2]}}, "no such step"),
        ({"code": "import os"}, "expected the keys"),
    ],
)
def test_anything_else_is_refused(changes, told):
    given = InspectionPlan("look", {"bad": ONE}, 1.0, ModelSource(), STEPS[0]).to_dict()
    with pytest.raises(BadInput, match=told):
        InspectionPlan.from_dict({**given, **changes})
