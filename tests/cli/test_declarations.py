"""Commands as they are declared: their help is quick, their flags stand once and mean what they say."""

import json
import subprocess
import sys
from dataclasses import fields

import pytest
import typer

from fedsynth.assess.attacks.shadow_game import MINUTES
from fedsynth.cli.main import app
from fedsynth.data.schema import Schema
from fedsynth.synthesis.request import ROWS, Request
from samples import TABLE

HEAVY = ["torch", "numpy", "pandas", "scipy", "sklearn", "dp_accounting", "nvflare", "matplotlib", "rich"]
PRINTED = (
    "import json, sys; print(json.dumps([name for name in json.loads(sys.argv[1]) if name in sys.modules]))"
)
NO_FLAG = {"split_seed", "arguments", "chosen"}  # drawn by the run itself; --set
OTHER_NAME = {"private": "no_privacy"}


def leaves(command, before=()):
    """Every command below this one, by its words."""
    below = getattr(command, "commands", None)
    if below is None:
        return {before: command}
    return {words: leaf for name, c in below.items() for words, leaf in leaves(c, (*before, name)).items()}


COMMANDS = leaves(typer.main.get_command(app))


def test_help_imports_nothing_heavy():
    pages = [["--help"], *([*words, "--help"] for words in COMMANDS)]
    script = (
        "import contextlib, io, json, sys\n"
        "from fedsynth.cli.main import main\n"
        "for words in json.loads(sys.argv[2]):\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        main(words)\n" + PRINTED
    )
    words = [sys.executable, "-c", script, json.dumps(HEAVY), json.dumps(pages)]
    assert json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout) == []


@pytest.mark.parametrize(("words", "told"), [(("run",), ROWS), (("report",), int(MINUTES))])
def test_the_help_tells_the_default_that_is_used(words, told):
    texts = [parameter.help for parameter in COMMANDS[words].params if getattr(parameter, "help", None)]
    assert any(f"(default {told})" in text for text in texts)


def test_run_has_a_flag_for_each_field_of_a_request():
    names = {OTHER_NAME.get(item.name, item.name) for item in fields(Request) if item.name not in NO_FLAG}
    assert names <= {parameter.name for parameter in COMMANDS["run",].params}


def test_a_flag_that_was_left_out_leaves_the_default_to_the_request():
    """A default of the flag would go before the file that --config names."""
    names = {OTHER_NAME.get(item.name, item.name) for item in fields(Request)}
    flags = [parameter for words in ("run", "tune") for parameter in COMMANDS[words,].params]
    assert {flag.default for flag in flags if flag.name in names} == {None, False}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_flag_has_help_and_every_command_an_example(words):
    command = COMMANDS[words]
    assert "Example: fedsynth" in command.help
    assert [flag.name for flag in command.params if flag.name != "help" and not flag.help] == []


def test_a_plan_does_not_wait_for_libraries_that_it_does_not_need(tmp_path):
    Schema.from_dict(TABLE).save(tmp_path / "schema.json")
    people = ["--clients", "1000", "--records", "2000", "--epsilon", "1", "--recipe", "auto", "--json"]
    script = (
        "import contextlib, io, json, sys\n"
        "from fedsynth.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main(json.loads(sys.argv[2]))\n"
        "assert 'fedsynth.recipes.marginals' in sys.modules\n" + PRINTED
    )
    late = json.dumps(
        ["pandas", "pyarrow", "scipy.optimize", "scipy.signal", "scipy.stats", "sklearn", "duckdb"]
    )
    plan = json.dumps(["plan", "--schema", str(tmp_path / "schema.json"), *people])
    words = [sys.executable, "-c", script, late, plan]
    assert json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout) == []
