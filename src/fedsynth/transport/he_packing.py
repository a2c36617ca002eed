"""How a vector lies in the slots of ciphertexts, so that sums of a stated number of clients cannot overflow.

BFV slots hold integers modulo a prime. Several fields share a slot; each is wide enough for the sum over all clients of
the largest integer that one client can send, so no carry ever reaches the next field. Real numbers become integers by
stochastic rounding with a public step, a power of two: the sum that is opened equals the sum of the rounded numbers.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import Incompatible
from fedsynth.rng import Rng, expand_uniform
from fedsynth.transport.he_scheme import Parameters

# Degree and modulus of BFV, all with 128-bit security: one prime of data or two, the last prime is SEAL's own.
MENU = tuple(
    [(4096, (bits, min(60, 109 - bits))) for bits in range(40, 61)]
    + [(4096, (bits, bits, 109 - 2 * bits)) for bits in range(31, 37)]
)
PAPER = Parameters("ckks", 8192, (60, 40, 60), 40)  # as in PP-FedGAN
_MOST_FIELDS = 3
_MOST_PLAIN = 60
_MOST_SUM = 2**48  # of a field, so that float64 holds it exactly


class SlotLayout(Protocol):
    """Where each number of a vector lies, and how it becomes something that a ciphertext can hold."""

    @property
    def parameters(self) -> Parameters:
        """The encryption that it is made for."""

    @property
    def dim(self) -> int:
        """The length of the vector."""

    @property
    def clients(self) -> int:
        """The most clients in a sum."""

    @property
    def ciphertexts(self) -> int:
        """How many ciphertexts a vector needs."""

    @property
    def dropped(self) -> int:
        """How many lowest bits of a sum need not be sent."""

    @property
    def digest(self) -> bytes:
        """A name for it; parties with another one cannot add up."""

    def bytes_for(self, secret: bool) -> int:
        """How long a sealed vector is, by the secret or the public key."""

    @property
    def bytes_down(self) -> int:
        """How long a sealed sum is when it is sent out."""

    def rounded(self, messages: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """The messages [clients, dim] as what can be sealed without further loss, float64."""

    def slots(self, total: Tensor, count: int) -> np.ndarray:
        """The sum [dim] of `count` clients' rounded messages as [ciphertexts, slots]."""

    def numbers(self, slots: np.ndarray, count: int) -> Tensor:
        """The sum [dim] of `count` clients' messages, float64, from what was opened."""


@dataclass(frozen=True)
class PackingGrid:
    """Integers that one client may send: reals within `reach` in steps of a power of two, or a ring of `bits`.

    >>> PackingGrid.real(1.0, levels=65535)
    PackingGrid(step=3.0517578125e-05, most=32767, bits=0)
    """

    step: float
    most: int  # reals: steps from -most to most; a ring: 0
    bits: int = 0  # a ring: integers below 2^bits; reals: 0

    @classmethod
    def real(cls, reach: float, levels: int) -> PackingGrid:
        """The finest grid with integers up to `levels` that has numbers up to `reach`, or to one step below it."""
        step = math.ldexp(1.0, math.ceil(math.log2(2.0 * reach / (levels + 1))))
        return cls(step, min(math.floor(reach / step), levels // 2))

    @property
    def levels(self) -> int:
        """The largest integer that one client sends, after the shift to positive ones."""
        return 2 * self.most if self.most else 2**self.bits - 1


@dataclass(frozen=True)
class Packed:
    """Integers in BFV slots: `fields` digits below `base` each, for sums over at most `clients` clients.

    >>> layout = Packed.planned(dim=100_000, clients=10, reach=1.0)
    >>> layout.fields, layout.base, round(layout.bytes_for(secret=True) / 400_000, 1)
    (3, 830082, 0.8)
    """

    parameters: Parameters
    dim: int
    clients: int
    fields: int
    base: int
    grid: PackingGrid
    secret: bool = True  # whether clients seal with the secret key; noise is far smaller then

    def __post_init__(self) -> None:
        if self.clients * self.grid.levels >= self.base:
            raise Incompatible(
                f"{self.clients} clients with integers up to {self.grid.levels} sum to "
                f"{self.clients * self.grid.levels}, but a field ends at {self.base - 1}; "
                "allow fewer clients, a smaller reach or fewer bits"
            )
        if self.base**self.fields > _slot(self.parameters):
            raise Incompatible(
                f"{self.fields} fields below {self.base} need {self.base**self.fields} values, but a slot holds "
                f"{_slot(self.parameters)}; use fewer or narrower fields"
            )
        room = self.parameters.noise_room(self.secret)
        if self.clients > room:
            raise Incompatible(
                f"{self.clients} clients: the noise of {self.parameters.to_text()} can reach the message after {room} "
                "sums; use a smaller slot"
            )

    @classmethod
    def planned(
        cls,
        dim: int,
        clients: int,
        *,
        reach: float = 0.0,
        ring_bits: int = 0,
        least_bits: int = 16,
        secret: bool = True,
        fixed: Parameters | None = None,
    ) -> Packed:
        """The shortest layout with at least `least_bits` a client for reals, or with all bits of a ring.

        `fixed` are the parameters of keys that exist already.
        """
        return _shortest(dim, clients, reach, ring_bits, least_bits, secret, fixed)

    @classmethod
    def fit(
        cls,
        parameters: Parameters,
        dim: int,
        clients: int,
        fields: int,
        reach: float,
        ring_bits: int,
        needed: int,
        secret: bool,
    ) -> Packed | None:
        """The layout with so many fields a slot; None where fields are too narrow for the `needed` bits."""
        base = min(_MOST_SUM, _root(_slot(parameters), fields))
        levels = (base - 1) // clients
        if levels + 1 < 2**needed:
            return None
        grid = PackingGrid(1.0, 0, ring_bits) if ring_bits else PackingGrid.real(reach, levels)
        return cls(parameters, dim, clients, fields, base, grid, secret)

    @property
    def ciphertexts(self) -> int:
        """How many ciphertexts a vector needs."""
        return -(-self.dim // (self.fields * self.parameters.slots))

    @cached_property
    def dropped(self) -> int:
        """How many lowest bits of a sum need not be sent."""
        return self.parameters.droppable(self.clients, self.secret)

    def bytes_for(self, secret: bool) -> int:
        """How long a sealed vector is, but for a short head."""
        return self.ciphertexts * self.parameters.sealed_bytes(secret)

    @property
    def bytes_down(self) -> int:
        """How long a sealed sum is when it is sent out, but for a short head."""
        return self.ciphertexts * self.parameters.sealed_bytes(False, self.dropped)

    @property
    def traffic(self) -> int:
        """The bytes that a client sends and receives."""
        return self.bytes_for(self.secret) + self.bytes_down

    @cached_property
    def digest(self) -> bytes:
        """A name for all that parties must agree on."""
        agreed = (self.dim, self.clients, self.fields, self.base, self.grid)
        return hashlib.sha256(f"{self.parameters.to_text()} {agreed}".encode()).digest()[:16]

    def rounded(self, messages: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """Reals cut to the reach and rounded at random to neighboring steps, without bias; a ring as it is."""
        if not self.grid.most:
            return messages.to(torch.float64)
        steps = messages.to(torch.float64) / self.grid.step
        chance = expand_uniform(rng.keys(ids, messages.device), (messages.shape[1],))
        whole = (torch.nan_to_num(steps) + chance).floor_().clamp_(-self.grid.most, self.grid.most)
        return whole * self.grid.step

    def slots(self, total: Tensor, count: int) -> np.ndarray:
        """The sum of `count` messages as packed integers [ciphertexts, slots]."""
        steps = (total.cpu().to(torch.float64) / self.grid.step).round_().to(torch.int64)
        integers = steps + count * self.grid.most
        if bool((integers < 0).any()) or bool((integers > count * self.grid.levels).any()):
            raise Incompatible(
                f"a message reaches {float(total.abs().max()) / count:g}, beyond the integers 0 to {self.grid.levels} "
                "of this layout; round it with `rounded` first"
            )
        padded = np.zeros(self.ciphertexts * self.fields * self.parameters.slots, dtype=np.int64)
        padded[: self.dim] = integers.numpy()
        blocks = padded.reshape(self.ciphertexts, self.fields, self.parameters.slots)
        packed = blocks[:, 0].copy()
        for place in range(1, self.fields):
            packed += blocks[:, place] * np.int64(self.base**place)
        return packed

    def numbers(self, slots: np.ndarray, count: int) -> Tensor:
        """The sum of `count` messages, exactly."""
        packed, fields = slots.astype(np.int64), []
        for _ in range(self.fields):
            packed, digit = np.divmod(packed, np.int64(self.base))
            fields.append(digit)
        integers = np.stack(fields, axis=1).reshape(-1)[: self.dim]
        if self.grid.bits:
            return torch.from_numpy(integers % 2**self.grid.bits)
        return torch.from_numpy((integers - count * self.grid.most) * self.grid.step)


@lru_cache(maxsize=256)  # composing a recipe asks for the same layout many times over
def _shortest(
    dim: int,
    clients: int,
    reach: float,
    ring_bits: int,
    least_bits: int,
    secret: bool,
    fixed: Parameters | None,
) -> Packed:
    needed = ring_bits or least_bits
    layouts = [
        fit
        for parameters in _choices(clients, secret, fixed)
        for fields in range(1, _MOST_FIELDS + 1)
        if (fit := Packed.fit(parameters, dim, clients, fields, reach, ring_bits, needed, secret))
    ]
    if not layouts:
        raise Incompatible(
            f"{clients} clients with {needed} bits each: no layout of "
            f"{fixed.to_text() if fixed else 'BFV with degree 4096'} has room for their sum; use fewer bits, fewer "
            "clients a round, or keys made for so many (fedsynth keys create --clients)"
        )
    shortest = min(layout.traffic for layout in layouts)
    near = [layout for layout in layouts if layout.traffic <= 1.02 * shortest]
    return min(near, key=lambda layout: (layout.grid.step, layout.traffic))


def _slot(parameters: Parameters) -> int:
    """Values that a slot has at least: the largest prime of its size that fits, among large ones, is near the end."""
    bits = parameters.plain_bits
    return 2**bits - 2 ** (bits - 7) if bits >= 28 else 2 ** (bits - 1)


def _root(number: int, degree: int) -> int:
    """The largest whole number whose power is no larger.

    >>> _root(1000, 3), _root(999, 3)
    (10, 9)
    """
    estimate = round(number ** (1 / degree))
    return next(root for root in range(estimate + 1, 0, -1) if root**degree <= number)


@lru_cache(maxsize=64)
def _choices(clients: int, secret: bool, fixed: Parameters | None) -> tuple[Parameters, ...]:
    """Each entry of the menu with the largest slots whose noise leaves room for so many clients."""
    if fixed is not None:
        return (fixed,) if fixed.noise_room(secret) >= clients else ()
    choices = []
    for degree, modulus_bits in MENU:
        sizes = range(min(_MOST_PLAIN, sum(modulus_bits[:-1]) - 6), 16, -1)
        options = (Parameters("bfv", degree, modulus_bits, size) for size in sizes)
        choices += [next((option for option in options if option.noise_room(secret) >= clients), None)]
    return tuple(option for option in choices if option is not None)


@dataclass(frozen=True)
class Approximate:
    """Reals in CKKS slots, one each, as in PP-FedGAN: not exact, and far longer than packed integers.

    >>> Approximate(PAPER, dim=10, clients=4).error < 1e-6
    True
    """

    parameters: Parameters
    dim: int
    clients: int
    reach: float = 1.0
    secret: bool = True
    dropped: ClassVar[int] = 0  # what a slot opens to would change

    def __post_init__(self) -> None:
        room = 2.0 ** (self.parameters.data_bits - self.parameters.plain_bits - 1)
        if self.clients * self.reach * self.parameters.degree >= room:
            raise Incompatible(
                f"{self.clients} clients with numbers up to {self.reach:g} exceed the {room:g} that "
                f"{self.parameters.to_text()} can hold; use fewer clients or a smaller reach"
            )

    @property
    def error(self) -> float:
        """The most that a number of the opened sum can be off."""
        return self.clients * (self.parameters.error(self.secret) + 1e-12 * self.reach)

    @property
    def ciphertexts(self) -> int:
        """How many ciphertexts a vector needs."""
        return -(-self.dim // self.parameters.slots)

    def bytes_for(self, secret: bool) -> int:
        """How long a sealed vector is, but for a short head."""
        return self.ciphertexts * self.parameters.sealed_bytes(secret)

    @property
    def bytes_down(self) -> int:
        """How long a sealed sum is when it is sent out, but for a short head."""
        return self.ciphertexts * self.parameters.sealed_bytes(False)

    @cached_property
    def digest(self) -> bytes:
        """A name for all that parties must agree on."""
        agreed = (self.dim, self.clients, self.reach)
        return hashlib.sha256(f"{self.parameters.to_text()} {agreed}".encode()).digest()[:16]

    def rounded(self, messages: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """The messages cut to the reach."""
        return torch.nan_to_num(messages.to(torch.float64)).clamp(-self.reach, self.reach)

    def slots(self, total: Tensor, count: int) -> np.ndarray:
        """The sum of `count` messages as [ciphertexts, slots]."""
        if bool((total.abs() > count * self.reach * (1 + 1e-9)).any()):
            raise Incompatible(
                f"a message reaches {float(total.abs().max()) / count:g}, beyond {self.reach:g}; cut it with `rounded` "
                "first"
            )
        padded = np.zeros(self.ciphertexts * self.parameters.slots)
        padded[: self.dim] = total.cpu().to(torch.float64).numpy()
        return padded.reshape(self.ciphertexts, self.parameters.slots)

    def numbers(self, slots: np.ndarray, count: int) -> Tensor:
        """The sum, off by at most `error`."""
        return torch.from_numpy(slots.reshape(-1)[: self.dim].copy())
