"""The command `fedsynth audit`."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import typer

from fedsynth.assess.audit.audit import Audit
from fedsynth.assess.audit.audit_setup import Setup, write_audit
from fedsynth.cli.exit_codes import Code
from fedsynth.cli.flags import settings_in
from fedsynth.cli.step_progress import StepProgress
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.privacy.statement import Statement
from fedsynth.recipes.budget import Target
from fedsynth.recipes.registry import RECIPES
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder


def audit(
    what: str,
    unit: str | None,
    trust: str | None,
    epsilon: float,
    delta: float,
    rounds: int | None,
    schema: Path | None,
    set_: list[str] | None,
    canaries: int,
    runs: int,
    confidence: float,
    seed: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Attack a run's settings and print how much privacy is lost at least, beside what is claimed."""
    torch.set_num_threads(1)  # the steps of small models are too small to share
    folder = _run_folder(what)
    target = Target(epsilon, delta, rounds)
    setup = _setup(what, folder, target, set_ or [], schema, unit, trust)
    with StepProgress(quiet=quiet) as progress:
        found = setup.run(
            canaries,
            runs,
            confidence,
            None if seed is None else Rng(seed),
            lambda done, total: progress("training with canaries", done, total),
        )
    statement = write_audit(folder, found) if folder else None
    typer.echo(json.dumps(found.to_dict()) if as_json else _told(found, statement))
    if found.exceeds:
        raise typer.Exit(Code.FAILED)


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


def _setup(
    what: str,
    folder: Path | None,
    target: Target,
    settings: list[str],
    schema: Path | None,
    unit: str | None,
    trust: str | None,
) -> Setup:
    if folder:
        setup = Setup.of_run(folder)
        setup.check_claim(unit, trust)
        return setup
    public = Schema.load(schema) if schema else None
    return Setup.of_recipe(what, target, dict(settings_in(settings)), public, unit=unit, trust=trust)


def _told(found: Audit, statement: Statement | None) -> str:
    """The result in words."""
    one = found.one_run.detail
    lines = [
        f"Audit of {found.recipe}: {one['canaries']} canary {found.unit}s in one training.",
        f"  claimed for the noisy releases:  at most  {found.claimed:.3f}  (epsilon at delta {found.delta:g})",
    ]
    if statement is not None and statement.epsilon is not None:
        lines.append(f"  claimed for all releases:        at most  {statement.epsilon:.3f}")
    for name, bound in (("white-box bound", found.white_box), ("one-run bound", found.one_run)):
        sure = f"{bound.confidence:.0%} confidence; {bound.method}"
        lines.append(f"  {name + ':':32} at least {bound.epsilon_lower:.3f}  ({sure})")
    lines.append(f"  of the one run's {one['guesses']} guesses {one['correct']} were right")
    verdict = (
        "MORE LEAKS THAN IS CLAIMED: do not release; the code or the accounting is wrong."
        if found.exceeds
        else "No contradiction with the claim. This does not prove the claim: only its derivation does."
    )
    return "\n".join([*lines, verdict])
