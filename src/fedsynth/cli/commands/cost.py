"""`account`, `plan` and `audit`: what privacy costs, before and after a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.lazy import leads_to

app = typer.Typer()


@app.command()
@leads_to("account:account")
def account(
    delta: Annotated[
        float, typer.Option(help="Probability mass that epsilon does not bound; well below 1 / clients.")
    ],
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise over clip.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Target; what is left out is solved for.")] = None,
    rate: Annotated[float | None, typer.Option(help="Chance of each client to be in a round.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients (or records).")] = None,
    cohort: Annotated[int | None, typer.Option(help="Clients in a round.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds (or steps).")] = None,
    sampling: Annotated[str | None, typer.Option(help="poisson, fixed or none.")] = None,
    adjacency: Annotated[str | None, typer.Option(help="add-remove, replace-one or zero-out.")] = None,
    unit: Annotated[str, typer.Option(help="client or record: what the neighbours differ in.")] = "client",
    accountant: Annotated[str, typer.Option(help="pld, rdp or rdp-legacy.")] = "pld",
    relative_to: Annotated[
        str,
        typer.Option(help="What the noise multiplier is relative to: clip, or sensitivity (as some papers)."),
    ] = "clip",
    as_json: flags.AsJson = False,
) -> None:
    """What privacy costs: leave one of epsilon, noise, rounds, cohort and clients out, and get it.

    Example: fedsynth account --noise-multiplier 1 --clients 500 --cohort 100 --rounds 30 --delta 1e-5
    """


@app.command()
@leads_to("plan:plan")
def plan(
    schema: Annotated[Path, typer.Option(help="The public schema.")],
    clients: Annotated[int, typer.Option(help="How many clients would take part.")],
    records: Annotated[
        int, typer.Option(help="How many records they hold together; a public guess will do.")
    ],
    epsilon: Annotated[float, typer.Option(help="Privacy budget.")],
    delta: Annotated[
        float, typer.Option(help="Probability mass that epsilon does not bound; well below 1 / clients.")
    ],
    recipe: Annotated[str | None, typer.Option(help="Only this recipe.")] = None,
    project: Annotated[str | None, typer.Option(help="Other numbers of clients: 10000,1000000.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write epsilon against clients, rounds, noise (.png, .html).")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Noise, rounds and cohort for every recipe, unit and kind of trust, side by side. Reads no data.

    Example: fedsynth plan --schema schema.json --clients 500 --records 60000 --epsilon 8 --delta 1e-5 --project 50000
    """


@app.command()
@leads_to("audit:audit")
def audit(
    what: Annotated[str, typer.Argument(metavar="RUN|RECIPE", help="A finished run's folder, or a recipe.")],
    unit: Annotated[
        str | None, typer.Option(help="client or record; of a run, the one that is claimed.")
    ] = None,
    trust: Annotated[
        str | None, typer.Option(help="central, local or distributed; of a run, the one that is claimed.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="For a recipe: the claim to calibrate to.")] = 8.0,
    delta: Annotated[float, typer.Option(help="For a recipe: the claim's delta.")] = 1e-5,
    rounds: Annotated[int | None, typer.Option(help="For a recipe: rounds of training.")] = None,
    schema: Annotated[Path | None, typer.Option(help="For a recipe: schema of the made-up rows.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For a recipe: an argument.")
    ] = None,
    canaries: Annotated[
        int, typer.Option(help="Participants of the training that try to be found.", min=1)
    ] = 5000,
    runs: Annotated[int, typer.Option(help="Trainings; more of them raise the white-box bound.", min=1)] = 1,
    confidence: Annotated[float, typer.Option(help="How sure each lower bound is.")] = 0.95,
    seed: Annotated[int | None, typer.Option(help="Make it repeatable; real audits use fresh noise.")] = None,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Attack a run's settings and print how much privacy is lost at least, beside what is claimed.

    The recipe is trained once on made-up rows that fit the schema, never on real ones, with canaries that try to be
    found in what is released. Two lower bounds are read from that training: white-box (the noise of two canaries is
    taken as independent) and one-run (nothing is assumed). Exits with 1 if one is above the claim. For a run, the
    result goes into its privacy.json.

    Example: fedsynth audit RUN --json
    """
