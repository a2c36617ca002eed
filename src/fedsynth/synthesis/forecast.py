"""The time and memory of a simulated run, measured before it starts: a few clients work once, nothing is kept."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsynth.data.clients import Clients
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.loop import with_opening_answer
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess

LONGEST_S = 24 * 3600.0
_WARM_S = 0.2  # a first step that took longer is no longer about loading code


@dataclass(frozen=True)
class Forecast:
    """Time and disk of a whole run."""

    seconds: float
    disk: float  # bytes that simulated clients keep between rounds
    rounds: int
    cohort: float

    def __str__(self) -> str:
        kept = f", {self.disk / 1e9:.1f} GB on disk for what clients keep" if self.disk > 1e8 else ""
        rounds = f"{self.rounds:,} round{'' if self.rounds == 1 else 's'} of {self.cohort:,.4g} clients"
        return f"about {_duration(self.seconds)} ({rounds}){kept}"

    def refuse_absurd(self, folder: Path, recipe: str) -> None:
        """Refuse a run that nobody would wait for, or that does not fit on the disk."""
        free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
        if self.seconds <= LONGEST_S and self.disk <= 0.8 * free:
            return
        space = f", and {free / 1e9:.1f} GB of disk are free" if self.disk > 0.8 * free else ""
        raise BadInput(
            f"{recipe}: this run would take {self}{space}; use fewer rounds or clients, or the recipe that "
            "--recipe auto takes, or say --accept cost to start it all the same"
        )


def forecast(algorithm: Algorithm, blank: Clients, device: str, rng: Rng) -> Forecast | None:
    """Let the first few clients of a cohort work once, on blank rows and a throwaway copy of the start, and multiply.

    None where the recipe makes nothing of a made-up answer to its opening question.
    """
    state = algorithm.init(rng.at("rehearsal"))
    if algorithm.opening is not None:
        answer = torch.full((algorithm.opening.wire.dim,), float(len(blank)))
        try:
            state = with_opening_answer(algorithm, state, answer, rng.at("rehearsal"))
        except FedsynthError:
            return None
    cohort = algorithm.schedule.expected
    link = InProcess(blank, rng.at("rehearsal"), device=device.partition(",")[0])
    ids = np.arange(min(len(blank), max(1, round(cohort))))
    link.start(algorithm, ids, state)
    began = time.perf_counter()
    total = algorithm.transport.zero(algorithm.wire)  # masks are agreed on by the whole cohort
    before = time.perf_counter() - began
    seconds, count = _seconds_of_chunk(algorithm, link, total)
    if seconds < _WARM_S and link.waiting:
        seconds, count = _seconds_of_chunk(algorithm, link, total)
    width = sum(part.numel() for part in algorithm.blank(state).values())
    turns = min(len(blank), cohort * algorithm.rounds)
    disk = 4.0 * width * (turns + cohort)  # a round is written beside the one before
    return Forecast((before + seconds / count * cohort) * algorithm.rounds, disk, algorithm.rounds, cohort)


def _seconds_of_chunk(algorithm: Algorithm, link: InProcess, total: Any) -> tuple[float, int]:
    """Seconds for the next chunk of clients, and how many they are."""
    began = time.perf_counter()
    arrival = link.next()
    algorithm.transport.absorb(algorithm.wire, total, arrival.messages, torch.ones(len(arrival.messages)))
    return time.perf_counter() - began, len(arrival.ids)


def _duration(seconds: float) -> str:
    """Seconds in the unit that people use.

    >>> _duration(42), _duration(600), _duration(493781)
    ('42 s', '10 minutes', '137 hours')
    """
    if seconds < 100:
        return f"{max(1, seconds):.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
