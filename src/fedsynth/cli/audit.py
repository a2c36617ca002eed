"""The command `fedsynth audit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
import typer

from fedsynth.cli.flags import AsJson, Quiet, settings_in
from fedsynth.cli.step_progress import StepProgress
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.evaluation.audit import Audit
from fedsynth.evaluation.audit_setup import Setup, write_audit
from fedsynth.privacy.statement import Statement
from fedsynth.recipes.budget import Target
from fedsynth.recipes.registry import RECIPES
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder

EXCEEDED = 1  # exit code: a check failed


def register(app: typer.Typer) -> None:
    """Add the command to the main one."""
    app.command()(audit)


def audit(
    what: Annotated[str, typer.Argument(metavar="RUN|RECIPE", help="A finished run's folder, or a recipe.")],
    unit: Annotated[
        str | None, typer.Option(help="client or record; must be the one that is claimed.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="For a recipe: the claim to calibrate to.")] = 8.0,
    delta: Annotated[float, typer.Option(help="For a recipe: the claim's delta.")] = 1e-5,
    rounds: Annotated[int | None, typer.Option(help="For a recipe: rounds of training.")] = None,
    schema: Annotated[Path | None, typer.Option(help="For a recipe: schema of the made-up rows.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For a recipe: an argument.")
    ] = None,
    canaries: Annotated[int, typer.Option(help="Participants of each run that try to be found.")] = 1000,
    runs: Annotated[int, typer.Option(help="Trainings; more of them prove more.")] = 8,
    confidence: Annotated[float, typer.Option(help="How sure the lower bound is.")] = 0.99,
    seed: Annotated[int | None, typer.Option(help="Make it repeatable; real audits use fresh noise.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Attack a run's settings and print how much privacy is lost at least, beside what is claimed.

    The recipe is trained on made-up rows that fit the schema, never on real ones, with canaries that try to be
    found in what is released. Exits with 1 if the lower bound is above the claim. For a run, the result goes into
    its privacy.json.

    Example: fedsynth audit RUN --json
    """
    torch.set_num_threads(1)  # the steps of small models are too small to share
    folder = _run_folder(what)
    setup = _setup(what, folder, Target(epsilon, delta, rounds), set_ or [], schema)
    setup.check_unit(unit)
    with StepProgress(quiet=quiet) as progress:
        found = setup.run(
            canaries,
            runs,
            confidence,
            None if seed is None else Rng(seed),
            lambda done, total: progress("rounds with canaries", done, total),
        )
    statement = write_audit(folder, found) if folder else None
    typer.echo(json.dumps(found.to_dict()) if as_json else _told(found, statement))
    if found.exceeds:
        raise typer.Exit(EXCEEDED)


def _run_folder(what: str) -> Path | None:
    """The run's folder; None if a recipe is named."""
    folder = Path(what)
    if what in RECIPES and not Folder(folder).recipe.exists():
        return None
    if not folder.is_dir():
        raise BadInput(
            f"{what}: no such run, and no such recipe; {nearest(what, RECIPES)}, or the folder of a finished run"
        )
    return folder


def _setup(what: str, folder: Path | None, target: Target, settings: list[str], schema: Path | None) -> Setup:
    if folder:
        return Setup.of_run(folder)
    arguments = dict(settings_in(settings))
    return Setup.of_recipe(what, target, arguments, Schema.load(schema) if schema else None)


def _told(found: Audit, statement: Statement | None) -> str:
    """The result in words."""
    lines = [
        f"Audit of {found.recipe}: {found.canaries} canary {found.unit}s, {found.confidence:.0%} confidence.",
        f"  claimed for the noisy sums:  epsilon {found.claimed:.3f} at delta {found.delta:g}",
    ]
    if statement is not None and statement.epsilon is not None:
        lines.append(f"  claimed for all releases:    epsilon {statement.epsilon:.3f}")
    lines += [f"  shown, {b.method + ':':33} at least {b.epsilon_lower:.3f}" for b in found.bounds]
    verdict = (
        "MORE LEAKS THAN IS CLAIMED: do not release; the code or the accounting is wrong."
        if found.exceeds
        else "No contradiction with the claim. This does not prove the claim: only its derivation does."
    )
    return "\n".join([*lines, verdict])
