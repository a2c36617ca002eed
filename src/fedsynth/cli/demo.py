"""`make demo`: a private synthetic table from real health records, in minutes, with everything said in words."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from fedsynth.assess.report.public import write_public
from fedsynth.assess.scores.score import Score, save_scores
from fedsynth.assess.scores.utility import CLASSIFIERS, baseline, utility
from fedsynth.cli.exit_codes import ending
from fedsynth.cli.progress import TrainingProgress
from fedsynth.data.clients import clients_from
from fedsynth.data.configuration import read_file
from fedsynth.data.rand_health import hold_out, rand_health
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import write_released
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer

DATA = "rand_health"
EPSILON, DELTA = 1.0, 1e-5
_SHOWN_ROWS = 3
_STEPS = (
    "The server asks which values occur together; each person counts that in their own rows.",
    "Each sends back shares of limited size: somebody with many rows weighs as one.",
    "Only the sum is used, after noise was added to it and its cost was written to a ledger.",
    f"It asks again where it knows least, until a person's budget (epsilon {EPSILON:g}, delta {DELTA:g}) is used.",
    "The distribution that fits all answers makes up people: as many as you like, at no further cost.",
)
_FILES = {
    "synthetic.parquet": "may be published: the synthetic table",
    "generator.safetensors": "may be published: makes more rows",
    "privacy.json": "may be published: the privacy statement",
    "public.html": "may be published: all of this as a page",
    "schema.json": "may be published: the public schema",
    "ledger.jsonl": "every noisy release: what the statement adds up",
    "recipe.toml": "all settings of the run",
    "history.jsonl": "internal: exact cohort sizes",
    "scores.json": "internal: the comparison with real rows",
}


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run; an earlier demo in it is removed.")] = Path(
        "demo-run"
    ),
    rounds: Annotated[int | None, typer.Option(help="Fewer rounds than the recipe's own.")] = None,
    people: Annotated[int | None, typer.Option(help="Take part of the people only.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Make a private synthetic table from the RAND health insurance experiment and judge it.

    Example: python -m fedsynth.cli.demo --rounds 20 --out /tmp/demo-run
    """
    console = Console(highlight=False)
    frame, schema = rand_health()
    assert schema.client is not None
    train, test = hold_out(frame, schema.client, people)
    _remove_earlier(out)
    _introduce(console, train, test, schema)
    synthesizer = _fit(train, schema, out, rounds, quiet)
    rows = synthesizer.sample(len(train))
    write_released(rows, Folder(out), schema)
    write_public(out)
    _section(console, "What is promised to every person")
    _say(console, str(synthesizer.privacy))
    _section(console, "Is it useful?")
    scores = _judge(rows, train, test, schema)
    save_scores(scores, out / "scores.json")
    _show_scores(console, scores, len(rows), schema)
    _section(console, "What it looks like")
    console.print(_rows_beside_schema(rows, schema))
    _section(console, f"Where it is: {out.resolve()}")
    console.print(_files(out))
    real, aside = _write_real(out, train, test)
    for line in (
        f"\nNext: open {out / 'public.html'} in a browser, or",
        f"  fedsynth sample {out} --rows 50000 --out more.csv --condition {schema.label}=yes",
        f"  fedsynth report {out} --real {real} --test {aside}",
    ):
        console.print(line, soft_wrap=True)


def _write_real(out: Path, train: pd.DataFrame, test: pd.DataFrame) -> tuple[Path, Path]:
    """Write the real rows beside the run, for `fedsynth report`; these ones are public."""
    files = out.with_name(f"{out.name}-real.csv"), out.with_name(f"{out.name}-test.csv")
    for file, rows in zip(files, (train, test), strict=True):
        rows.to_csv(file, index=False)
    return files


def _remove_earlier(out: Path) -> None:
    """Clear the folder if it holds an earlier demo; leave anything else alone."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    recipe = Folder(out).recipe
    if recipe.is_file() and read_file(recipe).get("data") == DATA:
        shutil.rmtree(out)
        return
    raise BadInput(f"{out}: exists and is not an earlier demo; move it away or choose another --out")


def _introduce(console: Console, train: pd.DataFrame, test: pd.DataFrame, schema: Schema) -> None:
    persons, kept_aside = train[schema.client].nunique(), test[schema.client].nunique()
    console.rule("[bold]fedsynth: one synthetic table out of many private ones")
    _say(
        console,
        f"These are {persons + kept_aside:,} people of the RAND health insurance experiment, over up to five years. "
        "Every person keeps their own rows, as a hospital or a phone would. Nobody collects them. "
        f"{kept_aside:,} people are kept aside for the test at the end; with the other {persons:,} this happens now:",
    )
    steps = Table(box=None, padding=(0, 1), show_header=False)
    for number, step in enumerate(_STEPS, start=1):
        steps.add_row(f"{number}.", step)
    console.print(Padding(steps, (1, 1)))


def _fit(train: pd.DataFrame, schema: Schema, out: Path, rounds: int | None, quiet: bool) -> Synthesizer:
    """A real private run: without a seed, so that the noise comes from the operating system."""
    request = Request(
        data=DATA,
        client_column=schema.client,
        label=schema.label,
        epsilon=EPSILON,
        delta=DELTA,
        rounds=rounds,
    )
    clients = clients_from(train, client_column=schema.client)
    synthesizer = Synthesizer.of(request, schema)
    with TrainingProgress(EPSILON, quiet=quiet) as watch:
        return synthesizer.fit(clients, folder=out, watch=watch)


def _judge(rows: pd.DataFrame, train: pd.DataFrame, test: pd.DataFrame, schema: Schema) -> list[Score]:
    real = train.drop(columns=schema.client)
    return utility(rows, test, schema, baseline(real, test, schema, seeds=(0,)))


def _show_scores(console: Console, scores: list[Score], rows: int, schema: Schema) -> None:
    _say(
        console,
        f"Who sees a doctor this year (the column {schema.label})? Classifiers learn it from {rows:,} synthetic rows, "
        "or from the real rows, and are tested on the real people that were kept aside.\n",
    )
    by_name = {score.name: score for score in scores}
    table = Table(box=None, padding=(0, 2))
    table.add_column("\nclassifier", no_wrap=True)
    for heading in ("accuracy\nsynthetic", "\nreal", "AUC\nsynthetic", "\nreal"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in CLASSIFIERS:
        cells = []
        for measure in ("accuracy", "auc"):
            score = by_name[f"{name}: {measure}"]
            cells += [_number(score.value), _number(score.detail["train_on_real"])]
        table.add_row(name, *cells)
    guess = _number(by_name["gradient boosting: accuracy"].detail["majority"])
    table.add_row("always the same answer", guess, guess, "0.500", "0.500", style="dim")
    console.print(table)
    for reason in dict.fromkeys(score.failed for score in scores if score.failed):
        _say(console, f"\nFailed: {reason}.")
    _say(console, _carried(by_name["gradient boosting: auc"]))


def _carried(area: Score) -> str:
    """How much of what real rows teach the synthetic ones teach, in one sentence."""
    real = area.detail["train_on_real"]
    if area.value is None or real <= 0.5:
        return ""
    share = max(0.0, (area.value - 0.5) / (real - 0.5))
    return f"\nBy gradient boosting's AUC, the synthetic rows teach {share:.0%} of what the real rows teach."


def _number(value: float | None) -> str:
    return "failed" if value is None else f"{value:.3f}"


def _rows_beside_schema(rows: pd.DataFrame, schema: Schema) -> Table:
    table = Table("column", "allowed by the schema", box=None, padding=(0, 1))
    for number in range(_SHOWN_ROWS):
        table.add_column(f"row {number + 1}", justify="right")
    for column in schema.columns:
        values = rows[column.name].iloc[:_SHOWN_ROWS]
        table.add_row(column.name, column.allowed(99), *("-" if pd.isna(v) else f"{v}" for v in values))
    return table


def _files(out: Path) -> Table:
    table = Table(box=None, padding=(0, 2), show_header=False)
    for name, meaning in _FILES.items():
        if (out / name).exists():
            table.add_row(name, meaning)
    return table


def _say(console: Console, text: str) -> None:
    if text:
        console.print(Padding(text, (0, 2)))


def _section(console: Console, title: str) -> None:
    console.print(f"\n[bold]{title}[/bold]\n")


def main(arguments: list[str] | None = None) -> None:
    """Run the demo; it ends as every command does."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(demo)
    torch.set_num_threads(1)  # steps this small cost several times more on two threads when a core is busy
    with ending():
        app(args=arguments)


if __name__ == "__main__":
    main()
