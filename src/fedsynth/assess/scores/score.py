"""The result of every measure of a synthetic data set: a number with its meaning, or why there is none."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from fedsynth.data.atomic import write_file
from fedsynth.errors import BadInput

Goal = Literal["max", "min", "range"]


@dataclass(frozen=True)
class Score:
    """One measured number. `goal` says which way is better; "range" means that it should lie within `range`.

    `spread` is the standard deviation over `seeds`, None for a single one. `failed` holds the reason where the
    score could not be computed: such a score has no value, and it stays in the list.
    """

    name: str
    value: float | None
    goal: Goal = "max"
    range: tuple[float, float] = (0.0, 1.0)
    spread: float | None = None
    seeds: tuple[int, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    failed: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.failed is not None):
            raise BadInput(f"score {self.name!r}: expected a value or a reason for its failure, and not both")
        if self.value is not None and not math.isfinite(self.value):
            raise BadInput(
                f"score {self.name!r}: {self.value} is no number; give the reason in `failed` instead"
            )

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}: failed ({self.failed})"
        return f"{self.name}: {self.value:.3f}" + ("" if self.spread is None else f" ± {self.spread:.3f}")

    def to_dict(self) -> dict[str, Any]:
        """An entry of scores.json."""
        return {**asdict(self), "range": list(self.range), "seeds": list(self.seeds)}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """The score of an entry of scores.json."""
        unknown = set(entry) ^ {item.name for item in fields(cls)}
        if unknown:
            raise BadInput(f"not a score: keys {sorted(unknown)} are missing or unknown")
        low, high = entry["range"]
        return cls(**{**entry, "range": (low, high), "seeds": tuple(entry["seeds"])})


def over_seeds(
    name: str,
    values: Sequence[float],
    seeds: Sequence[int] = (),
    *,
    goal: Goal = "max",
    range: tuple[float, float] = (0.0, 1.0),  # noqa: A002
    detail: Mapping[str, Any] | None = None,
) -> Score:
    """The score of several runs: their mean, and their standard deviation as the spread.

    >>> print(over_seeds("accuracy", [0.8, 0.9], seeds=[1, 2]))
    accuracy: 0.850 ± 0.071
    """
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Score(name, float(np.mean(values)), goal, range, spread, tuple(seeds), detail or {})


def failure(
    name: str,
    reason: str,
    seeds: Sequence[int] = (),
    *,
    goal: Goal = "max",
    range: tuple[float, float] = (0.0, 1.0),  # noqa: A002
    detail: Mapping[str, Any] | None = None,
) -> Score:
    """A score that could not be computed, with the reason.

    >>> print(failure("accuracy", "the synthetic rows have one class"))
    accuracy: failed (the synthetic rows have one class)
    """
    return Score(name, None, goal, range, None, tuple(seeds), detail or {}, reason)


def save_scores(scores: Iterable[Score], path: Path | str) -> None:
    """Write scores.json, whole or not at all."""
    text = json.dumps([score.to_dict() for score in scores], indent=1, allow_nan=False)
    write_file(path, text + "\n")


def load_scores(path: Path | str) -> list[Score]:
    """Read scores.json back."""
    try:
        return [Score.from_dict(entry) for entry in json.loads(Path(path).read_text())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path}: is not a list of scores ({error}); expected scores.json of a run") from None
