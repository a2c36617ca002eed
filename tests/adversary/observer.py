"""What an adversary can work out of the bytes that a site sent: sums, the noise in them, and epsilon.

Nothing here reads a site's books but `ledger_epsilon`, which is what the observations are compared with. Two worlds
with the same random bytes differ in one client's rows: the difference of a sum is that client's contribution, and the
sum of the world in which nobody has rows is noise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from scipy.stats import chi2

from fedsynth.privacy.events import compose, event_from_json, flatten, repeat
from fedsynth.transport.agreement import Agreement
from fedsynth.transport.bits import packed_size, unpack
from fedsynth.transport.masking_client import OWN, PAIRED, pair_seed
from fedsynth.transport.primitives import KEY, KeyPair, add_mask, derive, digest
from fedsynth.transport.shamir import join

_DOUBT = 1e-9  # the chance that noise of the accounted scale is taken for less


@dataclass(frozen=True)
class Sum:
    """A sum that depends on rows, as the adversary has it, in grid steps or in the units of the clip.

    `question` is what it answers: equal questions have equal noise. `scale` is the noise that a trusted server adds.
    """

    run: str
    question: str
    values: np.ndarray
    scale: float = 0.0


@dataclass
class MaskedRound:
    """All that a server and those who help it know of one masked sum."""

    question: str
    agreement: Agreement
    victim: int
    keys: dict[int, bytes] = field(default_factory=dict)
    own_digests: dict[int, bytes] = field(default_factory=dict)
    delivered: dict[int, set[int]] = field(default_factory=dict)  # whose masks are on a party's vector
    vectors: dict[int, bytes] = field(default_factory=dict)
    shares: dict[tuple[int, bytes], dict[int, bytes]] = field(default_factory=dict)
    secrets: dict[tuple[int, bytes], bytes] = field(default_factory=dict)  # told by those who help

    def note_share(self, owner: int, kind: bytes, holder: int, share: bytes) -> None:
        """Remember a share of one of the two secrets of `owner`."""
        self.shares.setdefault((owner, kind), {})[holder] = share

    def opened(self) -> dict[frozenset[int], np.ndarray]:
        """Every sum over some of the vectors, that of the victim's site among them, whose masks can be taken off."""
        found = {}
        others = sorted(set(self.vectors) - {self.victim})
        for count in range(len(others) + 1) if self.victim in self.vectors else ():
            for chosen in combinations(others, count):
                total = self._sum_over(frozenset((self.victim, *chosen)))
                if total is not None:
                    found[frozenset((self.victim, *chosen))] = total
        return found

    def _sum_over(self, parties: frozenset[int]) -> np.ndarray | None:
        terms = self.agreement
        total = np.zeros(terms.dim, dtype=np.uint32)
        size = packed_size(terms.dim, terms.bits)
        if any(len(self.vectors[party]) != size or party not in self.delivered for party in parties):
            return None  # a vector of another question adds up with nothing
        for party in sorted(parties):
            total += unpack(self.vectors[party], terms.dim, terms.bits)
            own = self._secret(party, OWN)
            if own is None:
                return None
            add_mask(total, derive(own, terms.context, OWN), subtract=True)
            for other in sorted(self.delivered[party]):
                if other in parties and party in self.delivered.get(other, ()):
                    continue  # the two masks cancel
                seed = self._pair(party, other)
                if seed is None:
                    return None
                add_mask(total, seed, subtract=party < other)
        return centered(total, terms.bits)

    def _pair(self, party: int, other: int) -> bytes | None:
        for one, peer in ((party, other), (other, party)):
            secret = self._secret(one, PAIRED)
            if secret is not None and peer in self.keys:
                agreed = KeyPair(secret).agree(self.keys[peer][:KEY])
                return pair_seed(self.agreement, agreed, party, other)
        return None

    def _secret(self, owner: int, kind: bytes) -> bytes | None:
        if (owner, kind) in self.secrets:
            return self.secrets[owner, kind]
        shares, needed = self.shares.get((owner, kind), {}), self.agreement.degree[1]
        if len(shares) < needed:
            return None
        secret = join(dict(sorted(shares.items())[:needed]), needed)
        if secret is None:
            return None
        if kind == OWN:
            fits = digest(self.agreement.context, OWN, secret) == self.own_digests.get(owner)
        else:
            fits = KeyPair(secret).public == self.keys.get(owner, b"")[:KEY]
        return secret if fits else None


def centered(total: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of a ring as signed ones."""
    half = 2 ** (bits - 1)
    return ((total.astype(np.int64) + half) % 2**bits - half).astype(np.float64)


def most_noise(samples: np.ndarray) -> float:
    """The largest standard deviation that Gaussian samples leave possible, but for one case in a billion."""
    return math.sqrt(float(np.square(samples).sum()) / chi2.ppf(_DOUBT, samples.size))


def distances(with_rows: Sequence[Sum], without: Sequence[Sum]) -> list[tuple[str, float]]:
    """For each different release: its run, and how far the victim moves it in standard deviations of its noise.

    It is a lower bound: noise is taken as large as the samples of all releases of one kind leave possible.
    """
    pairs = {
        (one.run, one.question, one.values.tobytes(), other.values.tobytes()): (one, other)
        for one, other in zip(with_rows, without, strict=True)
    }
    noise: dict[str, list[np.ndarray]] = {}
    for one, other in pairs.values():
        if not one.scale:
            noise.setdefault(one.question, []).append(other.values)
    level = {question: most_noise(np.concatenate(parts)) for question, parts in noise.items()}
    moved = []
    for one, other in pairs.values():
        far = float(np.linalg.norm(one.values - other.values))
        moved.append((one.run, far / (one.scale or level[one.question]) if far else 0.0))
    return moved


def epsilon_of(distances: Iterable[float], delta: float) -> float:
    """Epsilon of Gaussian releases, each with the number of standard deviations by which the victim moves it."""
    total = math.sqrt(math.fsum(far**2 for far in distances))
    return get_epsilon_gaussian(1 / total, delta) if total else 0.0


def ledger_lines(folder: Path) -> list[Mapping[str, object]]:
    """The lines of a site's ledger, from the file."""
    path = folder / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ledger_epsilon(
    lines: Iterable[Mapping[str, object]], holder: str, delta: float, stretch: float = 1.0
) -> float:
    """What a ledger's lines say of one client, composed by the library itself.

    `stretch` is the sensitivity in clips that the adjacency has for unsampled noise: 2 where a client is replaced.
    """
    own = [line for line in lines if line["holder"] in ("server", "client", holder) and line["count"]]
    leaves = flatten(compose(repeat(event_from_json(line["event"]), int(line["count"])) for line in own))
    if all(isinstance(leaf, GaussianDpEvent) for leaf, _ in leaves):
        far = [stretch * math.sqrt(times) / leaf.noise_multiplier for leaf, times in leaves]
        return epsilon_of(far, delta)
    return _by_library(repr(leaves), tuple(leaves), delta)


_KNOWN: dict[tuple[str, float], float] = {}


def _by_library(name: str, leaves: Sequence[tuple[DpEvent, int]], delta: float) -> float:
    if (name, delta) in _KNOWN:
        return _KNOWN[name, delta]
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for leaf, times in leaves:
        accountant.compose(leaf, times)
    _KNOWN[name, delta] = float(accountant.get_epsilon(delta))
    return _KNOWN[name, delta]
