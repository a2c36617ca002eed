import fcntl
import os
import pty
import struct
import termios

import pytest
import typer

from fedsynth.cli.main import app, main
from fedsynth.cli.output import fold, for_reader, with_examples

LONG = (
    "  workclass: categorical, "
    + ", ".join(f"Self-employed-{i}" for i in range(9))
    + "\nshort  and  as it was"
)


@pytest.fixture
def terminal():
    """A real terminal of 40 columns, to write to."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(theirs, "w") as stream:
        yield stream
    os.close(ours)


def test_a_terminal_gets_no_line_that_it_would_break(terminal):
    lines = for_reader(LONG, terminal).split("\n")
    assert max(map(len, lines)) <= 40 and len(lines) > 4
    assert " ".join(" ".join(lines).split()) == " ".join(LONG.split())  # no word is broken, none is lost
    assert lines[-1] == "short  and  as it was" and lines[1].startswith("    Self")


def test_a_script_gets_lines_whole(tmp_path):
    with (tmp_path / "log").open("w") as stream:
        assert for_reader(LONG, stream) == LONG


def test_a_word_that_is_too_long_stays_whole():
    assert fold("see /a/very/long/path.html now", 10) == "see\n/a/very/long/path.html\nnow"


def test_an_example_can_be_copied():
    text = 'Words.\n\nExample: fedsynth run some.csv --client-column "patient id" --out RUN\n\nWords.'
    first, example, last = with_examples(text, 40).split("\n\n")
    assert (first, last) == ("Words.", "Words.")
    assert example == (
        '\b\nExample: fedsynth run some.csv \\\n    --client-column "patient id" \\\n    --out RUN'
    )


def groups(command, words=()):
    inner = getattr(command, "commands", {})
    return [words] * bool(inner) + [
        found for name, one in inner.items() for found in groups(one, (*words, name))
    ]


@pytest.mark.parametrize("words", groups(typer.main.get_command(app)), ids=" ".join)
def test_the_list_of_commands_fits_in_80_columns(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    lines = capsys.readouterr().out.split("\n")
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.endswith("...") and "Usage" not in line] == []
