"""Scores of several runs as one list."""

from __future__ import annotations

from collections.abc import Sequence

from fedsynth.assess.scores.score import Score, failure, over_seeds


def across_runs(runs: Sequence[Sequence[Score]], seeds: Sequence[int] = ()) -> list[Score]:
    """The same scores of several runs as one list: mean and spread over the runs.

    The detail keeps what all runs agree on, and each run's value under `runs`. A score that failed in any run
    fails: a mean over the runs that went well would flatter.
    """
    merged = []
    for together in zip(*runs, strict=True):
        first = together[0]
        same = {
            key: value
            for key, value in first.detail.items()
            if all(s.detail.get(key) == value for s in together)
        }
        detail = {**same, "runs": [score.value for score in together]}
        failed = [score.failed for score in together if score.failed is not None]
        values = [score.value for score in together if score.value is not None]
        if failed:
            reason = f"{len(failed)} of {len(together)} runs: {failed[0]}"
            merged.append(
                failure(first.name, reason, seeds, goal=first.goal, range=first.range, detail=detail)
            )
        else:
            merged.append(
                over_seeds(first.name, values, seeds, goal=first.goal, range=first.range, detail=detail)
            )
    return merged
