"""`fedsynth`: every command, and how errors become one sentence and an exit code."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from fedsynth.cli import (
    account,
    audit,
    compare,
    evaluate,
    experiment,
    federation,
    inspect,
    keys,
    ledger,
    plan,
    recipes,
    report,
    run,
    schema,
    site,
    try_out,
    tune,
    view,
)
from fedsynth.errors import FedsynthError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedsynth {version('fedsynth')}")
        raise typer.Exit


@app.callback()
def _everywhere(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Make one synthetic data set together, with a privacy statement that is true."""


run.register(app)
recipes.register(app)
app.add_typer(schema.app)
try_out.register(federation.app)
app.add_typer(federation.app)
app.add_typer(site.app)
keys.register(app)
account.register(app)
plan.register(app)
ledger.register(app)
audit.register(app)
experiment.register(app)
evaluate.register(app)
inspect.register(app)
report.register(app)
compare.register(app)
tune.register(app)
view.register(app)

REFUSED = 2


def main(arguments: list[str] | None = None) -> None:
    """Run a command: 0 done, 1 a check failed, 2 bad input or refused, 3 interrupted and resumable."""
    try:
        app(args=arguments)
    except FedsynthError as error:
        print(f"fedsynth: {error}", file=sys.stderr)
        sys.exit(REFUSED)
    except OSError as error:
        print(f"fedsynth: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
