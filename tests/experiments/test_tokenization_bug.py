"""The planted bug is what the paper describes, and nothing else changes."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.schema import Schema

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bug():
    place = ROOT / "experiments" / "inspection_text" / "bug.py"
    spec = importlib.util.spec_from_file_location("bug", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


USERS = [[["good", "day", "to", "you"], ["yes"]], [["no", "way"]] * 400]


def test_sentences_are_split_into_tokens_by_user(bug):
    frame = pd.DataFrame({"user": ["a", "b", "a"], "text": ["Good day. Yes", "No", "So what?"]})
    assert bug.sentences_by_user(frame) == [[["good", "day", "."], ["yes"], ["so", "what", "?"]], [["no"]]]


def test_all_or_none_of_the_sentences_are_affected(bug):
    assert bug.with_bug(USERS, 0.0, 1) == USERS
    first, second = bug.with_bug(USERS, 1.0, 1)
    assert first == [["good day", "to", "you"], ["yes"]] and second[0] == ["no way"]


def test_about_the_stated_share_is_affected(bug):
    joined = sum(len(tokens) == 1 for tokens in bug.with_bug(USERS, 0.1, 1)[1])
    assert 15 < joined < 70


def test_a_joined_token_is_unknown_and_keeps_its_space_for_the_model_of_letters(bug):
    schema = Schema(kind="text", vocabulary=("good", "day", "to", "you"), length=4)
    users = bug.with_bug(USERS[:1], 1.0, 1)
    rows = bug.encode_words(bug.beginnings(users, 4)[0], schema)
    np.testing.assert_array_equal(rows.numpy(), [[1, 2, 5, 6, 0], [1, 2, 0, 0, 0]])
    assert bug.unknown_words(users, {"to", "you"}) == [["good day", "yes"]]
