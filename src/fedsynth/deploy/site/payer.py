"""A site's payments for a run: from its own objects, before anything leaves, never twice for one release.

Noise that the server adds protects the site's clients whether they were drawn or not, and amplification by sampling
counts both cases: so each round of the run is paid for, also those in which no client of the site was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from fedsynth.deploy.site.reservations import Reservations
from fedsynth.errors import BudgetExhausted
from fedsynth.federation.algorithm import Algorithm, Job
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Entry, Ledger, LedgerLine
from fedsynth.privacy.mechanism import Charge, When


class _Paid(NamedTuple):
    """The key by which a release is recognised."""

    release: str
    round: int
    session: int
    holder: str


class SitePayer:
    """Pays for one run out of the site's budget, and never more than the run was agreed for (`cap`)."""

    def __init__(
        self,
        run: str,
        algorithm: Algorithm,
        ledger: Ledger,
        budget: Budget,
        cap: Budget | None,
        names: Sequence[str],
        agreement: str = "",
        reserved: Reservations | None = None,
    ) -> None:
        """`names` are those of the site's clients, in order: a local release is written down under its client's.

        All runs whose names begin with that of the `agreement` share the cap.
        """
        self._run = run
        self._algorithm = algorithm
        self._ledger = ledger
        self._budget = budget
        self._cap = cap
        self._names = names
        self._reserved = reserved
        self._agreement = agreement
        self._own = Ledger(None)  # the lines of the run, or of the agreement that it belongs to
        agreed = [line for line in ledger.lines() if line.run == run or _belongs(line.run, agreement)]
        self._own.append_all([line.entry for line in agreed])
        self._paid = {_named(line) for line in agreed if line.run == run}
        self._asked_for_all = False  # whether the cap was asked for all that is left of the run
        self._caught_up = 0  # rounds up to here are known to be paid for

    @property
    def shown(self) -> str:
        """The length and the last hash of the site's ledger, for the server."""
        return self._ledger.shown

    @property
    def rounds(self) -> int:
        """How many rounds were paid for, those counted that were asked twice."""
        return max(Counter(paid.holder for paid in self._paid if paid.round).values(), default=0)

    def approve(self, whole: Sequence[tuple[Charge, int]] = ()) -> None:
        """Reserve the budget for all that is left of a run; refuse the run if others have left too little.

        `whole` is what all runs of the agreement cost: asked for before the first of them.
        """
        if whole and not self._own.lines():
            planned = [Entry.of(charge, charge.holder, self._run, When(), times) for charge, times in whole]
            self._check(planned)
            self._reserve(planned)
            return
        entries = self._left()
        if entries:
            self._check(entries)
            self._reserve(entries)

    def _left(self) -> list[Entry]:
        """Return the releases that the rest of the run would make."""
        algorithm = self._algorithm
        turns = algorithm.schedule.participations(algorithm.rounds)
        entries: list[Entry] = []
        for charge in algorithm.charges():
            times, paid = turns if charge.holder == "client" else algorithm.rounds, self._rounds(charge)
            for holder in self._holders(charge, np.arange(len(self._names))):
                entries.append(Entry.of(charge, holder, self._run, When(), max(0, times - paid[holder])))
        for charge in [] if algorithm.opening is None else algorithm.opening.charges():
            entries += self._owed(charge, [When()], np.arange(len(self._names)))
        return [entry for entry in entries if entry.count]

    def release(self) -> None:
        """Let other runs have what this one reserved and did not use."""
        if self._reserved is not None:
            with self._ledger.locked():
                self._reserved.drop(self._agreement or self._run)

    def _reserve(self, entries: Sequence[Entry]) -> None:
        with self._ledger.locked():
            self._check_budget(entries)
            started = self._agreement and self._own.lines()  # the agreement's first step reserved all of it
            if self._reserved is not None and not started:
                self._reserved.put(self._agreement or self._run, entries)

    def _check_budget(self, entries: Sequence[Entry]) -> None:
        """Refuse what does not fit beside all that was released and all that other runs were promised."""
        name = self._agreement or self._run
        others = [] if self._reserved is None else self._reserved.of_others(name)
        if others and self._reserved is not None:  # asked once for all of it, each round then passes at once
            with suppress(BudgetExhausted):
                self._budget.check_all(self._ledger, [*(self._reserved.left(name) or entries), *others])
        try:
            self._budget.check_all(self._ledger, [*entries, *others])
        except BudgetExhausted as error:
            if not others:
                raise
            runs = ", ".join(sorted({entry.run for entry in others}))
            raise BudgetExhausted(
                f"{error}; it counts what is reserved for {runs} until that is over"
            ) from None

    def had_their_turns(self, version: int, clients: np.ndarray, again: int = 0) -> bool:
        """Whether some of these clients were in as many versions as any may be, by this site's own books."""
        most = self._algorithm.schedule.participations(self._algorithm.rounds)
        for charge in self._algorithm.charges():
            owed, rounds = self._owed(charge, [When(version + 1, again)], clients), self._rounds(charge)
            if any(rounds[entry.holder] >= most for entry in owed):
                return True
        return False

    def pay(self, job: Job, version: int, clients: np.ndarray, again: int = 0) -> list[Entry]:
        """Make durable what an answer to this job costs `clients` (numbers within the site); the new lines.

        `again` is the session in which the server asks for it once more: that is one more release.
        """
        entries = []
        for charge in job.charges():
            training = job is self._algorithm
            missed = self._missed(version) if training and charge.amplified else []
            now = When(version + 1 if training else 0, again)
            entries += self._owed(charge, [*missed, now], clients)
        self._spend(entries)
        if job is self._algorithm:
            self._caught_up = max(self._caught_up, version)
        return entries

    def catch_up(self, version: int) -> None:
        """Pay for the rounds up to `version` that were sampled without asking here; they have happened."""
        entries: list[Entry] = []
        for charge in self._algorithm.charges():
            if charge.amplified:
                entries += self._owed(charge, self._missed(version), np.empty(0, dtype=np.int64))
        self._spend(entries)
        self._caught_up = max(self._caught_up, version)

    def pay_for_the_rest(self, version: int) -> None:
        """Pay for the planned rounds after `version`, where training began and will not go on.

        If the server stopped because of what was released, only the whole plan bounds what that tells.
        """
        rounds, schedule = self._algorithm.rounds, self._algorithm.schedule
        entries: list[Entry] = []
        for charge in self._algorithm.charges():
            paid = max(self._rounds(charge).values(), default=0)
            last = max([version, *(one.round for one in self._paid if one.release == charge.release.what)])
            planned = schedule.participations(rounds) if charge.holder == "client" else rounds
            rest = min(rounds - last, planned - paid)
            if paid and rest > 0:
                when = When(note=f"{rest} of {rounds} rounds planned and not run")
                entries.append(Entry.of(charge, charge.holder, self._run, when, rest))
        self._spend(entries)

    def _spend(self, entries: Sequence[Entry]) -> None:
        """Make lines durable, if the run's cap and the site's budget allow all of them."""
        if entries:
            self._check(entries)
            with self._ledger.locked():
                self._check_budget(entries)
                self._ledger.append_all(entries)
            self._note(entries)

    def _missed(self, version: int) -> list[When]:
        return [When(number) for number in range(self._caught_up + 1, version + 1)]

    def _rounds(self, charge: Charge) -> Counter[str]:
        """How many rounds of this kind each holder paid for."""
        name = charge.release.what
        return Counter(paid.holder for paid in self._paid if paid.round and paid.release == name)

    def _check(self, entries: Sequence[Entry]) -> None:
        if self._cap is None:
            return
        if not self._asked_for_all:  # once, so that each round then passes at once
            self._asked_for_all = True
            with suppress(BudgetExhausted):
                self._cap.check_all(self._own, self._left())
        self._cap.check_all(self._own, entries)

    def _note(self, entries: Sequence[Entry]) -> None:
        self._own.append_all(entries)
        self._paid |= {_named(entry) for entry in entries}

    def _owed(self, charge: Charge, times: Sequence[When], clients: np.ndarray) -> list[Entry]:
        holders = self._holders(charge, clients)
        entries = [Entry.of(charge, holder, self._run, when) for when in times for holder in holders]
        return [entry for entry in entries if _named(entry) not in self._paid]

    def _holders(self, charge: Charge, clients: np.ndarray) -> list[str]:
        if charge.holder == "client":
            return [f"client {self._names[client]}" for client in clients]
        return [charge.holder]


def _belongs(run: str, agreement: str) -> bool:
    return bool(agreement) and run.startswith(f"{agreement}-")


def _named(paid: Entry | LedgerLine) -> _Paid:
    return _Paid(paid.release, paid.round, paid.session, paid.holder)
