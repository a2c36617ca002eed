"""A policy that no run can exceed: the most that may ever be spent on one data set, over all runs.

```toml
[budget]            # or [budget.NAME], one for each data set
epsilon = 3.0
delta = 1e-6
unit = "record"
adjacency = "add-remove"   # neighbors: with one client (or record) more or less; every release is charged under it
```
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from dp_accounting import DpEvent

from fedsynth.data.configuration import build, check, keys_of, read_file
from fedsynth.errors import BadInput, BudgetExhausted, nearest
from fedsynth.privacy.accountant import ACCOUNTANTS
from fedsynth.privacy.events import flatten, noise_apart
from fedsynth.privacy.ledger import EVERYONE, Entry, Ledger, LedgerLine, priced
from fedsynth.privacy.mechanism import Unit
from fedsynth.privacy.pairs import ADJACENCIES

_SLACK = 1e-9  # a budget of 3 allows what costs 3
_Releases = Counter[tuple[str, float]]  # how often each happened: its form, and its noise


@dataclass
class _Tally:
    """Releases by holder: those on one ledger as far as it was read, and those that a budget is known to allow."""

    ledger: Ledger | None = None
    lines: int = 0
    released: dict[str, _Releases] = field(default_factory=dict)
    allowed: dict[str, _Releases] = field(default_factory=dict)


@dataclass(frozen=True)
class Budget:
    """The most that the releases on one ledger may cost together.

    >>> from dp_accounting import GaussianDpEvent
    >>> Budget(epsilon=1.0, delta=1e-5).check(Ledger(None), GaussianDpEvent(1.0))
    Traceback (most recent call last):
    fedsynth.errors.BudgetExhausted: release: it would bring the total to epsilon 4.3772 ...
    """

    epsilon: float
    delta: float
    unit: Unit = "client"
    adjacency: str = "add-remove"
    accountant: str = "pld"
    _tally: _Tally = field(default_factory=_Tally, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise BadInput(f"budget epsilon={self.epsilon}: expected a number above 0")
        if not 0 <= self.delta < 1:
            raise BadInput(f"budget delta={self.delta}: expected a number in [0, 1), well below 1 / clients")
        for name, known in (("unit", ("client", "record")), ("adjacency", ADJACENCIES)):
            if getattr(self, name) not in known:
                raise BadInput(
                    f"budget {name}={getattr(self, name)!r}; {nearest(getattr(self, name), known)}"
                )
        if self.accountant not in ACCOUNTANTS:
            raise BadInput(f"budget accountant={self.accountant!r}; {nearest(self.accountant, ACCOUNTANTS)}")

    @classmethod
    def load(cls, path: Path | str, data_set: str | None = None) -> Self:
        """The budget in a TOML or JSON file; `data_set` names one of several."""
        path = Path(path)
        values = _table(read_file(path), path, data_set)
        check(values, keys_of(cls), f"budget file {path}")
        return build(cls, values)

    def check(
        self, ledger: Ledger, event: DpEvent, count: int = 1, what: str = "release", **where: Any
    ) -> None:
        """Refuse the next release if everything on the ledger and it together would exceed the budget."""
        where.setdefault("unit", self.unit)
        self.check_all(ledger, [Entry(event, what, count=count, **where)])

    def check_all(self, ledger: Ledger, entries: Sequence[Entry]) -> None:
        """The same for releases that leave together.

        A whole run can be checked before its first round; its rounds are then let through at once.
        """
        released, wanted = self._released(ledger), self._by_holder(entries)
        if self._allows(released, wanted):
            return
        spent = self._spent(ledger, entries)
        others = [entry for entry in entries if entry.unit != self.unit]
        if others and math.isinf(spent):
            raise BudgetExhausted(
                f"{others[0].what}: it protects each {others[0].unit}, and the budget is for each {self.unit}, "
                f"to whom it promises nothing; nothing was released. Ask for unit {self.unit}, or let the owner "
                f'of the data give a budget with unit = "{others[0].unit}"'
            )
        if spent > self.epsilon * (1 + _SLACK):
            raise BudgetExhausted(
                f"{entries[0].what}: it would bring the total to epsilon {spent:.5g} at delta {self.delta:g} "
                f"({self.unit}, {self.adjacency}), over the budget of {self.epsilon:g}; nothing was "
                "released. Use more noise, fewer rounds, or ask the owner of the data for a larger budget"
            )
        self._tally.allowed = {
            holder: released.get(holder, Counter()) + wanted.get(holder, Counter())
            for holder in {*released, *wanted}
        }

    def spend_all(self, ledger: Ledger, entries: Sequence[Entry]) -> list[LedgerLine]:
        """Check and write in one step, so that two runs on one ledger cannot both take the last of it: all, or none."""
        with ledger.locked():
            self.check_all(ledger, entries)
            return ledger.append_all(entries)

    def left(self, ledger: Ledger) -> float:
        """Epsilon not yet spent; costs of later releases do not simply add up to it."""
        return max(0.0, self.epsilon - self._spent(ledger))

    def _spent(self, ledger: Ledger, following: Sequence[Entry] = ()) -> float:
        """Epsilon of what the ledger shows, and of what follows."""
        cost = ledger.answer(
            self.delta,
            adjacency=self.adjacency,
            accountant=self.accountant,
            unit=self.unit,
            following=following,
        )
        return cost.epsilon

    def _released(self, ledger: Ledger) -> dict[str, _Releases]:
        """The releases on the ledger; only lines that are new are read."""
        tally = self._tally
        if tally.ledger is not ledger:
            tally.ledger, tally.lines, tally.released = ledger, 0, {}
        fresh = ledger.lines(tally.lines)
        tally.lines += len(fresh)
        for holder, releases in self._by_holder(fresh).items():
            tally.released[holder] = tally.released.get(holder, Counter()) + releases
        return tally.released

    def _by_holder(self, lines: Sequence[LedgerLine | Entry]) -> dict[str, _Releases]:
        """How often each release happened, by holder."""
        by_holder: dict[str, _Releases] = {}
        for line in lines:
            releases = by_holder.setdefault(line.holder, Counter())
            for leaf, count in flatten(priced(line, self.unit, self.adjacency)):
                releases[noise_apart(leaf)] += count
        return by_holder

    def _allows(self, released: Mapping[str, _Releases], wanted: Mapping[str, _Releases]) -> bool:
        """True if nobody whom these releases concern has more of them, or less noisy ones, than were allowed before."""
        allowed = self._tally.allowed
        holders = set(wanted) - set(EVERYONE)
        if len(holders) < len(wanted):  # all are concerned by what everybody pays for
            holders = {*released, *wanted, EVERYONE[0]} - set(EVERYONE) or {EVERYONE[0]}
        return bool(allowed) and all(
            _within(_exposure(holder, released, wanted), _exposure(holder, allowed)) for holder in holders
        )


def _exposure(holder: str, *releases: Mapping[str, _Releases]) -> _Releases:
    """The releases that concern this holder, those of everyone included."""
    names = {holder, *EVERYONE}
    return sum((group[name] for group in releases for name in names if name in group), Counter())


def _within(releases: _Releases, allowed: _Releases) -> bool:
    """Whether each release can be matched to an allowed one of its form with as much noise or less."""

    def up_to(noise: float, form: str, group: _Releases) -> int:
        return sum(count for (other, least), count in group.items() if other == form and least <= noise)

    return all(up_to(noise, form, releases) <= up_to(noise, form, allowed) for form, noise in releases)


def _table(data: Mapping[str, Any], path: Path, data_set: str | None) -> Mapping[str, Any]:
    data = data.get("budget", data)
    if data_set is not None and data_set in data:
        return data[data_set]
    named = {name for name, value in data.items() if isinstance(value, Mapping)}
    if named and "epsilon" not in data:
        raise BadInput(
            f"budget file {path} has no budget for data set {data_set!r}; {nearest(str(data_set), named)}"
        )
    return {name: value for name, value in data.items() if name not in named}
