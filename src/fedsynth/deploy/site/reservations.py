"""Releases that agreed runs may still make at a site: budget that no other run may take until they are over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsynth.data.atomic import OWNER_ONLY, write_file
from fedsynth.privacy.events import event_from_json, event_to_json
from fedsynth.privacy.ledger import Entry, Ledger

_FIELDS = ("release", "holder", "unit", "trust", "count", "run")


class Reservations:
    """The plans of the runs that were begun, by name, in one file beside the ledger.

    Every call is made while the ledger is held (`Ledger.locked`), so that two runs cannot both take the last of it.
    """

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._path = path
        self._ledger = ledger

    def _read(self) -> dict[str, dict[str, Any]]:
        return json.loads(self._path.read_text()) if self._path.exists() else {}

    def _write(self, plans: dict[str, dict[str, Any]]) -> None:
        write_file(self._path, json.dumps(plans), OWNER_ONLY)

    def names(self) -> list[str]:
        """The runs that have reserved something, used up or not."""
        return sorted(self._read())

    def put(self, name: str, entries: Sequence[Entry]) -> None:
        """Reserve these releases for a run, in the place of what it had reserved before."""
        planned = [
            {**{key: getattr(entry, key) for key in _FIELDS}, "event": event_to_json(entry.event)}
            for entry in entries
        ]
        self._write({**self._read(), name: {"since": len(self._ledger.lines()), "releases": planned}})

    def drop(self, name: str) -> None:
        """Release what a run did not use."""
        plans = self._read()
        if plans.pop(name, None) is not None:
            self._write(plans)

    def left(self, name: str) -> list[Entry]:
        """Return the releases that this run has reserved and not made yet."""
        return self._left(name, self._read()[name]) if name in self._read() else []

    def of_others(self, name: str) -> list[Entry]:
        """Return the releases that other runs have reserved and not made yet."""
        return [
            entry
            for other, plan in self._read().items()
            if other != name
            for entry in self._left(other, plan)
        ]

    def _left(self, name: str, plan: dict[str, Any]) -> list[Entry]:
        counts: Counter[tuple[str, str]] = Counter()
        steps = any(
            one["run"] != name for one in plan["releases"]
        )  # an agreement, whose runs have other names
        for line in self._ledger.lines(plan["since"]):
            if line.run == name or (steps and line.run.startswith(f"{name}-")):
                counts[line.release, line.holder] += line.count
        left = []
        for one in plan["releases"]:
            entry = Entry(event_from_json(one["event"]), **{key: one[key] for key in _FIELDS})
            used = min(entry.count, counts[entry.release, entry.holder])
            counts[entry.release, entry.holder] -= used
            left.append(replace(entry, count=entry.count - used))
        return [entry for entry in left if entry.count]
