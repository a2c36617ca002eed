"""Results of one row that was measured in pieces, on several machines or at several times, as one result."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from fedsynth.assess.scores.score import Score, failure, over_seeds
from fedsynth.errors import BadInput

_SAME = ("row", "recipe", "data", "clients", "settings", "sets", "claim", "deviations")


def joined(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All trainings of `results` as if one call had made them; refused if they are not of the same row and settings.

    A seed that stands in two results would count one training twice, so it is refused too. What a classifier learns
    from real rows is measured in each piece; the mean is told.
    """
    if not results:
        raise BadInput("no results to join; name the JSON files of one row")
    first = results[0]
    for result in results[1:]:
        for key in _SAME:
            if result.get(key) != first.get(key):
                raise BadInput(
                    f"{key}={result.get(key)!r} beside {first.get(key)!r}: only results of one row with the same "
                    "settings can be joined"
                )
    seeds = [seed for result in results for seed in result["seeds"]]
    if len(set(seeds)) < len(seeds):
        raise BadInput(f"seeds={seeds}: a training that stands in two results would count twice")
    spent = [r["privacy"]["epsilon"] for r in results if r["privacy"]["epsilon"] is not None]
    return {
        **first,
        "seeds": seeds,
        "runs": sum(result["runs"] for result in results),
        "scores": [_score(together, seeds).to_dict() for together in _by_name(results)],
        "privacy": {**first["privacy"], "epsilon": max(spent, default=None)},
        "seconds_training": [each for result in results for each in result["seconds_training"]],
        "seconds": round(sum(result["seconds"] for result in results), 1),
    }


def _by_name(results: Sequence[dict[str, Any]]) -> list[list[Score]]:
    """The same score of each result, in the order of the first."""
    read = [{entry["name"]: Score.from_dict(entry) for entry in result["scores"]} for result in results]
    for scores in read[1:]:
        missing = set(read[0]) ^ set(scores)
        if missing:
            raise BadInput(f"score {sorted(missing)[0]!r} stands in some of the results only")
    return [[scores[name] for scores in read] for name in read[0]]


def _score(together: list[Score], seeds: list[int]) -> Score:
    """One score over all trainings; it fails if it failed in any piece."""
    first = together[0]
    runs = [value for score in together for value in score.detail["runs"]]
    real = [s.detail["train_on_real"] for s in together if "train_on_real" in s.detail]
    detail = {**first.detail, "runs": runs, **({"train_on_real": fmean(real)} if real else {})}
    failed = next((score.failed for score in together if score.failed is not None), None)
    if failed is not None:
        return failure(first.name, failed, seeds, goal=first.goal, range=first.range, detail=detail)
    return over_seeds(first.name, runs, seeds, goal=first.goal, range=first.range, detail=detail)
