"""Who pays: every release is written into the run's ledger, and into the data owner's where there is a policy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedsynth.data.schema import Schema
from fedsynth.errors import NotPrivate
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.schedule import Clock
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.chain import head_path
from fedsynth.privacy.ledger import Entry, Ledger, LedgerLine
from fedsynth.privacy.mechanism import Charge, Unit, When
from fedsynth.recipes.budget import Target
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import beside

_NOBODY = np.empty(0, dtype=np.int64)
_TYPES_FOR_FREE = "bounds and categories"  # the release of schemas whose types had been read from the rows


def ledger_of(schema: Schema, path: Path | str | None) -> Ledger | None:
    """Return the ledger beside a schema's file, if any of it was paid for; every use of the schema goes on from it."""
    paid = schema.paid()
    if not paid:
        return None
    place = None if path is None else beside(path)
    if place is None or not (place.is_file() and head_path(place).is_file()):
        raise NotPrivate(
            f"columns {', '.join(paid)} are marked paid, but there is no ledger beside the schema "
            f"({place or 'no schema file named'}); keep the two files together"
        )
    ledger = Ledger(place)
    if any(line.release == _TYPES_FOR_FREE for line in ledger.lines()):
        raise NotPrivate(
            f"{path}: the rows paid for bounds and categories, but the types of its columns were read without "
            "paying, as fedsynth did at that time; draft it again with --pay, or mark the columns inferred"
        )
    return ledger


def check_payer(schema: Schema, client_column: str | None, unit: Unit) -> None:
    """Refuse a promise to clients on a schema that other clients paid for: its cost would be that of somebody else.

    A promise to records is not touched: whoever a record belongs to, what its owner paid covers it.
    """
    payer = schema.client if schema.paid() else None
    if unit == "client" and payer is not None and client_column != payer:
        now = "simulated clients" if client_column is None else f"the clients of column {client_column!r}"
        raise NotPrivate(
            f"the clients of column {payer!r} paid for the schema, and this run would protect {now}; use "
            f"--client-column {payer!r}, or pay for a schema with the column that is to be protected"
        )


@dataclass(frozen=True)
class BudgetPolicy:
    """The most that may ever be spent on a data set, and the ledger of all runs on it, beside the policy's file."""

    budget: Budget
    ledger: Ledger

    @classmethod
    def load(cls, path: Path | str) -> BudgetPolicy:
        """Read a budget file; its ledger is created with the first release."""
        return cls(Budget.load(path), Ledger(beside(path)))

    def count(self, schema: Ledger) -> None:
        """Write down what a schema of these data cost, once for however many runs on it.

        It was spent before anybody asked the policy, so it is never refused; what comes after it is.
        """
        with self.ledger.locked():
            known = {line.run for line in self.ledger.lines()}
            lines = [line for line in schema.lines() if _mark(line) not in known]
            self.ledger.append_all([replace(line.entry, run=_mark(line)) for line in lines])


def _mark(line: LedgerLine) -> str:
    """A name for one line of a schema's ledger, by which it is known again."""
    return f"schema {line.hash[:16]}"


@dataclass(frozen=True)
class Payer:
    """Pays for the releases of one run, and never more than its `cap`: whatever its ledger holds, from whomever."""

    ledger: Ledger
    name: str
    policy: BudgetPolicy | None = None
    cap: Budget | None = None

    def capped(self, target: Target, unit: Unit, adjacency: str) -> Payer:
        """The same, with the epsilon that was asked for as the most that the run may ever spend."""
        return replace(self, cap=Budget(target.epsilon, target.delta, unit, adjacency))

    def begin_with(self, schema: Ledger) -> None:
        """Count what the schema cost these data: first in the run's ledger, and in the owner's."""
        self.ledger.adopt(schema)
        if self.policy is not None:
            self.policy.count(schema)

    def pay(self, when: When, charges: list[Charge], ids: np.ndarray) -> None:
        """Make the lines of a release durable, the owner's first; refuse it whole if the policy does not allow it."""
        self._spend([entry for charge in charges for entry in self._entries(when, charge, ids)])

    def pay_once(self, when: When, charges: list[Charge], ids: np.ndarray) -> None:
        """Pay for a round that may have been paid for before a crash: what a client sent itself costs it once.

        Only for messages that were kept. Noise that a server draws a second time is a second release.
        """
        paid = Counter(
            (line.holder, line.release, line.round)
            for line in self.ledger.lines()
            if line.run == self.name and line.trust == "local"
        )
        entries = []
        for entry in (entry for charge in charges for entry in self._entries(when, charge, ids)):
            sent = entry.holder, entry.release, entry.round
            if paid[sent]:
                paid[sent] -= 1
            else:
                entries.append(entry)
        self._spend(entries)

    def _spend(self, entries: list[Entry]) -> None:
        if not entries:
            return
        with self.ledger.locked():  # nobody writes between the look at what was spent and the new lines
            if self.cap is not None:
                self.cap.check_all(self.ledger, entries)
            if self.policy is not None:
                self.policy.budget.spend_all(self.policy.ledger, entries)
            self.ledger.append_all(entries)

    def approve(self, algorithm: Algorithm, rounds: int) -> None:
        """Refuse the rest of a run before its next round, if policy and cap do not allow so many rounds more.

        They then let these rounds through without a new look at what all of them cost.
        """
        if self.policy is None and self.cap is None:
            return
        answering, training = _apart(algorithm)
        entries: list[Entry] = []
        for charge in algorithm.charges():
            if charge.holder != "client":
                entries += self._entries(When(), charge, training, rounds)
                continue
            turns, paid = algorithm.schedule.participations(algorithm.rounds), self._rounds_paid(charge)
            everyone = np.arange(algorithm.schedule.clients) if paid and not len(training) else training
            for entry in self._entries(When(), charge, everyone):
                times = max(0, turns - paid[entry.holder])
                entries.append(replace(entry, count=entry.count * times))
        for charge in [] if algorithm.opening is None else algorithm.opening.charges():
            if not any(line.release == charge.release.what for line in self.ledger.lines()):
                entries += self._entries(When(), charge, answering)
        entries = [entry for entry in entries if entry.count]
        if entries and self.policy is not None:
            self.policy.budget.check_all(self.policy.ledger, entries)
        if entries and self.cap is not None:
            self.cap.check_all(self.ledger, entries)

    def _rounds_paid(self, charge: Charge) -> Counter[str]:
        """The rounds that each holder paid for, whoever wrote them into the run's ledger."""
        name = charge.release.what
        return Counter(line.holder for line in self.ledger.lines() if line.round and line.release == name)

    def _entries(self, when: When, charge: Charge, ids: np.ndarray, times: int = 1) -> list[Entry]:
        """One line for the server, or one for each client that spends its own budget."""
        holders = (
            [str(client) for client in ids] if charge.holder == "client" and len(ids) else [charge.holder]
        )
        return [Entry.of(charge, holder, self.name, when, times) for holder in holders]


def _apart(algorithm: Algorithm) -> tuple[np.ndarray, np.ndarray]:
    """Who answers and who trains, where these are different clients; nobody by name where all do both."""
    opening = algorithm.opening
    if opening is None or not opening.apart:
        return _NOBODY, _NOBODY
    answering = opening.schedule.start(Clock(0), Rng(0))  # in turn, so nothing is drawn
    return answering, np.setdiff1d(np.arange(algorithm.schedule.clients), answering)
