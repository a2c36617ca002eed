"""One piece of an evaluation: it promises scores by name, and keeps the promise even when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedsynth.assess.scores.score import Score, failure
from fedsynth.errors import FedsynthError


@dataclass(frozen=True)
class Found:
    """The result of a step: scores, and plain data for plots by topic."""

    scores: tuple[Score, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """A piece of work with a title for the progress bar, and the names of the scores it promises."""

    title: str
    promises: tuple[str, ...]
    compute: Callable[[], Found]

    def run(self) -> Found:
        """Compute the step; if it stops, each promised score fails with the reason."""
        began = time.perf_counter()
        try:
            result = self.compute()
        except FedsynthError as error:
            return self._failed(str(error))
        except Exception as error:  # one broken score must not take the others with it
            return self._failed(f"unexpected {type(error).__name__}: {error}")
        seconds = {"seconds": {self.title: round(time.perf_counter() - began, 2)}}
        return Found(result.scores, {**result.details, **seconds})

    def _failed(self, reason: str) -> Found:
        names = self.promises or (self.title,)
        return Found(tuple(failure(name, reason) for name in names), {"failed": {self.title: reason}})
