"""The command `fedsynth report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fedsynth.cli import flags
from fedsynth.cli.flags import option
from fedsynth.cli.output import show, tell


def report(
    folder: flags.Run,
    real: Annotated[Path | None, option("Real rows that the run was trained on.")] = None,
    test: Annotated[Path | None, option("Real rows that the generator never saw.")] = None,
    client_column: Annotated[
        str | None, option("Column that says who owns a real row (default: as in the run's schema).")
    ] = None,
    deep: Annotated[
        bool, option("Measure longer: more rows and classifiers, and shadow generators.", "--deep")
    ] = False,
    shadow_minutes: flags.ShadowMinutes = None,
    network: Annotated[
        str, option("For images: lenet, efficientnet-lite0, inception-v3, or a file of the last.")
    ] = "lenet",
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Report how private, faithful and useful a run is. Writes report.html, one page that opens from disk.

    With --real the synthetic rows are measured against the real ones, which makes the page internal; without,
    scores that were measured before are shown.

    Example: fedsynth report RUN --real patients.csv --test held-out.csv
    """
    from fedsynth import api
    from fedsynth.cli.progress import StepProgress

    with StepProgress(quiet=quiet or real is None) as progress:
        pages = api.report(
            folder,
            real,
            test,
            client_column=client_column,
            deep=deep,
            shadow_minutes=shadow_minutes,
            network=network,
            progress=progress,
            note=lambda words: tell(f"fedsynth: {words}"),
        )
    target, public = pages.internal, pages.public
    size = target.stat().st_size
    result = {
        "out": str(target),
        "public": str(public),
        "bytes": size,
        "compared_with_real_rows": pages.evaluation is not None,
    }
    fate = (
        "this one may be published"
        if pages.private
        else "but without a complete privacy promise: do not publish it"
    )
    words = (
        f"Wrote {target} ({size / 1024:.0f} KiB).\n"
        "It is internal: open it in a browser, do not publish it.\n"
        f"Wrote {public}:\nmade from released files alone, {fate}."
    )
    show(as_json, result, words)
