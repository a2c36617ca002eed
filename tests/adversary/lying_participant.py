"""A fellow site that helps the server: it speaks the protocol, sends what it likes, and tells all it knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import torch
from small_world import CLIENTS, composed, identities

from fedsynth.deploy.link.masked import MaskingSite
from fedsynth.deploy.link.messages import Terms
from fedsynth.errors import FedsynthError
from fedsynth.transport.agreement import Agreement, dump
from fedsynth.transport.bits import pack
from fedsynth.transport.masking_client import OWN, PAIRED, signed_survivors
from fedsynth.transport.shamir import SHARE

VECTORS = ("nothing", "huge", "random", "too short", "too long")
STEPS = ("advertise", "share", "mask", "vector", "confirm", "reveal")


@dataclass
class Participant:
    """One that adds no noise: a sum with it in it has the noise of the honest alone, as if it took its own away.

    `leaves_at` is the step from which it is silent. `clients` is the number of clients that it claims.
    """

    name: str
    run: str
    terms: Terms
    folder: Path
    vector: str = "nothing"
    leaves_at: str = ""
    clients: int = CLIENTS
    half: MaskingSite = field(init=False)
    shares: dict[int, bytes] = field(default_factory=dict)  # of others' secrets, both kinds

    def __post_init__(self) -> None:
        known = {site: identity.public for site, identity in identities().items()}
        identity, algorithm = identities()[self.name], composed(self.terms)
        self.half = MaskingSite(self.run, algorithm, self.folder, self.name, identity, known, 2, self.clients)

    @property
    def agreement(self) -> Agreement:
        """The terms of the round it is in."""
        return self.half._current.agreement

    def forget(self) -> None:
        """Begin afresh: nothing of an earlier round is left."""
        self.half._round, self.half._delivered, self.shares = None, b"", {}
        self.half._answers.clear()

    def stage(self, name: str, payload: bytes) -> bytes | None:
        """Its answer; None if it is silent or cannot go on."""
        if self._silent(name):
            return None
        try:
            return self.half.stage(0, name, payload)
        except FedsynthError:
            return None

    def _silent(self, step: str) -> bool:
        return bool(self.leaves_at) and STEPS.index(step) >= STEPS.index(self.leaves_at)

    def masked(self, random: Random) -> bytes | None:
        """Its vector under its masks, of any length and norm."""
        if self._silent("vector") or not self.half._delivered:
            return None
        terms = self.agreement
        values = {
            "huge": lambda: torch.full((terms.dim,), 2**terms.bits - 1, dtype=torch.int64),
            "random": lambda: torch.tensor([random.randrange(2**terms.bits) for _ in range(terms.dim)]),
        }.get(self.vector, lambda: torch.zeros(terms.dim, dtype=torch.int64))()
        try:
            sealed = self.half._current.answer("mask", self.half._delivered, values.numpy())
        except FedsynthError:
            return None
        self.shares = dict(self.half._current._held)
        if self.vector in ("too short", "too long"):
            size = terms.dim + (1 if self.vector == "too long" else -1)
            return pack(np.zeros(size, dtype=np.uint32), terms.bits)
        return sealed

    def signature(self, survivors: tuple[int, ...]) -> bytes:
        """Its signature under any list of survivors, as often as the server wants one."""
        return self.half.identity.sign(signed_survivors(self.agreement, dump(survivors)))

    def secrets(self) -> dict[bytes, bytes]:
        """Its own secrets, by kind."""
        current = self.half._current
        return {OWN: current._own, PAIRED: current._masking.secret}

    def told_shares(self) -> list[tuple[int, bytes, bytes]]:
        """Owner, kind and share of all secrets that others shared with it, of both kinds."""
        return [
            (owner, kind, both[:SHARE] if kind == OWN else both[SHARE:])
            for owner, both in self.shares.items()
            for kind in (OWN, PAIRED)
        ]
