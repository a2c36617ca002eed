"""The command `fedsynth sample`, and the synthetic data that come with every run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedsynth.cli import flags
from fedsynth.cli.flags import option
from fedsynth.cli.output import show
from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from fedsynth.synthesis.synthesizer import Synthesizer

DEFAULT_ROWS = 10_000  # not the number of real records: that is private


def sample(
    folder: flags.Run,
    rows: Annotated[int, option("How many.", max=10**9)],
    out: Annotated[Path, option("Parquet or CSV for tables, npz or a folder of PNG for images.")],
    condition: Annotated[
        list[str] | None,
        option("Only rows like this, also COLUMN>VALUE; may be repeated.", metavar="COLUMN=VALUE"),
    ] = None,
    seed: Annotated[
        int | None, option("Draw the same data again; what was promised of the run still holds.")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Draw more synthetic data from a finished run, at no further privacy cost.

    Example: fedsynth sample RUN --rows 10000 --condition income=">50K" --condition "age>=30" --out rich.parquet
    """
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.released_files import synthetic_path, write_drawn, write_released
    from fedsynth.synthesis.synthesizer import Synthesizer

    if out.exists():
        raise BadInput(f"{out}: exists already; choose another name")
    synthesizer = Synthesizer.load(folder)
    drawn = synthesizer.sample(rows, condition=condition, seed=seed)
    own = synthetic_path(Folder(folder), synthesizer.schema)
    if out.resolve() == own.resolve():
        write_released(drawn, Folder(folder), own)
    else:
        write_drawn(drawn, out)
    show(as_json, {"out": str(out), "rows": rows}, f"Wrote {rows} rows to {out}.")


def write_sample(synthesizer: Synthesizer, out: Path) -> None:
    """Write the synthetic data that come with a run, and the page that may be published with them."""
    from fedsynth.assess.report.public import write_public
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.released_files import synthetic_path, write_released

    rows = synthesizer.request.rows or DEFAULT_ROWS
    drawn = synthesizer.sample(rows, seed=synthesizer.request.seed)
    place = Folder(out)
    write_released(drawn, place, synthetic_path(place, synthesizer.schema))
    write_public(out)
