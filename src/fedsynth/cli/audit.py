"""The command `fedsynth audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.exit_codes import Code
from fedsynth.cli.flags import argument, option, settings_in
from fedsynth.cli.output import show

if TYPE_CHECKING:
    from fedsynth.assess.audit.audit import Audit
    from fedsynth.privacy.statement import Statement


def audit(
    what: Annotated[str, argument("A finished run's folder, or a recipe.", "RUN|RECIPE")],
    unit: Annotated[str | None, option("client or record; of a run, the one that is claimed.")] = None,
    trust: Annotated[
        str | None, option("central, local or distributed; of a run, the one that is claimed.")
    ] = None,
    epsilon: Annotated[float, option("For a recipe: the claim to calibrate to.")] = 8.0,
    delta: Annotated[float, option("For a recipe: the claim's delta.")] = 1e-5,
    rounds: Annotated[int | None, option("For a recipe: rounds of training.")] = None,
    schema: Annotated[Path | None, option("For a recipe: schema of the made-up rows.")] = None,
    set_: Annotated[
        list[str] | None, option("For a recipe: an argument.", "--set", metavar="KEY=VALUE")
    ] = None,
    canaries: Annotated[int, option("How many made-up clients the attack tries to find.", min=1)] = 5000,
    runs: Annotated[int, option("Trainings; more of them raise the white-box bound.", min=1)] = 1,
    confidence: Annotated[float, option("How sure each lower bound is.")] = 0.95,
    seed: Annotated[int | None, option("Make it repeatable; real audits use fresh noise.")] = None,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Attack a recipe: a lower bound on the privacy that it loses.

    The recipe is trained once on made-up rows that fit the schema, never on real ones, with canaries that try to be
    found in what is released. Two lower bounds are read from that training: white-box (the noise of two canaries is
    taken as independent) and one-run (nothing is assumed). Exits with 1 if one is above the claim. For a run, the
    result goes into its privacy.json.

    Example: fedsynth audit RUN --json
    """
    import torch

    from fedsynth import api
    from fedsynth.cli.progress import StepProgress
    from fedsynth.privacy.statement import Statement
    from fedsynth.synthesis.folder import Folder

    torch.set_num_threads(1)  # the steps of small models are too small to share
    with StepProgress(quiet=quiet) as progress:
        result = api.audit(
            what,
            unit=unit,
            trust=trust,
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            schema=schema,
            arguments=dict(settings_in(set_)),
            canaries=canaries,
            runs=runs,
            confidence=confidence,
            seed=seed,
            tell=lambda done, total: progress("training with canaries", done, total),
        )
    place = Folder(what).privacy
    statement = Statement.load(place) if place.exists() else None
    show(as_json, result.to_dict(), _words(result, statement))
    if result.exceeds:
        raise typer.Exit(Code.FAILED)


def _words(audit: Audit, statement: Statement | None) -> str:
    """The audit in words, with what the run claims in all below what was audited."""
    lines = str(audit).splitlines()
    if statement is not None and statement.epsilon is not None:
        lines.insert(2, f"  claimed for all releases:        at most  {statement.epsilon:.3f}")
    return "\n".join(lines)
