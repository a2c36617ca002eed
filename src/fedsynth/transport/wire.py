"""The form of a client's message, and how many of them are added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Wire(Protocol):
    """The form of a client's message: how many are added up without keeping any of them."""

    @property
    def dim(self) -> int:
        """How many numbers the sum has."""

    @property
    def kind(self) -> str:
        """The family of numbers sent: a transport says which it carries."""

    def zero(self) -> Tensor:
        """The empty sum."""

    def add(self, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with a chunk of messages [clients, ...] added, each times its weight."""

    def fits(self, messages: Tensor, clients: int) -> bool:
        """Whether these can be messages of so many clients, or one sum of them where a sum has a message's form."""


@dataclass(frozen=True)
class Real:
    """A vector of real numbers a client. Sums are float64: exact for values on a mechanism's fixed-point grid.

    `reach` is a magnitude that no number exceeds, but for a negligible chance; None where the mechanism sets no bound.
    `as_is` numbers must arrive unrounded: noise that is added later was scaled to their length.
    """

    dim: int
    kind: str = "real"
    reach: float | None = None
    as_is: bool = False

    def zero(self) -> Tensor:
        """The empty sum."""
        import torch

        return torch.zeros(self.dim, dtype=torch.float64)

    def add(self, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with a chunk of messages [clients, dim] added, each times its weight."""
        import torch

        if bool((weights == 1).all()):
            return total.to(messages.device) + messages.sum(0, dtype=torch.float64)
        weighted = messages.to(torch.float64) * weights.to(messages.device, torch.float64)[:, None]
        return total.to(messages.device) + weighted.sum(0)

    def fits(self, messages: Tensor, clients: int) -> bool:
        """One row of real numbers: a site's sum."""
        return messages.dtype.is_floating_point and tuple(messages.shape) == (1, self.dim)
