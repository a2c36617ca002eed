"""The command `fedsynth evaluate`: how faithful and how useful a synthetic data set is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

from fedsynth.cli import flags
from fedsynth.cli.flags import names_in, option
from fedsynth.cli.output import show

if TYPE_CHECKING:
    from fedsynth.assess.scores.score import Score

_NAME = 40  # letters of a score's name that stand before its value
_BETTER = {"max": "higher is better", "min": "lower is better", "range": "within its range"}
_BESIDE = {  # entries of a score's detail that a reader needs beside it
    "train_on_real": "trained on real",
    "majority": "majority class",
    "unigrams": "unigrams of real",
    "real_halves": "two halves of the real rows",
    "real_alone": "real alone",
    "real_repeated": "real repeated",
    "real_and_synthetic": "with synthetic",
    "test": "unseen real rows",
    "real": "real",
    "unseen_real": "unseen real images",
    "network": "network",
    "at_least": "very likely above",
    "at_most": "very likely below",
    "allowed": "allowed by the claim",
}


def evaluate(
    real: Annotated[Path, option("Real data that the generator was trained on.")],
    synthetic: Annotated[Path, option("Synthetic data: a table, images or texts, as the schema says.")],
    schema: Annotated[Path, option("The schema.json of both.")],
    test: Annotated[Path | None, option("Real data that the generator never saw.")] = None,
    client_column: Annotated[
        str | None, option("Column that says who owns a real row; people are held out whole.")
    ] = None,
    run: Annotated[
        Path | None, option("The run that made the data: its claim, generator and recipe.")
    ] = None,
    privacy: Annotated[Path | None, option("The privacy.json that attacks are compared with.")] = None,
    epsilon: Annotated[float | None, option("Or the claim itself, with --delta.")] = None,
    delta: Annotated[float | None, option("See --epsilon.")] = None,
    deep: Annotated[
        bool, option("More rows and classifiers; with --run also shadow generators. Slow.", "--deep")
    ] = False,
    shadow_minutes: flags.ShadowMinutes = None,
    out: Annotated[Path | None, option("Folder for scores.json and details.json.")] = None,
    cache: Annotated[Path | None, option("Folder that keeps what was measured (default: OUT/cache).")] = None,
    network: Annotated[
        str,
        option(
            "For images: lenet (trained on real ones), efficientnet-lite0, inception-v3 (from torch hub), "
            "or a file of Inception-v3."
        ),
    ] = "lenet",
    classifiers: Annotated[str, option("Names separated by commas, or all; --deep adds more.")] = "",
    text_column: Annotated[str, option("For texts in a table: the column.")] = "text",
    seed: Annotated[int, option("For subsets of rows, folds and classifiers.")] = 0,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Measure how faithful and useful synthetic data are. Compares with real rows: the result is internal.

    Without --test, a fifth of the real rows is held out from the classifiers; the generator may have seen them,
    and nothing is attacked.

    Example: fedsynth evaluate --real adult.csv --synthetic RUN/synthetic.parquet --schema RUN/schema.json
    """
    from fedsynth import api
    from fedsynth.assess.suite import INTERNAL
    from fedsynth.cli.progress import StepProgress

    with StepProgress(quiet=quiet) as progress:
        evaluation = api.evaluate(
            real,
            synthetic,
            schema,
            test=test,
            client_column=client_column,
            run=run,
            privacy=privacy,
            epsilon=epsilon,
            delta=delta,
            deep=deep,
            shadow_minutes=shadow_minutes,
            network=network,
            classifiers=names_in(classifiers),
            text_column=text_column,
            seed=seed,
            cache=cache or (out / "cache" if out else None),
            progress=progress,
        )
    if out:
        evaluation.save(out)
    scores = [score.to_dict() for score in evaluation.scores]
    lines = [*_lines(evaluation.scores), f"{INTERNAL}; do not publish these numbers."]
    lines += [f"Wrote {out / 'scores.json'}."] if out else []
    result = {"internal": INTERNAL, "rows": evaluation.details["rows"], "scores": scores}
    show(as_json, result, "\n".join(lines))


def _lines(scores: Iterable[Score]) -> list[str]:
    """A readable line for each score, and below it what it should be set beside; no line breaks at 80 letters."""
    listed = list(scores)
    width = min(max((len(score.name) for score in listed), default=0), _NAME)
    lines = []
    for score in listed:
        told, beside = _described(score)
        name = [score.name] if len(score.name) > width else []
        lines += [*name, f"{'' if name else score.name:<{width}} {told}".rstrip()]
        lines += [f"    {line}" for line in wrap(beside, 76)]
    return lines


def _described(score: Score) -> tuple[str, str]:
    """The value with the way that is better, and what stands beside it or why it failed."""
    if score.value is None:
        return "failed", str(score.failed)
    spread = "" if score.spread is None else f" ± {score.spread:.3f}"
    beside = "; ".join(
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
        for key, name in _BESIDE.items()
        if (value := score.detail.get(key)) is not None and not (key == "test" and isinstance(value, str))
    )
    return f"{score.value:7.3f}{spread:<8}  {_BETTER[score.goal]}", beside
