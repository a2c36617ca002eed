"""What a site pays for a run: from its own objects, before anything leaves, never twice for one release.

Noise that the server adds protects the site's clients whether they were drawn or not, and amplification by sampling
counts both cases: so each round of the run is paid for, also those in which no client of the site was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fedsynth.federation.algorithm import Algorithm, Job
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.events import event_from_json
from fedsynth.privacy.ledger import Entry, Ledger, Line
from fedsynth.privacy.mechanism import Charge


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
        self._own = Ledger(None)  # the lines of the run, or of the agreement that it belongs to
        agreed = [line for line in ledger.lines() if line.run == run or _belongs(line.run, agreement)]
        self._own.append_all([_entry_of(line) for line in agreed])
        self._paid = {(line.what, line.holder) for line in agreed if line.run == run}
        self._caught_up = 0  # rounds up to here are known to be paid for

    @property
    def rounds(self) -> int:
        """How many rounds were paid for, those counted that were asked twice."""
        holders: dict[str, int] = {}
        for what, holder in self._paid:
            holders[holder] = holders.get(holder, 0) + (", round " in what)
        return max(holders.values(), default=0)

    def approve(self, whole: Sequence[tuple[Charge, int]] = ()) -> None:
        """Refuse a whole run before its first round, if the budget does not allow all that is left of it.

        `whole` is what all runs of the agreement cost: asked for before the first of them.
        """
        if whole and not self._own.lines():
            asked = [self._entry(charge, "", charge.holder, times) for charge, times in whole]
            self._check(asked)
            self._budget.check_all(self._ledger, asked)
            return
        algorithm = self._algorithm
        turns = algorithm.schedule.participations(algorithm.rounds)
        entries: list[Entry] = []
        for charge in algorithm.charges():
            times = turns if charge.holder == "client" else algorithm.rounds
            for holder in self._holders(charge, np.arange(len(self._names))):
                done = sum(
                    who == holder and what.startswith(f"{charge.release.what}, round ")
                    for what, who in self._paid
                )
                entries.append(self._entry(charge, "", holder, max(0, times - done)))
        for charge in [] if algorithm.opening is None else algorithm.opening.charges():
            for holder in self._holders(charge, np.arange(len(self._names))):
                if (charge.release.what, holder) not in self._paid:
                    entries.append(self._entry(charge, "", holder))
        entries = [entry for entry in entries if entry.count]
        if entries:
            self._check(entries)
            self._budget.check_all(self._ledger, entries)

    def had_their_turns(self, version: int, clients: np.ndarray, again: str = "") -> bool:
        """Whether some of these clients were in as many versions as any may be, by this site's own books."""
        most = self._algorithm.schedule.participations(self._algorithm.rounds)
        for charge in self._algorithm.charges():
            owed = self._owed(charge, [f"round {version + 1}{again}"], clients)
            for holder in {entry.holder for entry in owed}:
                label = f"{charge.release.what}, round "
                if sum(who == holder and what.startswith(label) for what, who in self._paid) >= most:
                    return True
        return False

    def pay(self, job: Job, version: int, clients: np.ndarray, again: str = "") -> list[Entry]:
        """Make durable what an answer to this job costs `clients` (numbers within the site); the new lines.

        `again` tells a repetition apart from the first time: it is one more release.
        """
        entries = []
        for charge in job.charges():
            if job is not self._algorithm:
                labels = [again]
            elif charge.event != charge.release.event:
                labels = [*self._missed(version), f"round {version + 1}{again}"]
            else:
                labels = [f"round {version + 1}{again}"]
            entries += self._owed(charge, labels, clients)
        self._spend(entries)
        if job is self._algorithm:
            self._caught_up = max(self._caught_up, version)
        return entries

    def catch_up(self, version: int) -> None:
        """Pay for the rounds up to `version` that were sampled without asking here; they have happened."""
        entries: list[Entry] = []
        for charge in self._algorithm.charges():
            if charge.event != charge.release.event:
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
            label = f"{charge.release.what}, round "
            own = [(what, holder) for what, holder in self._paid if what.startswith(label)]
            paid = max(Counter(holder for _, holder in own).values(), default=0)
            last = max([version, *(int(what.removeprefix(label).partition(",")[0]) for what, _ in own)])
            planned = schedule.participations(rounds) if charge.holder == "client" else rounds
            rest = min(rounds - last, planned - paid)
            if paid and rest > 0:
                when = f"{rest} of {rounds} rounds planned and not run"
                entries.append(self._entry(charge, when, charge.holder, rest))
        self._spend(entries)

    def _spend(self, entries: Sequence[Entry]) -> None:
        """Make lines durable, if the run's cap and the site's budget allow all of them."""
        if entries:
            self._check(entries)
            self._budget.spend_all(self._ledger, entries)
            self._note(entries)

    def _missed(self, version: int) -> list[str]:
        return [f"round {number}" for number in range(self._caught_up + 1, version + 1)]

    def _check(self, entries: Sequence[Entry]) -> None:
        if self._cap is not None:
            self._cap.check_all(self._own, entries)

    def _note(self, entries: Sequence[Entry]) -> None:
        self._own.append_all(entries)
        self._paid |= {(entry.what, entry.holder) for entry in entries}

    def _owed(self, charge: Charge, labels: Sequence[str], clients: np.ndarray) -> list[Entry]:
        entries = [
            self._entry(charge, label, holder)
            for label in labels
            for holder in self._holders(charge, clients)
        ]
        return [entry for entry in entries if (entry.what, entry.holder) not in self._paid]

    def _holders(self, charge: Charge, clients: np.ndarray) -> list[str]:
        if charge.holder == "client":
            return [f"client {self._names[client]}" for client in clients]
        return [charge.holder]

    def _entry(self, charge: Charge, label: str, holder: str, times: int = 1) -> Entry:
        spent = charge.release
        what = f"{spent.what}, {label}" if label else spent.what
        count, public = spent.count * times, charge.public
        return Entry(charge.event, what, holder, spent.unit, spent.trust, count, self._run, public)


def _belongs(run: str, agreement: str) -> bool:
    return bool(agreement) and run.startswith(f"{agreement}-")


def _entry_of(line: Line) -> Entry:
    return Entry(
        event_from_json(line.event), line.what, line.holder, line.unit, line.trust, line.count, line.run
    )
