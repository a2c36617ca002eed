import subprocess
import sys
from importlib.metadata import version

import pytest
import typer

from fedsynth.cli.main import app, main


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    told = capsys.readouterr()
    return ended.value.code or 0, told.out, told.err


def words_of(command, before=()):
    """The words of every command below this one."""
    below = getattr(command, "commands", None)
    return [before] if below is None else [w for n, c in below.items() for w in words_of(c, (*before, n))]


COMMANDS = words_of(typer.main.get_command(app))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command, capsys):
    code, told, _ = call(capsys, *command, "--help")
    assert code == 0 and "Example: fedsynth" in " ".join(told.split())


@pytest.mark.parametrize("word", ["--epsilonn", "--no-such-thing"])
def test_an_unknown_option_is_refused(word, capsys):
    code, told, errors = call(capsys, "run", word, "3")
    assert code == 2 and told == "" and word in errors


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code and capsys.readouterr().out == f"fedsynth {version('fedsynth')}\n"


def test_an_unknown_command_is_refused(capsys):
    assert call(capsys, "runn")[0] == 2


def test_the_installed_command_reports_a_refusal_without_a_traceback(tmp_path):
    words = [
        sys.executable,
        "-m",
        "fedsynth.cli.main",
        "sample",
        str(tmp_path),
        "--rows",
        "1",
        "--out",
        "x.csv",
    ]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("fedsynth: ") and done.stderr.count("\n") == 1


def test_the_program_says_what_it_is_for(capsys):
    assert "privacy statement that is true" in call(capsys, "--help")[1]


SERVICES = {("view",), ("federation", "serve"), ("federation", "try"), ("site", "start")}


@pytest.mark.parametrize("command", [words for words in COMMANDS if words not in SERVICES], ids=" ".join)
def test_every_command_that_prints_results_can_print_json(command, capsys):
    assert "--json" in call(capsys, *command, "--help")[1]
