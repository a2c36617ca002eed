"""How a client turns its rows into gradients: which rows make a batch, what is done to their gradients, at what cost.

The rule that draws a batch is the rule that states its privacy cost, so the two cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import torch
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedsynth.errors import BadInput
from fedsynth.models import gpu_kernels
from fedsynth.models.model import Batch
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.mechanism import Release, Trust
from fedsynth.privacy.noise import client_noise
from fedsynth.privacy.sampling import poisson_sample
from fedsynth.rng import Rng, expand_uniform, subkeys
from fedsynth.training.captured import Tapes

Trained = dict[str, Tensor]  # part -> flat vectors [clients, size]
Loss = Callable[[Trained, Trained, Batch, Tensor], Tensor]  # one client: trained, fixed, batch, noise
_Losses = Callable[
    [Trained, Trained, Batch, Tensor], Tensor | None
]  # the same for a stack of clients, [clients]
_AT_ONCE = 2**22  # numbers in a stack of record gradients; more is slower on a CPU
_AT_ONCE_ON_GPU = 2**27  # the same; a record's activations come beside, and more fills no GPU better
_BYTES_A_NUMBER = 256  # of a GPU's memory: a number passes through 32 bytes or so, and others need room too
_ROUND_ROWS = 32  # pieces of a step on a GPU are filled up, so that a recording fits the next


@dataclass(frozen=True)
class Rows:
    """The rows of one step: index [clients, batch], and which of them count; a client without any sits it out."""

    index: Tensor
    weight: Tensor
    step: int

    @property
    def active(self) -> Tensor:
        """The clients [clients] that take this step."""
        return self.weight.any(dim=1)


@dataclass(frozen=True)
class LocalStep:
    """The inputs of one step of a chunk of clients; `fixed` parts that all share have no client axis."""

    trained: Trained
    fixed: Trained
    batch: Batch  # [clients, rows, ...] each
    noise: Tensor  # the objective's, [clients, rows, ...]
    ids: np.ndarray
    rng: Rng
    tapes: Tapes | None = None  # on a GPU

    def parts(self, most: int) -> Iterator[LocalStep]:
        """The step in pieces of so many rows at most; on a GPU they are equal, by rows that do not count."""
        rows = self.noise.shape[1]
        if self.tapes is None:
            yield from (self.part(slice(start, start + most)) for start in range(0, rows, most))
            return
        round_rows = min(_ROUND_ROWS, most)
        pieces = -(-rows // (most - most % round_rows))
        size = -(-rows // (pieces * round_rows)) * round_rows
        for start in range(0, rows, size):
            piece = self.part(slice(start, start + size))
            missing = size - piece.noise.shape[1]
            yield piece.padded(missing) if missing else piece

    def padded(self, missing: int) -> LocalStep:
        """The same step with so many more rows, which do not count."""
        batch = {name: _with_more_rows(value, missing) for name, value in self.batch.items()}
        return replace(self, batch=batch, noise=_with_more_rows(self.noise, missing))

    def recorded(self, work: Callable[[LocalStep], Tensor]) -> Tensor:
        """`work(self)`, which may look at tensors alone: on a GPU, a replay where steps of this size came before."""
        if self.tapes is None:
            return work(self)

        def again(trained: Trained, fixed: Trained, batch: Batch, noise: Tensor) -> Tensor:
            return work(replace(self, trained=trained, fixed=fixed, batch=batch, noise=noise))

        return self.tapes.replay("step", 0, again, self.trained, self.fixed, self.batch, self.noise)

    def part(self, rows: slice) -> LocalStep:
        """The same step for some of its rows."""
        batch = {name: value[:, rows] for name, value in self.batch.items()}
        return replace(self, batch=batch, noise=self.noise[:, rows])


@dataclass(frozen=True)
class Drawing:
    """Batches as a function of tensors alone, which a GPU can record: `rows(*inputs)` is the same for equal `sizes`."""

    sizes: object
    places: int  # in all batches together
    everyone: bool  # whether no client sits a step out
    rows: Callable[..., Iterator[Rows]]
    inputs: tuple[Tensor, ...]


def _with_more_rows(value: Tensor, missing: int) -> Tensor:
    return torch.cat([value, value.new_zeros(len(value), missing, *value.shape[2:])], dim=1)


class Rule(Protocol):
    """Batches, gradients and their cost."""

    @property
    def release(self) -> Release | None:
        """The cost of a round to each client's records; None if nothing is protected here."""
        ...

    def batches(self, mask: Tensor, ids: np.ndarray, rng: Rng) -> Iterator[Rows]:
        """The rows of each step, for clients whose rows are marked in mask [clients, rows]."""
        ...

    def drawing(self, mask: Tensor, ids: np.ndarray, rng: Rng) -> Drawing | None:
        """The same as what a GPU can record with the steps; None if its steps cannot be recorded."""
        ...

    def gradient(self, loss: Loss, step: LocalStep) -> tuple[Trained, Tensor]:
        """Gradients of each part [clients, size], and the loss [clients]."""
        ...


def _at_once(device: torch.device) -> int:
    """How many numbers of record gradients fit at once."""
    if device.type != "cuda":
        return _AT_ONCE
    fitting = int(torch.cuda.get_device_properties(device).total_memory) // _BYTES_A_NUMBER
    return min(_AT_ONCE_ON_GPU, fitting)


def _in_dims(parts: Trained) -> dict[str, int | None]:
    """Parts that all clients share have no client axis: they are mapped over as one."""
    return {name: 0 if flat.dim() == 2 else None for name, flat in parts.items()}


def plain_gradient(loss: Loss, step: LocalStep) -> tuple[Trained, Tensor]:
    """The gradient of each client's own mean loss, and that loss [clients].

    A loss may have `of_clients`, which gives the losses of a stack, or None where vmap is to do it.
    """
    leaves = {name: flat.detach().requires_grad_() for name, flat in step.trained.items()}
    of_clients: _Losses = getattr(loss, "of_clients", lambda *_: None)
    losses = of_clients(leaves, step.fixed, step.batch, step.noise)
    if losses is None:
        over_clients = vmap(loss, in_dims=(0, _in_dims(step.fixed), 0, 0))
        losses = over_clients(leaves, step.fixed, step.batch, step.noise)
    gradients = torch.autograd.grad(losses.sum(), list(leaves.values()))
    return dict(zip(leaves, gradients, strict=True)), losses.detach()


class Unprotected:
    """A rule of plain gradients: what protects the update, if anything, is the mechanism."""

    def batches(self, mask: Tensor, ids: np.ndarray, rng: Rng) -> Iterator[Rows]:
        """The rows of each step, for clients whose rows are marked in mask [clients, rows]."""
        drawing = self.drawing(mask, ids, rng)
        return drawing.rows(*drawing.inputs)

    def drawing(self, mask: Tensor, ids: np.ndarray, rng: Rng) -> Drawing:
        """How the batches are drawn."""
        raise NotImplementedError

    @property
    def release(self) -> Release | None:
        """Nothing is released here."""
        return None

    def gradient(self, loss: Loss, step: LocalStep) -> tuple[Trained, Tensor]:
        """The gradient of each client's own mean loss."""
        return plain_gradient(loss, step)


@dataclass(frozen=True)
class Epochs(Unprotected):
    """Plain gradients over shuffled batches, each row once an epoch; a short client has fewer steps.

    `most` bounds the batches of an epoch, so that a client with very many rows does not keep a cohort waiting.
    """

    count: int
    batch_size: int
    most: int = 0  # 0: all rows

    def __post_init__(self) -> None:
        if self.count < 1 or self.batch_size < 1:
            raise BadInput(f"epochs={self.count}, batch_size={self.batch_size}: both must be at least 1")

    def drawing(self, mask: Tensor, ids: np.ndarray, rng: Rng) -> Drawing:
        """A fresh order each epoch, keyed by client and row, so that padding and chunking change nothing."""
        least, most = torch.stack(mask.sum(1).aminmax()).tolist()  # asked once: a GPU has to finish first
        most = max(1, most)  # fewer than the longest where a phase takes some rows only
        if self.most:
            most = min(most, self.most * self.batch_size)
        everyone = -(-least // self.batch_size) >= -(-most // self.batch_size)
        places = self.count * len(mask) * -(-most // self.batch_size) * min(self.batch_size, mask.shape[1])
        return Drawing(
            (self.count, self.batch_size, most),
            places,
            everyone,
            lambda keys, mask: self._ordered(keys, mask, most),
            (rng.at("order").keys(ids, mask.device), mask),
        )

    def _ordered(self, keys: Tensor, mask: Tensor, most: int) -> Iterator[Rows]:
        longest = mask.shape[1]
        size = min(self.batch_size, longest)
        each = torch.stack([subkeys(keys, epoch) for epoch in range(self.count)])
        orders = torch.argsort(expand_uniform(each, (longest,)).masked_fill(~mask, 2.0), dim=2, stable=True)
        places = torch.arange(longest, device=mask.device) < mask.sum(1, keepdim=True)
        for epoch, order in enumerate(orders):
            for number, start in enumerate(range(0, most, self.batch_size)):
                stop = start + size
                yield Rows(order[:, start:stop], places[:, start:stop], epoch * 1_000_000 + number)


@dataclass(frozen=True)
class DPSGD:
    """DP-SGD (Abadi et al. 2016): each record's gradient over all trained parts clipped, summed, noised.

    Batches are true Poisson samples and the denominator is the expected batch size, whoever turned up. The
    guarantee is for one record, and it holds only if every part that sees the record is among the trained ones,
    or frozen, or public (a part trained on the same records without noise breaks it).
    `report` is the share of the clip that carries the loss, so that the loss shown is private too. Where the guarantee
    does not hold, `claimed` is False, and what is released counts as unprotected whatever its noise.
    """

    clip: float
    noise_multiplier: float
    rate: float
    steps: int
    expected_batch: float
    trust: Trust = "local"
    loss_bound: float = 100.0
    report: float = 0.1
    unit: Literal["record"] = "record"
    claimed: bool = True

    @property
    def release(self) -> Release | None:
        """One Poisson-sampled Gaussian for each step."""
        if not self.claimed:
            what = "noisy gradients that an unprotected part has shaped"
            return Release(what, "record", self.trust, NonPrivateDpEvent(), self.steps)
        if self.noise_multiplier == 0:
            return Release("gradients without noise", "record", self.trust, NonPrivateDpEvent())
        event = PoissonSampledDpEvent(self.rate, GaussianDpEvent(self.noise_multiplier))
        return Release("noisy sum of clipped record gradients", "record", self.trust, event, self.steps)

    def batches(self, mask: Tensor, ids: np.ndarray, rng: Rng) -> Iterator[Rows]:
        """Each record of each client independently with probability `rate`, at each step."""
        counts = mask.sum(1).tolist()
        counted = torch.argsort(~mask.cpu(), dim=1, stable=True)  # the rows that count come first
        for step in range(self.steps):
            streams = (rng.at("batch", int(client), step) for client in ids)
            drawn = [poisson_sample(n, self.rate, s) for n, s in zip(counts, streams, strict=True)]
            longest = max(1, max(len(rows) for rows in drawn))
            index = torch.zeros(len(ids), longest, dtype=torch.int64)
            weight = torch.zeros(len(ids), longest, dtype=torch.bool)
            for client, rows in enumerate(drawn):
                index[client, : len(rows)] = counted[client, torch.from_numpy(rows)]
                weight[client, : len(rows)] = True
            yield Rows(index.to(mask.device), weight.to(mask.device), step)

    def drawing(self, mask: Tensor, ids: np.ndarray, rng: Rng) -> None:
        """Nothing to record: how many rows a step has is drawn by the processor, and so is its noise."""

    def gradient(self, loss: Loss, step: LocalStep) -> tuple[Trained, Tensor]:
        """The noisy sum of clipped per-record gradients over the expected batch size, and the noisy loss."""
        sizes = [flat.shape[-1] for flat in step.trained.values()]
        clip = self._clip(sum(sizes))
        shape, kind = (len(step.ids), sum(sizes) + 1), step.noise.dtype
        total = torch.zeros(shape, dtype=torch.float64, device=step.noise.device)
        for part in step.parts(max(1, _at_once(step.noise.device) // math.prod(shape))):
            total += part.recorded(lambda part: self._clipped_sum(loss, part, clip))
        scale = self.noise_multiplier * clip.bound
        drawn = client_noise(step.ids, shape[1], scale, clip.step, step.rng.at("noise"), total.device)
        mean = (total + drawn.to(total)) / self.expected_batch
        pieces = mean[:, :-1].to(kind).split(sizes, dim=1)
        losses = mean[:, -1] / (self.report * self.clip) * self.loss_bound
        return dict(zip(step.trained, pieces, strict=True)), losses.to(kind)

    def _clip(self, size: int) -> Clip:
        return Clip(self.clip, ((size, (1 - self.report**2) ** 0.5), (1, self.report)))

    def _clipped_sum(self, loss: Loss, step: LocalStep, clip: Clip) -> Tensor:
        """The sum over the rows of [clipped gradient, clipped loss], [clients, size + 1]."""
        alone = {name: value.unsqueeze(2) for name, value in step.batch.items() if name != "weight"}
        alone["weight"] = torch.ones_like(alone["y"], dtype=step.noise.dtype)
        over_rows = vmap(grad_and_value(loss), in_dims=(None, None, 0, 0))
        over_clients = vmap(over_rows, in_dims=(0, _in_dims(step.fixed), 0, 0))
        gradients, losses = over_clients(step.trained, step.fixed, alone, step.noise.unsqueeze(2))
        reported = losses.clamp(0, self.loss_bound) / self.loss_bound * self.report * self.clip
        pieces, last = list(gradients.values()), reported.unsqueeze(-1)
        if gpu_kernels.can_sum(last):
            return clip.sum_of_blocks((pieces, [last]), step.batch["weight"])
        return clip.sum_on_grid(torch.cat([*pieces, last], dim=-1), step.batch["weight"])
