"""`fedsynth`: every command, each declared in the file of its name."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedsynth.cli import federation, keys, ledger, schema, site
from fedsynth.cli.account import account
from fedsynth.cli.audit import audit
from fedsynth.cli.compare import compare
from fedsynth.cli.evaluate import evaluate
from fedsynth.cli.exit_codes import Code, ending, stop_gently
from fedsynth.cli.flags import option
from fedsynth.cli.inspect import inspect
from fedsynth.cli.output import with_examples
from fedsynth.cli.plan import plan
from fedsynth.cli.recipes import recipes
from fedsynth.cli.report import report
from fedsynth.cli.run import run
from fedsynth.cli.sample import sample
from fedsynth.cli.tune import tune
from fedsynth.cli.view import view
from fedsynth.errors import BadInput

_CODES = (
    "Exit codes: 0 done; 1 a check failed; 2 bad input or refused; 3 interrupted, and can be resumed; "
    "70 an internal error."
)


class _Commands(TyperGroup):
    def __init__(self, *declared: Any, **more: Any) -> None:
        super().__init__(*declared, **more)
        _keep_examples_whole(self)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; leave quietly if nobody reads its output any more."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # python's last flush must not fail over it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(Code.UNREAD) from None


def _keep_examples_whole(command: Any) -> None:
    command.help = with_examples(command.help or "")
    for inner in getattr(command, "commands", {}).values():
        _keep_examples_whole(inner)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=_CODES,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"fedsynth {version('fedsynth')}")
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool, option("Show the version and exit.", "--version", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, option("Before a command: show where in the code an error arose.", "--debug")
    ] = False,
) -> None:
    """Make one synthetic data set together, with a privacy statement that is true."""


_words = typer.Typer()
for command in (
    run, sample, recipes, tune, account, plan, audit, evaluate, report, compare, view, inspect,
):  # fmt: skip
    _words.command()(command)
for words in (_words, schema.app, federation.app, site.app, keys.app, ledger.app):
    app.add_typer(words)
if find_spec("fedsynth.cli.experiment"):  # in a checkout alone
    from fedsynth.cli import experiment

    app.add_typer(experiment.app)
else:

    @_words.command("experiment", hidden=True, context_settings={"ignore_unknown_options": True})
    def _experiment(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        raise BadInput(
            "experiments are not part of the installed package; run them from a checkout of the project: make install"
        )


def main(arguments: list[str] | None = None) -> None:
    """Run a command; `cli/exit_codes.py` has the exit codes."""
    if arguments is None:  # a process of its own
        stop_gently()
    words = sys.argv[1:] if arguments is None else arguments
    with ending(debug=words[:1] == ["--debug"]):
        app(args=words)


if __name__ == "__main__":
    main()
