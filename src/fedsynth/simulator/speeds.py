"""How fast simulated clients are: most alike, some stragglers, and now and then one that never answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from fedsynth.errors import BadInput, nearest
from fedsynth.rng import Rng


@dataclass(frozen=True)
class Speeds:
    """The simulated seconds that a client's round takes.

    A client has a pace of its own, log-normal around `typical_s`; a share of `stragglers` is `factor` times slower.
    Each round varies by `jitter`, and with the chance `dropouts` its result gets lost.
    """

    typical_s: float = 60.0
    spread: float = 0.5
    stragglers: float = 0.0
    factor: float = 10.0
    jitter: float = 0.1
    dropouts: float = 0.0

    def __post_init__(self) -> None:
        shares = {"stragglers": self.stragglers, "dropouts": self.dropouts}
        wrong = [f"{name}={value:g}" for name, value in shares.items() if not 0 <= value < 1]
        if wrong:
            raise BadInput(f"{', '.join(wrong)}: expected a share of at least 0 and below 1")
        if not (self.typical_s > 0 and self.factor >= 1 and self.spread >= 0 and self.jitter >= 0):
            raise BadInput(
                f"typical_s={self.typical_s:g}, factor={self.factor:g}, spread={self.spread:g}, jitter={self.jitter:g}"
                ": expected a positive time, a factor of at least 1, and spreads of 0 or more"
            )

    @classmethod
    def parse(cls, text: str) -> Speeds:
        """Read `--simulate-speeds`: "default", or names and values.

        >>> Speeds.parse("stragglers=0.1,factor=20").factor
        20.0
        """
        known = [item.name for item in fields(cls)]
        numbers: dict[str, float] = {}
        for pair in [] if text == "default" else text.split(","):
            name, equals, value = (piece.strip() for piece in pair.partition("="))
            if name not in known or not equals:
                raise BadInput(f"simulate_speeds: {pair!r}: expected NAME=VALUE; {nearest(name, known)}")
            try:
                numbers[name] = float(value)
            except ValueError:
                raise BadInput(f"simulate_speeds: {pair!r}: expected a number") from None
        if any(not math.isfinite(value) for value in numbers.values()):
            raise BadInput(f"simulate_speeds: {text!r}: expected finite numbers")
        return cls(**numbers)

    def paces(self, clients: int, rng: Rng) -> np.ndarray:
        """Simulated seconds [clients] that each client's round takes, more or less."""
        drawn = rng.at("pace").numpy()
        paces = self.typical_s * np.exp(self.spread * drawn.standard_normal(clients))
        slow = drawn.permutation(clients)[: round(self.stragglers * clients)]
        paces[slow] *= self.factor
        return paces

    def journey(self, pace: float, rng: Rng) -> tuple[float, bool]:
        """How long one round of a client of this pace takes, and whether its result gets lost."""
        drawn = rng.numpy()
        return pace * math.exp(self.jitter * drawn.standard_normal()), bool(drawn.random() < self.dropouts)
