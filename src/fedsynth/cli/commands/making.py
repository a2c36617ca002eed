"""`run`, `sample`, `recipes` and `tune`: make synthetic data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.lazy import leads_to

app = typer.Typer()


@app.command()
@leads_to("run:run")
def run(
    data: Annotated[
        Path | None,
        typer.Argument(help="Table (CSV, Parquet), images (idx, npz, folder of PNG) or texts (JSON lines)."),
    ] = None,
    schema: flags.SchemaFile = None,
    recipe: flags.RecipeName = None,
    client_column: flags.ClientColumn = None,
    clients: flags.Clients = None,
    split: flags.Split = None,
    label: flags.Label = None,
    text_column: Annotated[str | None, typer.Option(help="Column that holds the texts.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget.")] = None,
    delta: flags.Delta = None,
    rounds: flags.Rounds = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise over clip; the rounds follow.")
    ] = None,
    no_privacy: Annotated[
        bool, typer.Option("--no-privacy", help="A baseline that protects nobody.")
    ] = False,
    unit: flags.UnitName = None,
    trust: flags.TrustName = None,
    transport: Annotated[str | None, typer.Option(help="clear, he or secagg.")] = None,
    budget: flags.BudgetFile = None,
    federation: Annotated[
        Path | None, typer.Option(help="Over real sites: what `fedsynth federation create` made.")
    ] = None,
    minimum_sites: flags.MinimumSites = 2,
    round_timeout: flags.RoundTimeout = 600.0,
    config: flags.Config = None,
    set_: flags.Settings = None,
    seed: flags.Seed = None,
    device: flags.Device = None,
    simulate_speeds: Annotated[
        str | None,
        typer.Option(help='Simulated clients take time: default, or for example "stragglers=0.1,factor=10".'),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Synthetic rows to write (default 10000).", max=10**9)
    ] = None,
    accept: flags.Accept = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run; must not exist.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Make a synthetic data set out of many clients' data.

    Give --epsilon and --delta: the noise is calibrated to spend just that. The run folder then holds
    the synthetic data, the generator, the privacy statement, the ledger and the history.

    Example: fedsynth run patients.csv --schema schema.json --client-column "patient id" --label outcome
    --recipe dpd_fvae --epsilon 8 --delta 1e-5 --out RUN
    """


@app.command()
@leads_to("run:sample")
def sample(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.")],
    rows: Annotated[int, typer.Option(help="How many.", max=10**9)],
    out: Annotated[Path, typer.Option(help="Parquet or CSV for tables, npz or a folder of PNG for images.")],
    condition: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only rows like this; may be repeated.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Draw the same data again; what was promised of the run still holds.")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Draw more synthetic data from a finished run, at no further privacy cost.

    Example: fedsynth sample RUN --rows 10000 --condition income=">50K" --out rich.parquet
    """


@app.command()
@leads_to("recipes:recipes")
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show this recipe's arguments.")] = None,
    as_json: flags.AsJson = False,
) -> None:
    """List the recipes, or what one of them can be told with --set.

    Example: fedsynth recipes dpd_fvae
    """


@app.command()
@leads_to("tune:tune")
def tune(
    data: Annotated[Path | None, typer.Argument(help="Rows to search on; see --public and --charge.")] = None,
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--try", metavar="KEY=VALUE", help="A value to try; repeat it for more values and settings."
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Anybody may see DATA: the search is free.")
    ] = False,
    from_run: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="Search on a private run's synthetic rows: free."),
    ] = None,
    charge: Annotated[
        bool,
        typer.Option("--charge", help="DATA are private: the search is charged, and its best is the run."),
    ] = False,
    trials: Annotated[
        float,
        typer.Option(help="With --charge: trainings on average; how many there are is drawn at random."),
    ] = 5.0,
    runs: Annotated[int, typer.Option(help="Trainings of each candidate, where the search is free.")] = 1,
    schema: flags.SchemaFile = None,
    recipe: flags.RecipeName = None,
    client_column: flags.ClientColumn = None,
    clients: flags.Clients = None,
    split: flags.Split = None,
    label: flags.Label = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget of the run (with --charge: in all).")
    ] = None,
    delta: flags.Delta = None,
    rounds: flags.Rounds = None,
    unit: flags.UnitName = None,
    trust: flags.TrustName = None,
    budget: flags.BudgetFile = None,
    config: flags.Config = None,
    set_: flags.Settings = None,
    seed: flags.Seed = None,
    device: flags.Device = None,
    accept: flags.Accept = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the result; must not exist.")] = None,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Find settings that serve well. Looking at private rows to choose them costs privacy, so say what DATA are.

    With --public or --from RUN the search is free: every combination is trained as a run with this epsilon would be
    and judged by held-out rows. The best is written as best.toml, for `fedsynth run --config`. With --charge the rows
    are private: a random number of random combinations is trained, only the best leaves, and the ledger has it all.

    Example: fedsynth tune similar.csv --public --schema schema.json --clients 500 --epsilon 8 --delta 1e-5
    --recipe dpd_fvae --try clip=0.3 --try clip=1 --try latent=8 --try latent=16 --out TUNED
    """
