"""From a recipe of rounds to the same recipe with a buffer of whoever comes first."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.fedbuff import STALENESS, FedBuff
from fedsynth.privacy.banded import BandedGaussian
from fedsynth.privacy.central import CentralGaussian
from fedsynth.recipes.settings import checked, setting
from fedsynth.recipes.task import Task
from fedsynth.transport.registry import transport_named


@dataclass(frozen=True)
@checked
class Buffering:
    """When an asynchronous server steps, and how often a client may be in a step."""

    buffer: int = setting(
        0, "updates in a version of an asynchronous run (0: as the recipe says)", 0, role="clients"
    )
    concurrency: int = setting(
        0, "clients at work at a time, where buffered (0: twice the buffer)", 0, role="clients"
    )
    turns: int = setting(0, "versions a client may be in, where buffered (0: one and a half even shares)", 0)
    separation: int = setting(
        1, "versions from one use of a client to its next, where buffered", 1, role="clients"
    )
    staleness: str = setting(
        "auto", "sqrt, constant, or auto: sqrt where messages can be weighted", choices=(*STALENESS, "auto")
    )

    def build(self, task: Task, rounds: int, *, weighted: bool) -> FedBuff:
        """The schedule for the task's clients and so many versions."""
        buffer = self.buffer or min(10, math.ceil(task.clients / 2))
        able = weighted and not transport_named(task.transport).blind
        return FedBuff(
            task.clients,
            self.concurrency or min(task.clients, 2 * buffer),
            buffer,
            self.separation,
            self.turns or math.ceil(1.5 * rounds * buffer / task.clients),
            ("sqrt" if able else "constant") if self.staleness == "auto" else self.staleness,
        )


def buffered(algorithm: Algorithm, task: Task, buffering: Buffering) -> Algorithm:
    """The algorithm with a buffer in place of rounds, if one is asked for; else as it is.

    Noise at the server is then correlated over versions and costs a client by how often it was used, since nobody's
    absence is secret any more. A larger `separation` lets more of that noise cancel.
    """
    if not buffering.buffer:
        return algorithm
    central = task.private and task.trust == "central"
    schedule = buffering.build(task, algorithm.rounds, weighted=not central)
    if not central:
        return replace(algorithm, schedule=schedule)
    noise = cast(CentralGaussian, algorithm.mechanism)
    mechanism = BandedGaussian(
        noise.clip,
        noise.noise_multiplier,
        schedule.separation,
        schedule.participations(algorithm.rounds),
    )
    return replace(algorithm, schedule=schedule, mechanism=mechanism)
