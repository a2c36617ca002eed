"""One noisy sum that a schema is learned from, its cost in the ledger first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from dp_accounting import GaussianDpEvent
from torch import Tensor

from fedsynth.data.clients import Clients
from fedsynth.federation.loop import ask
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import CellShares, Holdings
from fedsynth.privacy import account
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Unit
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.payer import Payer

SELECTION = 0.5  # share of delta for showing a value that only one unit holds


@cache
def noise_of(epsilon: float, delta: float, parts: tuple[float, ...]) -> tuple[float, ...]:
    """The noise multipliers of several Gaussian sums that together cost epsilon at their share of delta.

    `parts` says how the budget is shared out, as parts of 1 / noise².
    """
    shares = [part / sum(parts) for part in parts]
    noise = account.calibrate(
        lambda z: account.compose([GaussianDpEvent(z / share**0.5) for share in shares]),
        epsilon,
        delta * (1 - SELECTION),
    )
    return tuple(noise / share**0.5 for share in shares)


def clients_with(codes: np.ndarray, offsets: np.ndarray) -> Clients:
    """Clients whose rows are codes, [rows, columns], sorted by client."""
    rows = torch.from_numpy(codes.astype(np.float32))
    return Clients(rows, torch.zeros(len(rows), dtype=torch.int64), offsets.astype(np.int64))


@dataclass(frozen=True)
class Payers:
    """Asks the units of a data set, one noisy sum at a time, and writes what each costs into the schema's ledger."""

    unit: Unit
    ledger: Ledger
    rng: Rng

    def shares(self, what: str, learn: CellShares, clients: Clients, noise: float) -> np.ndarray:
        """The noisy sums of the units' shares, [columns, size]."""
        noisy = self._ask(what, learn, learn.columns * learn.size, clients, noise)
        return noisy.numpy().reshape(learn.columns, learn.size)

    def holdings(
        self, what: str, learn: Holdings, clients: Clients, noise: float, delta: float
    ) -> tuple[list[np.ndarray], float]:
        """Noisy weights of each column's values, and the weight above which a value may be shown.

        That a value which one unit alone holds is shown has a chance of at most SELECTION * delta over all columns;
        the ledger line says so.
        """
        lone = account.EpsilonDeltaDpEvent(0.0, delta * SELECTION)
        self.ledger.append(lone, what=f"showing what one {self.unit} holds", unit=self.unit, run="schema")
        noisy = self._ask(what, learn, sum(learn.sizes), clients, noise)
        # A step of the grid more, because the noise is discrete: its tail lies within a step of the normal one's
        # (Canonne, Kamath and Steinke 2020).
        threshold = learn.threshold(noise, delta * SELECTION) + Clip(1.0).step
        return [block.numpy() for block in torch.split(noisy, list(learn.sizes))], threshold

    def _ask(
        self, what: str, learn: CellShares | Holdings, dim: int, clients: Clients, noise: float
    ) -> Tensor:
        query = Query(what, learn, dim, CentralGaussian(Clip(1.0), noise), len(clients), self.unit)
        pay = Payer(self.ledger, "schema").pay
        return ask(query, InProcess(clients, self.rng), ServerState(0, {}), self.rng, pay)
