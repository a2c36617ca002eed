"""The server's state: a value that is replaced, never changed, and written down with its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

_GROUPS = ("parts", "memory", "mechanism", "standing")


SEALED = "sealed"  # in the memory of a server that cannot open: the last sum, as bytes


@dataclass(frozen=True)
class ServerState:
    """All that the server knows between rounds.

    `parts` holds the current shared parts, and the public starting point of those that live with the clients.
    """

    version: int
    parts: dict[str, Tensor]
    memory: dict[str, Tensor] = field(default_factory=dict)  # the server rule's
    mechanism: dict[str, Tensor] = field(default_factory=dict)  # public: sent with each broadcast
    balance: Tensor | None = None  # class probabilities, declared or paid for
    standing: dict[str, Tensor] = field(default_factory=dict)  # of clients, where they outlive a version

    def with_balance(self, balance: Tensor) -> ServerState:
        """The same state, knowing the class balance."""
        return replace(self, balance=balance)

    def to_tensors(self) -> dict[str, Tensor]:
        """Named tensors, for a file without pickle."""
        tensors = {"version": torch.tensor(self.version)}
        for group in _GROUPS:
            tensors |= {f"{group}/{name}": value for name, value in getattr(self, group).items()}
        if self.balance is not None:
            tensors["balance"] = self.balance
        return {name: value.contiguous() for name, value in tensors.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> ServerState:
        """The state that `to_tensors` wrote."""
        groups: dict[str, dict[str, Tensor]] = {group: {} for group in _GROUPS}
        for name, value in tensors.items():
            group, _, rest = name.partition("/")
            if group in groups:
                groups[group][rest] = value
        return cls(int(tensors["version"]), balance=tensors.get("balance"), **groups)
