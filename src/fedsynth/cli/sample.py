"""The command `fedsynth sample`, and the synthetic data that come with every run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedsynth.cli import flags
from fedsynth.cli.flags import option
from fedsynth.cli.output import show
from fedsynth.cli.stopwatch import Stopwatch
from fedsynth.errors import BadInput
from fedsynth.synthesis.request import ROWS

if TYPE_CHECKING:
    from fedsynth.synthesis.synthesizer import Synthesizer


def sample(
    folder: flags.Run,
    rows: Annotated[int, option("How many.", max=10**9)],
    out: Annotated[
        Path,
        option("Parquet or CSV for a table, a folder for linked ones, npz or a folder of PNG for images."),
    ],
    condition: Annotated[
        list[str] | None,
        option("Only rows like this, also COLUMN>VALUE; may be repeated.", metavar="COLUMN=VALUE"),
    ] = None,
    seed: Annotated[
        int | None, option("Draw the same data again; what was promised of the run still holds.")
    ] = None,
    client_ids: Annotated[
        bool,
        option("Add the client column: ids with as many rows as clients had (marginals).", "--client-ids"),
    ] = False,
    as_json: flags.AsJson = False,
) -> None:
    """Draw more synthetic data from a run, at no privacy cost.

    Example: fedsynth sample RUN --rows 10000 --condition income=">50K" --condition "age>=30" --out rich.parquet
    """
    from fedsynth.data.modality import modality_of
    from fedsynth.synthesis.counted_rows import stream_counts
    from fedsynth.synthesis.released_files import checked_run, synthetic_path, write_released_parts

    if out.exists():
        raise BadInput(f"{out}: exists already; choose another name")
    run = checked_run(folder)
    place, schema = run.folder, run.schema
    drawn = None if condition or client_ids else stream_counts(run, rows, seed)
    if drawn is None:
        from fedsynth.synthesis.synthesizer import Synthesizer

        drawn = Synthesizer.load(folder).stream(rows, condition=condition, seed=seed, client_ids=client_ids)
    if out.resolve() == synthetic_path(place, schema).resolve():
        write_released_parts(drawn, place, schema)
    else:
        modality_of(schema).write_parts(drawn, out)
    show(as_json, {"out": str(out), "rows": rows}, f"Wrote {rows} {modality_of(schema).units} to {out}.")


def write_sample(synthesizer: Synthesizer, out: Path, clock: Stopwatch | None = None) -> None:
    """Write the synthetic data that come with a run, and the page that may be published with them."""
    from fedsynth.assess.report.public import write_public
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.released_files import write_released_parts

    clock = clock or Stopwatch()
    clock.end("libraries of the public page")
    rows = synthesizer.request.rows or ROWS
    write_released_parts(
        synthesizer.stream(rows, seed=synthesizer.request.seed), Folder(out), synthesizer.schema
    )
    clock.end("drawing and writing rows")
    write_public(out)
    clock.end("the public page")
