"""The schema of texts from the command line."""

import json

import pytest

from fedsynth.cli.main import main
from fedsynth.data.schema import Schema
from fedsynth.errors import NotPrivate
from fedsynth.synthesis.inputs import schema_of
from fedsynth.synthesis.request import Request


@pytest.fixture
def posts(tmp_path):
    lines = [{"user": f"u{number}", "text": "the cat sat"} for number in range(300)]
    path = tmp_path / "posts.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def call(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["schema", "text", *map(str, words)])
    told = capsys.readouterr()
    return ended.value.code or 0, told.out + told.err


def test_paid_words_leave_their_cost_beside_the_schema(posts, tmp_path, capsys):
    out = tmp_path / "schema.json"
    code, told = call(capsys, posts, "--client-column", "user", "--pay", "epsilon=4", "--out", out)
    assert code == 0 and "3 words (paid for)" in told
    assert set(Schema.load(out).vocabulary) == {"the", "cat", "sat"}
    assert (tmp_path / "schema.ledger.jsonl").exists()
    other = Request("dp_fedavg_lm", schema=str(out), client_column="thread", epsilon=8.0, delta=1e-5)
    with pytest.raises(NotPrivate, match="'user' paid for the schema"):
        schema_of(other)
    assert schema_of(other.changed(client_column="user")).client == "user"


def test_a_public_file_needs_no_texts(tmp_path, capsys):
    (tmp_path / "words.txt").write_text("The\nof\n,\nthe\n")
    out = tmp_path / "schema.json"
    code, told = call(capsys, "--vocabulary", tmp_path / "words.txt", "--length", 7, "--out", out)
    assert code == 0 and "3 words (public" in told
    assert Schema.load(out).vocabulary == ("the", "of", ",") and Schema.load(out).length == 7


def test_bytes_are_public(tmp_path, capsys):
    assert call(capsys, "--vocabulary", "bytes", "--out", tmp_path / "s.json")[0] == 0
    assert Schema.load(tmp_path / "s.json").vocabulary == "bytes"


def test_words_read_off_the_texts_are_inferred_and_a_private_run_refuses_them(posts, tmp_path, capsys):
    out = tmp_path / "schema.json"
    assert "inferred" in call(capsys, posts, "--out", out)[1]
    with pytest.raises(SystemExit) as ended:
        main(
            ["run", str(posts), "--schema", str(out), "--client-column", "user", "--recipe", "dp_fedavg_lm"]
            + ["--epsilon", "8", "--delta", "1e-4", "--rounds", "1", "--out", str(tmp_path / "RUN")]
        )
    assert ended.value.code == 2 and "columns vocabulary" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "FILE: name the texts"),
        (["POSTS", "--pay", "epsilon=1"], "--client-column"),
        (["POSTS", "--pay", "epsilon=1", "--vocabulary", "bytes"], "choose one"),
        (["--vocabulary", "TWO"], "'two words' is not a single word"),
        (["--vocabulary", "LATIN"], "is not UTF-8"),
        (["--vocabulary", "missing.txt"], "cannot be read"),
    ],
)
def test_what_cannot_be_is_one_sentence(posts, tmp_path, capsys, words, problem):
    (tmp_path / "two.txt").write_text("one\ntwo words\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    places = {"POSTS": posts, "TWO": tmp_path / "two.txt", "LATIN": tmp_path / "latin.txt"}
    code, told = call(capsys, *(places.get(word, word) for word in words), "--out", tmp_path / "s.json")
    assert code == 2 and problem in told and not (tmp_path / "s.json").exists()
