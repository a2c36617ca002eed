"""The command `fedsynth evaluate`: how faithful and how useful a synthetic data set is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedsynth.cli import flags
from fedsynth.cli.flags import names_in, option
from fedsynth.cli.output import show

if TYPE_CHECKING:
    from fedsynth.assess.scores.score import Score

_BETTER = {"max": "higher", "min": "lower", "range": "within"}
_BESIDE = {  # entries of a score's detail that a reader needs beside it
    "train_on_real": "trained on real",
    "majority": "majority class",
    "unigrams": "unigrams of real",
    "real_halves": "two halves of real",
    "real_alone": "real alone",
    "real_repeated": "real repeated",
    "real_and_synthetic": "with synthetic",
    "test": "unseen real rows",
    "real": "real",
    "unseen_real": "unseen real images",
    "network": "network",
    "at_least": "surely above",
    "allowed": "allowed by the claim",
}


def evaluate(
    real: Annotated[Path, option("Real data that the generator was trained on.")],
    synthetic: Annotated[Path, option("Synthetic data: a table, images or texts, as the schema says.")],
    schema: Annotated[Path, option("The schema.json of both.")],
    test: Annotated[Path | None, option("Real data that the generator never saw.")] = None,
    client_column: Annotated[
        str | None, option("Column that says whose a real row is: nobody is held out in part.")
    ] = None,
    run: Annotated[
        Path | None, option("The run that made the data: its claim, generator and recipe.")
    ] = None,
    privacy: Annotated[Path | None, option("The privacy.json that attacks are held against.")] = None,
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
    classifiers: Annotated[
        str, option("Names separated by commas, or all; the thesis's further ones come with --deep.")
    ] = "",
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
    from fedsynth.assess import suite
    from fedsynth.assess.attacks.shadow_game import MINUTES
    from fedsynth.assess.inputs import check_tables, owned, read_judged
    from fedsynth.assess.origin import origin_of
    from fedsynth.assess.scores.networks import network_named
    from fedsynth.cli.progress import StepProgress
    from fedsynth.data.schema import Schema

    known = Schema.load(schema)
    real_data = read_judged(real, known, text_column, ours=True)
    test_data = None if test is None else read_judged(test, known, text_column, ours=True)
    synthetic_data = read_judged(synthetic, known, text_column)
    known = owned(known, client_column, {f"--real {real}": real_data, f"--test {test}": test_data})
    check_tables({real: real_data, test: test_data, synthetic: synthetic_data}, known)
    minutes = MINUTES if shadow_minutes is None else shadow_minutes
    origin = origin_of(run, privacy, epsilon, delta, real_data, seed, minutes)
    with StepProgress(quiet=quiet) as progress:
        evaluation = suite.evaluate(
            real_data,
            synthetic_data,
            known,
            test=test_data,
            deep=deep,
            seed=seed,
            progress=progress,
            cache=cache or (out / "cache" if out else None),
            network=network_named(network) if known.kind == "image" else None,
            classifiers=names_in(classifiers),
            **vars(origin),
        )
    if out:
        evaluation.save(out)
    scores = [score.to_dict() for score in evaluation.scores]
    lines = [*_lines(evaluation.scores), f"{suite.INTERNAL}; do not publish these numbers."]
    lines += [f"Wrote {out / 'scores.json'}."] if out else []
    result = {"internal": suite.INTERNAL, "rows": evaluation.details["rows"], "scores": scores}
    show(as_json, result, "\n".join(lines))


def _lines(scores: Iterable[Score]) -> list[str]:
    """A readable line for each score: name, value, which way is better, and what it should be set beside."""
    listed = list(scores)
    width = max((len(score.name) for score in listed), default=0)
    return [f"{score.name:<{width}}  {_described(score)}" for score in listed]


def _described(score: Score) -> str:
    if score.value is None:
        return f"failed: {score.failed}"
    spread = "" if score.spread is None else f" ± {score.spread:.3f}"
    beside = "; ".join(
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
        for key, name in _BESIDE.items()
        if (value := score.detail.get(key)) is not None and not (key == "test" and isinstance(value, str))
    )
    better = f"{_BETTER[score.goal]} is better"
    return f"{score.value:7.3f}{spread:<8}  {better:<16}  {beside}".rstrip()
