"""One-shot private statistics, down the same pipe as training: clip, noise, sum, ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.federation.schedule import Everyone, Schedule
from fedsynth.privacy.mechanism import Charge, Mechanism, Release, Unit
from fedsynth.rng import Rng
from fedsynth.transport.clear import Clear
from fedsynth.transport.transport import Transport
from fedsynth.transport.wire import Wire

if TYPE_CHECKING:
    from fedsynth.federation.state import ServerState

_AT_ONCE = 2**23  # numbers in a stack of records' answers
_NARROW = 128  # records at once where the statistic leaves out what none of them holds
Learn = Callable[["ServerState", Tensor, Rng], "ServerState"]


@dataclass(frozen=True)
class Query:
    """A vector of `dim` numbers from each unit, clipped, summed and noised once.

    For unit "record" the statistic is computed and clipped record by record, then summed at the client.
    """

    what: str
    statistic: Callable[[Padded], Tensor]
    dim: int
    mechanism: Mechanism
    clients: int
    unit: Unit = "client"
    among: Schedule | None = None  # who answers, if not everyone
    apart: bool = False  # whether those who answer take no part in anything else
    learn: Learn | None = None  # what the server makes of the answer, if it is not the class balance
    transport: Transport = field(default_factory=Clear)
    broadcast: ClassVar[tuple[str, ...]] = ()  # no part of a model is needed
    together: ClassVar[bool] = False  # each client sends its answer

    @property
    def release(self) -> Release | None:
        """The cost of the answer: the mechanism's release, for this unit and under this name."""
        spent = self.mechanism.release
        return None if spent is None else replace(spent, what=self.what, unit=self.unit)

    def charges(self) -> list[Charge]:
        """The cost of the answer in the ledger's form: who answers is known, so nothing is amplified."""
        return [] if self.release is None else [Charge(self.release, self.release.event, self.release.public)]

    @cached_property
    def schedule(self) -> Schedule:
        """All clients answer, once, or those of another schedule's first round."""
        return self.among or Everyone(self.clients)

    @cached_property
    def wire(self) -> Wire:
        """The form of an answer."""
        return self.mechanism.wire(self.dim)

    def blank(self, state: ServerState) -> dict[str, Tensor]:
        """Nothing is remembered."""
        return {}

    def client_round(
        self,
        state: ServerState,
        memory: dict[str, Tensor],
        data: Padded,
        ids: np.ndarray,
        rng: Rng,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The clients' clipped answers."""
        if self.unit == "client":
            answers = self.statistic(data)
            return self.mechanism.privatize(answers, {}, rng.at("privatize"), ids), {}
        at_once = max(1, _AT_ONCE // (self.dim * len(ids)))
        if hasattr(self.statistic, "narrowed"):
            at_once = max(at_once, _NARROW)
        total = torch.zeros(len(ids), self.dim, dtype=torch.float64, device=data.mask.device)
        for start in range(0, data.mask.shape[1], at_once):
            total += self._records(data, slice(start, start + at_once), ids, rng.at("privatize", start))
        seal = getattr(self.mechanism, "seal", None)  # where the noise is a client's own, it is added once
        return (total if seal is None else seal(total, rng.at("seal"), ids)), {}

    def _records(self, data: Padded, part: slice, ids: np.ndarray, rng: Rng) -> Tensor:
        """The sum of the clipped answers of some of each client's records, [clients, dim]."""
        x, y, mask = data.x[:, part], data.y[:, part], data.mask[:, part]
        rows = Padded(x.flatten(0, 1)[:, None], y.reshape(-1, 1), mask.reshape(-1, 1))
        owners = np.repeat(ids, mask.shape[1])
        narrow = getattr(self.statistic, "narrowed", None)
        statistic, rows, places = narrow(rows) if narrow else (self.statistic, rows, slice(None))
        answers = self.mechanism.privatize(statistic(rows), {}, rng, owners)
        total = torch.zeros(len(ids), self.dim, dtype=torch.float64, device=mask.device)
        total[:, places] = answers.reshape(*mask.shape, -1).sum(1, dtype=torch.float64)
        return total

    def estimate(self, total: Tensor, rng: Rng) -> Tensor:
        """The noisy sum of all answers."""
        noisy, _ = self.mechanism.estimate(total, 1.0, {}, rng.at("estimate"))
        return noisy.cpu()
