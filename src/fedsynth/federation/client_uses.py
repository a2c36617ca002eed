"""An asynchronous server's record of its clients between versions: who is under way, and who was used how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

_NEVER = -(2**31)  # the version in which a client that was never used was last used


def _nobody() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class ClientUses:
    """A value that is replaced, never changed.

    `busy` are the clients that were started and whose update is in no finished version yet, so that nobody is twice
    in one buffer. `lost` got lost on the way since the last step: what they sent, somebody may have seen, so the next
    version charges them too.
    """

    uses: np.ndarray  # [clients], how often each was charged
    last: np.ndarray  # [clients], the version in which each was last used
    busy: np.ndarray
    lost: np.ndarray

    @classmethod
    def fresh(cls, clients: int) -> ClientUses:
        """Nobody was asked yet."""
        never = np.full(clients, _NEVER, dtype=np.int64)
        return cls(np.zeros(clients, dtype=np.int64), never, _nobody(), _nobody())

    @property
    def charged(self) -> np.ndarray:
        """How often each client is charged so far [clients], with what the next version will charge for losses."""
        return self.uses + np.bincount(self.lost, minlength=len(self.uses))

    def started(self, ids: np.ndarray) -> ClientUses:
        """With these under way as well."""
        return replace(self, busy=np.union1d(self.busy, ids))

    def missed(self, ids: np.ndarray) -> ClientUses:
        """Without these, which will not come; they may be asked again."""
        return replace(self, busy=np.setdiff1d(self.busy, ids), lost=np.concatenate([self.lost, ids]))

    def spared(self, ids: np.ndarray) -> ClientUses:
        """Without these, which will not come and have sent nothing: nobody is charged."""
        return replace(self, busy=np.setdiff1d(self.busy, ids))

    def settled(self, came: np.ndarray, version: int) -> ClientUses:
        """After the step from `version` that used the updates of those who came."""
        uses, last = self.uses.copy(), self.last.copy()
        np.add.at(uses, np.concatenate([came, self.lost]), 1)
        last[came] = version
        return ClientUses(uses, last, np.setdiff1d(self.busy, came), _nobody())

    def at_least(self, uses: np.ndarray) -> ClientUses:
        """With no client used less often than a ledger shows."""
        return replace(self, uses=np.maximum(self.uses, uses))

    def to_tensors(self) -> dict[str, Tensor]:
        """Named tensors for the server's state."""
        fields = {"uses": self.uses, "last": self.last, "busy": self.busy, "lost": self.lost}
        return {name: torch.from_numpy(values.copy()) for name, values in fields.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], clients: int) -> ClientUses:
        """Read the tensors that `to_tensors` wrote; fresh where there are none."""
        if not tensors:
            return cls.fresh(clients)
        return cls(**{name: value.numpy() for name, value in tensors.items()})
