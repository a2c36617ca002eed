"""Exit codes, and what is said of an error that nobody foresaw."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedsynth.cli.exit_codes import Code, ending
from fedsynth.cli.main import main
from fedsynth.errors import BadInput, FedsynthError, NotPrivate


def end(capsys, error, debug=False):
    with pytest.raises(SystemExit) as ended, ending(debug):
        raise error
    told = capsys.readouterr()
    assert told.out == ""
    return ended.value.code, told.err


@pytest.fixture(autouse=True)
def traces(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_codes_are_those_that_scripts_rely_on():
    assert [int(code) for code in Code] == [0, 1, 2, 3, 70, 141]


@pytest.mark.parametrize("error", [BadInput("age: no"), NotPrivate("age: no"), FedsynthError("age: no")])
def test_a_refusal_is_one_sentence(error, capsys, traces):
    assert end(capsys, error) == (2, "fedsynth: age: no\n")
    assert list(traces.iterdir()) == []


def test_a_file_that_cannot_be_opened_is_named(capsys):
    missing = FileNotFoundError(2, "No such file or directory", "rows.csv")
    assert end(capsys, missing) == (2, "fedsynth: rows.csv: No such file or directory\n")
    assert end(capsys, OSError("the port is taken")) == (2, "fedsynth: the port is taken\n")


def test_a_bug_says_that_it_is_one_and_keeps_its_trace_for_its_owner(capsys, traces):
    code, told = end(capsys, KeyError("epsilon"))
    assert code == 70 and "an internal error" in told and "KeyError: 'epsilon'" in told
    assert "Traceback" not in told
    (kept,) = traces.iterdir()
    assert str(kept) in told and "Traceback" in kept.read_text() and __file__ in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes")]
)
def test_a_machine_that_is_too_small_is_no_bug(error, capsys, traces):
    code, told = end(capsys, error)
    assert code == 2 and told.startswith("fedsynth: out of memory") and "--set" in told
    assert list(traces.iterdir()) == []


def test_with_debug_the_trace_is_shown_and_nothing_is_written(capsys, traces):
    code, told = end(capsys, KeyError("epsilon"), debug=True)
    assert code == 70 and "Traceback" in told and list(traces.iterdir()) == []
    assert "Traceback" in end(capsys, BadInput("age: no"), debug=True)[1]


def test_a_trace_that_cannot_be_kept_can_be_had_again(capsys, traces, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(Path(traces) / "nowhere"))
    assert "fedsynth --debug" in end(capsys, KeyError("epsilon"))[1]


def test_the_program_shows_traces_only_when_asked(capsys):
    asked = ["ledger", "show", "no-such-run"]
    for words, shown in ((asked, False), (["--debug", *asked], True)):
        with pytest.raises(SystemExit) as ended:
            main(words)
        told = capsys.readouterr().err
        assert ended.value.code == 2 and ("Traceback" in told) is shown


def test_output_that_nobody_reads_is_no_failed_check():
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "fedsynth.cli.main", "recipes"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
