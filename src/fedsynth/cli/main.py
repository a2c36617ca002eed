"""`fedsynth`: every command, and how it ends."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fedsynth.cli.commands import (
    cost,
    experiment,
    federation,
    inspect,
    judging,
    keys,
    ledger,
    making,
    schema,
    site,
)
from fedsynth.cli.exit_codes import ending

_CODES = (
    "Exit codes: 0 done; 1 a check failed; 2 bad input or refused; 3 interrupted, and can be resumed; "
    "70 a bug in fedsynth."
)
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=_CODES,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"fedsynth {version('fedsynth')}")
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Before a command: show where in the code an error arose.")
    ] = False,
) -> None:
    """Make one synthetic data set together, with a privacy statement that is true."""


for part in (making, cost, judging, inspect, schema, federation, site, keys, ledger, experiment):
    app.add_typer(part.app)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; `cli/exit_codes.py` has the exit codes."""
    given = sys.argv[1:] if arguments is None else arguments
    with ending(debug=given[:1] == ["--debug"]):
        app(args=given)


if __name__ == "__main__":
    main()
