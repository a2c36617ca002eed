"""Texts in and out of symbols."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.data.clients import encode_clients
from fedsynth.data.schema import Schema
from fedsynth.data.text import START, UNKNOWN, Text, read_texts, text_clients_from, words_of
from fedsynth.errors import BadInput

BYTES = Schema(kind="text", vocabulary="bytes", length=8)
WORDS = Schema(kind="text", vocabulary=("a", "cat", "sat", "."), length=3)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_bytes_come_back_as_they_went_in(text):
    encoding = Text(Schema(kind="text", vocabulary="bytes", length=120))
    assert encoding.texts(encoding.encode([text])[0]) == [text]


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab .\n", max_size=60))
def test_no_word_is_lost_in_cutting(text):
    pieces = list(Text(WORDS).pieces(text))
    assert [word for piece in pieces for word in words_of(piece)] == words_of(text)
    assert all(len(words_of(piece)) <= 3 for piece in pieces)


def test_a_word_outside_the_vocabulary_is_unknown():
    rows = Text(WORDS).encode(["a dog sat"])[0]
    assert rows.tolist() == [[START, 3, UNKNOWN, 5]]
    assert Text(WORDS).texts(rows) == ["a UNK sat"]


def test_there_are_258_symbols_of_bytes():
    assert Text(BYTES).symbols == 258


def test_pieces_stay_with_their_owner():
    raw = text_clients_from(["a cat sat. a cat", "sat"], WORDS, owners=np.array(["x", "y"]))
    clients = encode_clients(raw, WORDS)
    assert clients.sizes.tolist() == [3, 1] and raw.data[-1] == "sat"


def written(path, lines):
    with gzip.open(path, "wb") as file:
        file.write(b"\n".join(lines))
    return path


def test_json_lines_are_read_and_empty_posts_left_out(tmp_path):
    rows = [{"user": "a", "text": "hello"}, {"user": "b", "text": "  "}, {"user": "b", "text": "there"}]
    path = written(tmp_path / "posts.jsonl.gz", [json.dumps(row).encode() for row in rows])
    assert read_texts(path, "text", "user")["text"].tolist() == ["hello", "there"]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([b'{"user": "a", "text": "\xff"}'], "line 1 is not UTF-8"),
        ([b'{"user": "a", "text": "x"}', b"no"], "line 2 is not JSON"),
        ([b"[1]"], "line 1 is not an object"),
        ([b'{"user": "a", "words": "x"}'], "no column 'text'"),
        ([b'{"user": "a", "text": 7}'], "something other than text"),
        ([b'{"user": "a", "text": ""}'], "no text in any row"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, lines, problem):
    with pytest.raises(BadInput, match=problem):
        read_texts(written(tmp_path / "posts.jsonl.gz", lines), "text", "user")


@pytest.mark.parametrize("keys", [{"vocabulary": ("a", "a")}, {"vocabulary": "bytes", "length": 0}])
def test_a_bad_text_schema_is_refused(keys):
    with pytest.raises(BadInput, match="listed twice|length=0"):
        Schema(kind="text", **keys)
