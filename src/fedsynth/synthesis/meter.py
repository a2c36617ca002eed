"""Epsilon while a run goes on, for its history and its progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dp_accounting import DpEvent

from fedsynth.privacy import account
from fedsynth.privacy.ledger import LedgerLine, exposures, priced
from fedsynth.recipes.budget import Target


@dataclass
class Meter:
    """Epsilon of whoever is worst off: read at every round that lasts, now and then in a run of very short ones.

    If the length of rounds is `secret`, it must not decide at which of them epsilon is read: then their number does.
    """

    odometer: account.Odometer
    budget: float
    rounds: int
    secret: bool = False
    last: float | None = None
    _version: int = 0
    _took: float = 0.0
    _when: float = 0.0

    def read(self, version: int, releases: int) -> float | None:
        """Epsilon after this round and so many releases of one client; None where it would slow training down."""
        now = time.perf_counter()
        early = version < 1.25 * self._version if self.secret else now - self._when < 10 * self._took
        if early and version < self.rounds:
            return None
        self._version = version
        # the run was calibrated to the budget more finely than this, so the budget bounds it too
        self.last = min(self.odometer.after(releases), self.budget)
        self._when = time.perf_counter()
        self._took = self._when - now
        return self.last


def worst_off(lines: Sequence[LedgerLine], target: Target, unit: str, adjacency: str) -> list[DpEvent]:
    """The cost of the lines to the client that paid most, or to a record of it."""
    groups = [[priced(line, unit, adjacency) for line in group] for group in exposures(lines)]
    if len(groups) == 1:
        return groups[0]
    return max(
        groups, key=lambda costs: account.epsilon(account.compose(costs), target.delta, adjacency=adjacency)
    )
