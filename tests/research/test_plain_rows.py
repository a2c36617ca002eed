import json

import pytest

from fedsynth.research.plain_rows import measured, write_rows


def test_lines_come_from_lists_and_from_files_of_lines_in_the_order_asked_for(tmp_path):
    (tmp_path / "b.json").write_text(json.dumps([{"seed": 1}, {"seed": 2}]))
    (tmp_path / "a.jsonl").write_text('{"seed": 3}\n{"seed": 4}\n')
    assert [line["seed"] for line in measured(tmp_path, "b*", "a*", "missing*")] == [1, 2, 3, 4]


def test_a_file_that_holds_no_lines_is_named(tmp_path):
    (tmp_path / "odd.json").write_text('{"seed": 1}')
    with pytest.raises(ValueError, match=r"odd\.json: expected a list"):
        measured(tmp_path, "*")


def test_rows_replace_those_that_were_there_and_leave_measurements_alone(tmp_path):
    (tmp_path / "runs.jsonl").write_text('{"seed": 1}\n')
    write_rows(tmp_path, [{"epsilon": "1"}, {"epsilon": "2"}, {"epsilon": "4"}])
    write_rows(tmp_path, [{"epsilon": "8"}], "seen")
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert found == [{"layout": "plain", "order": 0, "cells": {"epsilon": "8"}, "note": "seen"}]
    assert measured(tmp_path, "runs*") == [{"seed": 1}]
