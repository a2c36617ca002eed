"""Sealed sums over a channel: sites hold the secret key, seal whole parameters and open the average themselves.

The server adds up what it cannot read and hands the sealed sum out with the next round. It is told the public key by
the sites, and has no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedsynth.deploy.link.buffered import Buffered
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.link.routed import Routed
from fedsynth.deploy.site.run import Refusal, Seal
from fedsynth.errors import BadInput, FedsynthError, Incompatible
from fedsynth.federation.algorithm import Algorithm, Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.state import ServerState
from fedsynth.transport.bits import frame, unframe
from fedsynth.transport.he import Homomorphic, SealedSum
from fedsynth.transport.he_scheme import Keys, Parameters

_KEY = "key"  # the stage in which a site tells the public key


def keyed(algorithm: Algorithm, keys: Keys) -> Algorithm:
    """The algorithm with its messages laid out for keys that exist already."""
    hidden = cast(Homomorphic, algorithm.transport)
    scheme = "ckks" if hidden.approximate else "bfv"
    if keys.parameters.scheme != scheme:
        raise Incompatible(
            f"{hidden.name} seals with {scheme}, but the key {keys.fingerprint.hex()} is one of "
            f"{keys.parameters.scheme}; make keys with fedsynth keys create --scheme {scheme}"
        )
    return replace(algorithm, transport=replace(hidden, keys=keys))


@dataclass(frozen=True)
class SealingSite:
    """A site's half: it seals with the secret key, and opens averages over `minimum` clients or more."""

    algorithm: Algorithm
    minimum: int = 2

    @property
    def _transport(self) -> Homomorphic:
        return cast(Homomorphic, self.algorithm.transport)

    def stage(self, version: int, name: str, payload: bytes) -> bytes:
        """Tell the public key: the only question there is."""
        if name != _KEY:
            raise BadInput(
                f"stage={name[:40]!r}: over {self._transport.name} a site is asked for its {_KEY} only"
            )
        public = self._transport.key.shared
        return frame([public.parameters.to_text().encode(), public.public])

    def seal(self, job: str, total: Tensor, clients: int) -> bytes:
        """The site's sum [1, dim] over so many clients, sealed."""
        return self._transport.seal_sum(total[0], clients)

    def unseal(self, sealed: bytes) -> dict[str, Tensor]:
        """The shared parts in the sealed average that this site was sent."""
        total = self._transport.zero(self.algorithm.wire)
        total.add(sealed, self._transport.key.fingerprint, final=True)
        if total.count < self.minimum:
            raise Refusal(
                "policy",
                f"the sealed average is over {total.count} clients; this site opens those over {self.minimum} or more",
            )
        return self.algorithm.parts_of(self._transport.open(self.algorithm.wire, total))


def sealing(minimum: int = 2) -> Seal:
    """The site's half of he, for `Site(seals={"he": ...})`; the algorithm was composed with the site's keys."""

    def sealing_site(run: str, algorithm: Algorithm, folder: Path) -> SealingSite:
        return SealingSite(algorithm, minimum)

    return sealing_site


@dataclass
class SealedLink:
    """The server's half: a link to sites whose sums it adds up without being able to read any."""

    remote: Remote
    beneath: Remote | Buffered  # what it starts work over and hears results from
    _algorithm: Algorithm | None = field(default=None, init=False)
    _hidden: Homomorphic | None = field(
        default=None, init=False
    )  # with the public key, once sites have told it
    _sum: SealedSum | None = field(default=None, init=False)  # of the version under way

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Send the work; before the first round, learn with which key the sites seal."""
        if job is self._algorithm:
            if self._hidden is None:
                self._hidden = self._introduced(state.version)
            if self._sum is None:
                self._sum = self._hidden.zero(job.wire)
        self.beneath.start(job, ids, state)

    def _introduced(self, version: int) -> Homomorphic:
        assert self._algorithm is not None
        answers = self.remote.stage(version, _KEY, dict.fromkeys(self.remote.roster.present, b""))
        keys_of_sites = {site: _public(site, answer) for site, answer in answers.items()}
        if not keys_of_sites:
            raise FedsynthError("no site told its public key; start the sites and continue with --resume")
        if len({keys.fingerprint for keys in keys_of_sites.values()}) > 1:
            named = ", ".join(
                f"{site} {keys.fingerprint.hex()}" for site, keys in sorted(keys_of_sites.items())
            )
            raise Incompatible(f"the sites seal with different keys ({named}); give all the same")
        chosen = next(iter(keys_of_sites.values()))
        unkeyed = replace(self._algorithm, transport=cast(Routed, self._algorithm.transport).hidden)
        return cast(Homomorphic, keyed(unkeyed, chosen).transport)

    def next(self) -> Arrival:
        """The next site whose sum was added, or the news that it was not."""
        arrival = self.beneath.next()
        if arrival.messages.dtype != torch.uint8:
            return arrival
        assert self._sum is not None and self._hidden is not None and self._algorithm is not None
        nothing = self._algorithm.wire.zero()[None][:0]
        try:
            self._sum.add(arrival.messages.numpy().tobytes(), self._hidden.key.fingerprint, len(arrival.ids))
        except FedsynthError as error:
            site = self.remote.roster.owner(int(arrival.ids[0]))
            self.remote.tell(site, arrival.version, f"is left out of the sealed sum: {error}")
            lost, gone = arrival.lost + len(arrival.ids), np.concatenate([arrival.gone, arrival.ids])
            return replace(arrival, ids=arrival.ids[:0], messages=nothing, lost=lost, gone=gone)
        return replace(arrival, messages=nothing)

    def open(self) -> Tensor:
        """The sealed sum as bytes; nothing if fewer clients are in it than sites must take part."""
        assert self._sum is not None and self._hidden is not None
        if self._sum.count < max(1, self.remote.minimum):
            return torch.zeros(0, dtype=torch.float64)
        return torch.frombuffer(bytearray(self._hidden.close(self._sum)), dtype=torch.uint8)

    def absent(self, *, for_good: bool = False) -> np.ndarray:
        """As the link beneath."""
        return self.beneath.absent(for_good=for_good)

    def commit(self) -> None:
        """As the link beneath; the next sum is a new one."""
        self.beneath.commit()
        self._sum = None

    def index(self) -> dict[str, Tensor]:
        """As the link beneath: what was added up since the last step is there as it came."""
        return self.beneath.index()

    def restore(self, index: dict[str, Tensor]) -> None:
        """As the link beneath."""
        self.beneath.restore(index)
        self._sum = None

    def close(self, state: ServerState) -> None:
        """As the link beneath."""
        self.beneath.close(state)

    def routed(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm as the server runs it over this link; one-shot questions are not sealed."""
        self._algorithm = replace(algorithm, transport=Routed(self, algorithm.transport))
        return self._algorithm


def _public(site: str, answer: bytes) -> Keys:
    """The public key that a site told."""
    try:
        parameters, public = unframe(answer, 2)
        return Keys(Parameters.from_text(parameters.decode()), public)
    except (BadInput, UnicodeDecodeError) as error:
        raise BadInput(f"{site}: its public key cannot be read ({error}); look at its keys") from None
