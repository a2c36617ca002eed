"""Masked sums: what one party and the server need, for a cohort of any size, with and without drop-outs.

    python benchmarks/secure_masks.py --dim 421696 --clients 100

One party does all of its work and is timed. The others only hand out keys and shares, and every vector that the server
adds up is that of the timed party: nobody's masks are held, and what opens is no sum of anything (tests/transport shows
that sums are right). Parties drop out at the worst moment, after their shares and before their vector. Where the server
would expand very many masks, it opens without them and the time of one counts for each.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from secure_case import growth, peak_growth

from fedsynth.transport.agreement import STAGES, Agreement
from fedsynth.transport.bits import unframe
from fedsynth.transport.masking_client import PartyRound
from fedsynth.transport.masking_server import ServerRound
from fedsynth.transport.primitives import KEY, Identity, add_mask, signed_by, unseal

BITS = 20
DROPPED = (0.0, 0.1, 0.3)
THRESHOLD, COLLUDERS = 0.7, 0.05  # of the cohort
_MOST_EXPANDED = 4 * 10**9  # numbers of masks that the server expands here
_TIMED = 0  # the party whose time counts


class Untimed(PartyRound):
    """A party whose time does not count: it opens the shares that it was sent, and sends no vector."""

    def _mask(self, request: bytes, vector: np.ndarray) -> bytes:
        for entry in unframe(request):
            sender = int.from_bytes(entry[:4], "big")
            opened = unseal(self._sealing_key(sender, self.number), entry[4:], self.agreement.context)
            assert opened is not None
            self._held[sender] = opened
        return b""


class Round:
    """One round of the timed party, the others and the server; seconds of both by stage."""

    def __init__(self, dim: int, clients: int) -> None:
        identities = [Identity.fresh() for _ in range(clients)]
        roster = {number: identity.public for number, identity in enumerate(identities)}
        threshold, colluders = math.ceil(THRESHOLD * clients), int(COLLUDERS * clients)
        self.terms = Agreement("benchmark", 0, dim, BITS, threshold, roster, colluders)
        self.parties: dict[int, PartyRound] = {
            number: (PartyRound if number == _TIMED else Untimed)(self.terms, number, identity)
            for number, identity in enumerate(identities)
        }
        self.server = ServerRound(self.terms)
        self.vector = np.random.default_rng(0).integers(0, 2**BITS, dim, dtype=np.uint32)
        self.party_s, self.server_s = dict.fromkeys(STAGES, 0.0), dict.fromkeys(STAGES, 0.0)
        self.up = self.down = 0
        self.party_mib = self.server_mib = 0.0

    def copied(self) -> Round:
        """The same round once more, from here on."""
        return copy.deepcopy(self, {id(self.terms): self.terms, id(self.vector): self.vector})

    def stage(self, gone: frozenset[int] = frozenset()) -> None:
        """One stage; those who are gone do not answer."""
        stage = self.server.stage
        requests = self._served(stage, self.server.requests)
        vector = self.vector if stage == "mask" else None
        own = requests[_TIMED]
        signed_by.cache_clear()  # a party of its own would check every signature
        took, grown, sent = peak_growth(lambda: self.parties[_TIMED].answer(stage, own, vector))
        self.party_s[stage], self.party_mib = took, max(self.party_mib, grown)
        self.up, self.down = self.up + len(sent), self.down + len(own)
        grown_here = growth()
        for number in requests.keys() - gone:
            answer = sent
            if number != _TIMED:
                answer = self.parties[number].answer(stage, requests[number], vector) or sent
            self._served(stage, lambda number=number, answer=answer: self.server.take(number, answer))
        self._served(stage, self.server.close)
        if stage == "mask":  # the only one with vectors in memory
            self.server_mib = grown_here()

    def _served(self, stage: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = work()
        self.server_s[stage] += time.process_time() - began
        return found

    def masks(self) -> int:
        """Masks that the server expands to open: one of each survivor, one of each pair of it and a drop-out."""
        here = set(self.server.survivors)
        pairs = sum(len(here & set(self.server._neighbors[gone])) for gone in self.parties.keys() - here)
        return len(here) + pairs

    def open(self) -> tuple[float, float, bool]:
        """Seconds, MiB, and whether every mask was expanded for it."""
        if self.masks() * self.terms.dim <= _MOST_EXPANDED:
            seconds, grown, _ = peak_growth(self.server.open)
            return seconds, grown, True
        short = replace(self.terms, dim=8)
        short.__dict__["context"] = self.terms.context  # else no key would fit
        self.server.agreement, self.server._total = short, np.zeros(8, dtype=np.uint32)
        seconds, grown, _ = peak_growth(self.server.open)
        return seconds + self.masks() * one_mask(self.terms.dim), grown, False


def one_mask(dim: int) -> float:
    """Seconds to expand and subtract one mask: the best of a few."""
    total, best = np.zeros(dim, dtype=np.uint32), float("inf")
    for _ in range(3):
        began = time.process_time()
        add_mask(total, os.urandom(KEY), subtract=True)
        best = min(best, time.process_time() - began)
    return best


def measured(dim: int, clients: int) -> dict[str, Any]:
    begun = Round(dim, clients)
    begun.stage()
    begun.stage()
    drops = {}
    for share in DROPPED:
        done = begun.copied()
        gone = frozenset(range(clients - round(share * clients), clients))
        for _ in STAGES[2:]:
            done.stage(gone if done.server.stage == "mask" else frozenset())
        opening, grown, whole = done.open()
        drops[f"{share:.0%}"] = {
            "seal_s": sum(done.party_s.values()),
            "party_s": done.party_s,
            "bytes_up": done.up,
            "bytes_down": done.down + 4 * dim,  # and the new parameters, in the clear
            "add_s": done.server_s["mask"] / len(done.server.survivors),
            "server_s": done.server_s,
            "open_s": opening,
            "every_mask_expanded": whole,
            "masks_expanded": done.masks(),
            "client_mib": done.party_mib,
            "server_mib": max(done.server_mib, grown),
        }
    return {"neighbors": begun.terms.degree[0], "bits": BITS, "one_mask_s": one_mask(dim), "dropped": drops}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--clients", type=int, default=10)
    options = parser.parse_args()
    found = measured(options.dim, options.clients)
    print(json.dumps({"kind": "secagg", "dim": options.dim, "clients": options.clients, **found}))


if __name__ == "__main__":
    main()
