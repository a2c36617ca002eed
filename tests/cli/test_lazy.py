"""What is declared of a command, and the function that does its work."""

import inspect
import json
import subprocess
import sys
from importlib import import_module
from typing import get_type_hints

import pytest
import typer

from fedsynth.assess.attacks.shadow_game import MINUTES
from fedsynth.cli.main import app
from fedsynth.cli.run import DEFAULT_ROWS

HEAVY = ["torch", "numpy", "pandas", "scipy", "sklearn", "dp_accounting", "nvflare", "matplotlib", "rich"]
PRINTED = (
    "import json, sys; print(json.dumps([name for name in json.loads(sys.argv[1]) if name in sys.modules]))"
)


def leaves(command, before=()):
    """Every command below this one, by its words."""
    below = getattr(command, "commands", None)
    if below is None:
        return {before: command}
    return {words: leaf for name, c in below.items() for words, leaf in leaves(c, (*before, name)).items()}


COMMANDS = leaves(typer.main.get_command(app))


def door(command):
    """The declared function behind a command, and the one that works for it."""
    declared = inspect.unwrap(command.callback, stop=lambda f: "file" in f.__code__.co_freevars)
    place = inspect.getclosurevars(declared).nonlocals
    return declared.__wrapped__, getattr(import_module(f"fedsynth.cli.{place['file']}"), place["name"])


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_and_its_work_take_the_same_arguments(words):
    declared, work = door(COMMANDS[words])
    assert list(inspect.signature(declared).parameters) == list(inspect.signature(work).parameters)
    assert get_type_hints(declared) == get_type_hints(work)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_defaults_are_written_once(words):
    _, work = door(COMMANDS[words])
    given = [p.name for p in inspect.signature(work).parameters.values() if p.default is not p.empty]
    assert given == []


def test_help_imports_nothing_heavy():
    asked = [["--help"], *([*words, "--help"] for words in COMMANDS)]
    script = (
        "import contextlib, io, json, sys\n"
        "from fedsynth.cli.main import main\n"
        "for words in json.loads(sys.argv[2]):\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        main(words)\n" + PRINTED
    )
    words = [sys.executable, "-c", script, json.dumps(HEAVY), json.dumps(asked)]
    assert json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout) == []


@pytest.mark.parametrize(("words", "told"), [(("run",), DEFAULT_ROWS), (("report",), int(MINUTES))])
def test_the_help_tells_the_default_that_is_used(words, told):
    texts = [parameter.help for parameter in COMMANDS[words].params if getattr(parameter, "help", None)]
    assert any(f"(default {told})" in text for text in texts)
