"""Reviewing a drafted schema: answers from standard input, from a terminal, and without any questions."""

import io
import json
import os
import pty
import sys

import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.data.review import accepted_in
from fedsynth.data.schema import Schema


@pytest.fixture
def drafted(tmp_path):
    rows = pd.DataFrame({"age": [18, 44, 91], "stay": [0.5, 3.25, 37.0], "sex": ["F", "M", "F"]})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    Schema.draft(rows).save(tmp_path / "schema.json")
    return tmp_path


def review(folder, *flags, answers=None, monkeypatch=None):
    if answers is not None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(answers))
    with pytest.raises(SystemExit) as stopped:
        main(["schema", "review", str(folder / "schema.json"), *flags])
    return stopped.value.code or 0


def test_each_line_of_standard_input_answers_one_column(drafted, monkeypatch, capsys):
    assert review(drafted, answers="0 to 110\n\n+ X\n", monkeypatch=monkeypatch) == 0
    schema = Schema.load(drafted / "schema.json")
    assert [column.allowed() for column in schema.columns] == ["0 to 110", "0 to 50 (2 decimals)", "F, M, X"]
    assert set(schema.provenance.values()) == {"public"} and schema.column("sex").type == "categorical"
    printed = capsys.readouterr().out
    assert "Nothing is inferred any more." in printed
    assert f"Next: fedsynth run FILE --schema {drafted / 'schema.json'} --epsilon 1 --out RUN" in printed


def test_the_end_of_the_input_keeps_what_was_answered(drafted, monkeypatch, capsys):
    assert review(drafted, answers="k\n", monkeypatch=monkeypatch) == 0
    schema = Schema.load(drafted / "schema.json")
    assert schema.inferred() == ("stay", "sex") and schema.column("age").bounds == (18, 91)
    assert "Still inferred: stay, sex." in capsys.readouterr().out


def test_one_can_skip_drop_and_go_back(drafted, monkeypatch):
    assert review(drafted, answers="s\nd\nb\nk\nk\n", monkeypatch=monkeypatch) == 0
    schema = Schema.load(drafted / "schema.json")
    assert schema.inferred() == ("age",) and schema.column("stay").bounds == (0.5, 37.0)


def test_answers_that_the_rows_do_not_fit_are_refused_and_nothing_is_written(drafted, monkeypatch, capsys):
    before = (drafted / "schema.json").read_text()
    rows = str(drafted / "rows.csv")
    assert review(drafted, rows, answers="0 to 50\n", monkeypatch=monkeypatch) == 2
    assert "1 of 3 rows lie outside 0 to 50" in capsys.readouterr().err
    assert (drafted / "schema.json").read_text() == before


@pytest.mark.parametrize("answer", ["about forty", "0 to many", "90 to 10"])
def test_an_answer_that_is_none_says_what_was_expected(drafted, monkeypatch, capsys, answer):
    assert review(drafted, answers=f"{answer}\n", monkeypatch=monkeypatch) == 2
    assert "column 'age'" in capsys.readouterr().err


def test_the_list_asks_and_writes_nothing(drafted, capsys):
    before = (drafted / "schema.json").read_text()
    assert review(drafted, "--list", "--json") == 0
    age, *_ = json.loads(capsys.readouterr().out)["inferred"]
    assert (age["inferred"]["max"], age["proposal"]["max"]) == (91, 120)
    assert (drafted / "schema.json").read_text() == before


def test_accept_all_takes_every_proposal(drafted):
    assert (
        review(drafted, str(drafted / "rows.csv"), "--accept-all", "--out", str(drafted / "public.json")) == 0
    )
    public = Schema.load(drafted / "public.json")
    assert public.inferred() == () and public.column("age").bounds == (0, 120)
    assert accepted_in(public) == ("age", "stay", "sex")  # and not public: nobody was asked
    assert Schema.load(drafted / "schema.json").inferred() == ("age", "stay", "sex")


def test_a_terminal_is_asked_again_after_a_wrong_answer(drafted, monkeypatch, capsys):
    ours, theirs = pty.openpty()
    os.write(ours, b"old\n0 to 99\nq\n")
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        assert review(drafted) == 0
    os.close(ours)
    captured = capsys.readouterr()
    assert captured.err.count("1/3  age") == 2 and "gives no bounds" in captured.err
    assert "1 column reviewed" in captured.out
    assert Schema.load(drafted / "schema.json").column("age").bounds == (0, 99)
