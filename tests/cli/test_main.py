import subprocess
import sys

import pytest

from fedsynth.cli.main import app, main


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    told = capsys.readouterr()
    return ended.value.code or 0, told.out, told.err


COMMANDS = [
    ["run"], ["sample"], ["recipes"], ["account"], ["schema", "draft"], ["schema", "check"], ["ledger", "show"],
    ["ledger", "verify"],
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command, capsys):
    code, told, _ = call(capsys, *command, "--help")
    assert code == 0 and "Example: fedsynth" in " ".join(told.split())


@pytest.mark.parametrize("word", ["--epsilonn", "--no-such-thing"])
def test_an_unknown_option_is_refused(word, capsys):
    code, told, errors = call(capsys, "run", word, "3")
    assert code == 2 and told == "" and word in errors


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


def test_the_program_has_a_name():
    assert app.info.help
