"""Random streams keyed by what they are for: seeded for simulation, the operating system's for releases.

A stream is named (`rng.at("cohort", version)`), never advanced, so a result does not depend on how often a loop
ran, how clients were chunked, or where a run was resumed. `expand` makes the numbers that clients use during
training from 64-bit keys with integer arithmetic alone, so that CPU and GPU see the same bits.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_AT_ONCE = 2**20  # places drawn together


@dataclass(frozen=True)
class Rng:
    """A named source of randomness. `seed=None` draws from the operating system and can never be repeated."""

    seed: int | None = None
    path: tuple[str | int, ...] = ()

    @property
    def reproducible(self) -> bool:
        """True if the noise could be drawn again by someone who knows the seed: then nothing is private."""
        return self.seed is not None

    def at(self, *key: str | int) -> Rng:
        """The stream for one purpose: `rng.at("noise", version)`.

        >>> Rng(1).at("a", 2).integer() == Rng(1).at("a").at(2).integer()
        True
        >>> Rng(1).at("a", 2).integer() == Rng(1).at("a", 3).integer()
        False
        """
        return Rng(self.seed, self.path + key)

    def bytes(self, count: int) -> bytes:
        """`count` random bytes: the operating system's, or the seed and the name expanded by SHAKE-256."""
        if self.seed is None:
            return os.urandom(count)
        name = repr((self.seed, *self.path)).encode()
        return hashlib.shake_256(name).digest(count)

    def integer(self) -> int:
        """A 63-bit number, the size that every generator takes as its seed."""
        return int.from_bytes(self.bytes(8), "little") >> 1

    def uniforms(self, count: int) -> np.ndarray:
        """`count` numbers in (0, 1] with 53 random bits each."""
        words = np.frombuffer(self.bytes(8 * count), dtype="<u8")
        return ((words >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53

    def numpy(self) -> np.random.Generator:
        """A NumPy generator for this purpose. Not for privacy noise: see privacy/noise.py."""
        return np.random.default_rng(int.from_bytes(self.bytes(32), "little"))

    def floats(self, *shape: int) -> np.ndarray:
        """Float32 numbers in [0, 1): those that `torch.rand` draws from `torch_generator`, without torch."""
        words = _words_of(self._twister(), math.prod(shape)) & np.uint32(2**24 - 1)
        return (words.astype(np.float32) * np.float32(2.0**-24)).reshape(shape)

    def places(self, chances: np.ndarray, count: int) -> np.ndarray:
        """`count` places, each as likely as `chances` (float32) say: those of `torch.multinomial`, without torch.

        For one place alone torch takes another way. Up to 256 places take a byte each.
        """
        ends = np.cumsum(chances, dtype=np.float32)
        ends /= ends[-1]
        ends[-1] = 1.0
        twister, places = self._twister(), np.empty(count, dtype=np.min_scalar_type(len(ends) - 1))
        for start in range(0, count, _AT_ONCE):
            part = places[start : start + _AT_ONCE]
            words = _words_of(twister, 2 * len(part)).astype(np.uint64)
            whole = ((words[::2] << np.uint64(32)) | words[1::2]) & np.uint64(2**53 - 1)
            part[:] = np.searchsorted(ends.astype(np.float64), whole.astype(np.float64) * 2.0**-53)
        return places

    def _twister(self) -> np.random.RandomState:
        """The Mersenne twister that torch seeds with the lower half of a number."""
        return np.random.RandomState(self.integer() & (2**32 - 1))

    def torch_generator(self) -> torch.Generator:
        """A CPU torch generator for this purpose. Not for privacy noise: see privacy/noise.py."""
        import torch

        return torch.Generator().manual_seed(self.integer())

    def keys(self, ids: Sequence[int] | np.ndarray, device: torch.device | str = "cpu") -> Tensor:
        """One 64-bit key a client, which `expand` turns into numbers; a client's key does not depend on the others.

        Under the operating system's randomness each key is fresh.
        """
        import torch

        if self.seed is None:
            words = np.frombuffer(self.bytes(8 * len(ids)), dtype="<i8").copy()
            return torch.from_numpy(words).to(device)
        base = torch.tensor(int.from_bytes(self.bytes(8), "little", signed=True), dtype=torch.int64)
        numbers = torch.as_tensor(np.asarray(ids, dtype=np.int64))
        return _mix(_mix(base + numbers * _GOLDEN) + numbers).to(device)


def _words_of(twister: np.random.RandomState, count: int) -> np.ndarray:
    """The next 32-bit words of a Mersenne twister."""
    return twister.randint(0, 2**32, count, dtype=np.uint32)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finalizer (Steele, Lea and Flood 2014), on signed 64-bit tensors that wrap around."""
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; torch's >> keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def subkeys(keys: Tensor, use: int) -> Tensor:
    """Keys for another use of the same clients, for example another step."""
    offset = ((use + 1) * _MIX_1 + 2**63) % 2**64 - 2**63
    return _mix(keys + offset)


def expand_uniform(keys: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers in (0, 1), `keys.shape + shape`; entry j of a client depends on its key and on j alone."""
    words = _words(keys, math.prod(shape))
    return _unit(_shift(words, 40)).reshape(*keys.shape, *shape)


def uniforms_at(keys: Tensor, places: Tensor) -> Tensor:
    """The entries of `expand_uniform` at these places, [clients, numbers], without those between them.

    >>> import torch
    >>> keys, places = torch.tensor([7]), torch.tensor([[3, 0]])
    >>> bool((uniforms_at(keys, places) == expand_uniform(keys, (4,))[:, [3, 0]]).all())
    True
    """
    return _unit(_shift(_mix(keys[:, None] + (places + 1) * _GOLDEN), 40))


def expand_normal(keys: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers, `keys.shape + shape`, by Box-Muller: for training, not for privacy noise."""
    import torch

    count = math.prod(shape)
    words = _words(keys, (count + 1) // 2)
    radius = torch.sqrt(-2.0 * torch.log(_unit(_shift(words, 40))))
    angle = (2.0 * torch.pi) * _unit(words & (2**24 - 1))
    pair = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=-1)
    return pair.reshape(*keys.shape, -1)[..., :count].reshape(*keys.shape, *shape)


def _words(keys: Tensor, count: int) -> Tensor:
    """`count` random 64-bit words for each key."""
    import torch

    counter = torch.arange(1, count + 1, dtype=torch.int64, device=keys.device) * _GOLDEN
    return _mix(keys[..., None] + counter)


def _unit(bits: Tensor) -> Tensor:
    """24 random bits as a number in (0, 1)."""
    import torch

    return (bits.to(torch.float32) + 0.5) * 2.0**-24
