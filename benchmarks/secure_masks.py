"""Masked sums: what one party and the server need, for a cohort of any size, with and without drop-outs.

    python benchmarks/secure_masks.py --clients 100 --dims 421696 1000000

One party does all of its work and is timed. The others only hand out keys and shares, and every vector that the server
adds up is that of the timed party: nobody's masks are held, and what opens is no sum of anything (tests/transport shows
that sums are right). Parties drop out at the worst moment, after their shares and before their vector. Keys, shares,
signatures and secrets do not depend on the length of a vector: they are exchanged once, and timed once for each share
of drop-outs; masking, adding and expanding a mask is timed for each length, and the time of one mask that the server
expands counts for each.
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
from secure_case import peak_growth

from fedsynth.transport.agreement import STAGES, Agreement
from fedsynth.transport.bits import packed_size, unframe, unpack
from fedsynth.transport.masking_client import PartyRound
from fedsynth.transport.masking_server import ServerRound
from fedsynth.transport.primitives import KEY, Identity, add_mask, signed_by, unseal

BITS = 20
DROPPED = (0.0, 0.1, 0.3)
THRESHOLD, COLLUDERS = 0.7, 0.05  # of the cohort
_SHORT = 8  # numbers in a vector where its length does not matter
_ADDED = 20  # vectors that the server adds up to time one
_TIMED = 0  # the party whose time counts


class Untimed(PartyRound):
    """A party whose time does not count: it opens the shares that it was sent, and sends no vector."""

    def _mask(self, request: bytes, vector: np.ndarray) -> bytes:
        if len(self._held) > 1:
            return b""
        for entry in unframe(request):
            sender = int.from_bytes(entry[:4], "big")
            opened = unseal(self._sealing_key(sender, self.number), entry[4:], self.agreement.context)
            assert opened is not None
            self._held[sender] = opened
        return b""


class Round:
    """One round of the timed party, the others and the server; seconds of both by stage."""

    def __init__(self, clients: int) -> None:
        identities = [Identity.fresh() for _ in range(clients)]
        roster = {number: identity.public for number, identity in enumerate(identities)}
        threshold, colluders = math.ceil(THRESHOLD * clients), int(COLLUDERS * clients)
        self.terms = Agreement("benchmark", 0, _SHORT, BITS, threshold, roster, colluders)
        self.parties: dict[int, PartyRound] = {
            number: (PartyRound if number == _TIMED else Untimed)(self.terms, number, identity)
            for number, identity in enumerate(identities)
        }
        self.server = ServerRound(self.terms)
        self.party_s, self.server_s = dict.fromkeys(STAGES, 0.0), dict.fromkeys(STAGES, 0.0)
        self.up = self.down = 0
        self.deliveries: dict[int, bytes] = {}

    def stage(self, gone: frozenset[int] = frozenset()) -> None:
        """One stage; those who are gone do not answer."""
        stage = self.server.stage
        requests = self._served(stage, self.server.requests)
        vector = np.zeros(_SHORT, dtype=np.uint32) if stage == "mask" else None
        own = requests[_TIMED]
        signed_by.cache_clear()  # a party of its own would check every signature
        took, _, sent = peak_growth(lambda: self.parties[_TIMED].answer(stage, own, vector))
        self.party_s[stage] = took
        self.up, self.down = self.up + len(sent), self.down + len(own)
        for number in requests.keys() - gone:
            answer = sent
            if number != _TIMED:
                answer = self.parties[number].answer(stage, requests[number], vector) or sent
            self._served(stage, lambda number=number, answer=answer: self.server.take(number, answer))
        self._served(stage, self.server.close)

    def opened_shares(self) -> None:
        """Let those whose time does not count open their shares, once for all shares of drop-outs."""
        self.deliveries = self.server.requests()
        for number, party in self.parties.items():
            if number != _TIMED:
                party._mask(self.deliveries[number], np.zeros(_SHORT, dtype=np.uint32))

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


def one_mask(dim: int) -> float:
    """Seconds to expand and subtract one mask: the best of a few."""
    total, best = np.zeros(dim, dtype=np.uint32), float("inf")
    for _ in range(3):
        began = time.process_time()
        add_mask(total, os.urandom(KEY), subtract=True)
        best = min(best, time.process_time() - began)
    return best


def masked(begun: Round, dim: int) -> tuple[float, float, bytes]:
    """Seconds and MiB of the timed party's stage of masking a vector of this length, and what it sends."""
    long = replace(begun.terms, dim=dim)
    long.__dict__["context"] = begun.terms.context  # else no key would fit
    vector = np.random.default_rng(0).integers(0, 2**BITS, dim, dtype=np.uint32)
    best, grown, sent = math.inf, 0.0, b""
    for _ in range(2):
        party = copy.deepcopy(begun.parties[_TIMED], {id(begun.terms): long})
        took, held, sent = peak_growth(lambda party=party: party._mask(begun.deliveries[_TIMED], vector))
        best, grown = min(best, took), max(grown, held)
    return best, grown, sent


def added(sent: bytes, dim: int) -> tuple[float, float]:
    """Seconds to add one vector to a sum of this length, and MiB that this takes."""
    total = unpack(sent, dim, BITS)

    def work() -> None:
        for _ in range(_ADDED):
            np.add(total, unpack(sent, dim, BITS), out=total)

    seconds, grown, _ = peak_growth(work)
    return seconds / _ADDED, grown + 4 * dim / 2**20


def measured(clients: int, dims: list[int]) -> list[dict[str, Any]]:
    begun = Round(clients)
    begun.stage()
    begun.stage()
    begun.opened_shares()
    drops = {}
    for share in DROPPED:
        done = copy.deepcopy(begun, {id(begun.terms): begun.terms})
        gone = frozenset(range(clients - round(share * clients), clients))
        for _ in STAGES[2:]:
            done.stage(gone if done.server.stage == "mask" else frozenset())
        opening, _, _ = peak_growth(done.server.open)
        drops[f"{share:.0%}"] = (done, opening, done.masks())
    return [_result(begun, dim, clients, drops) for dim in dims]


def _result(
    begun: Round, dim: int, clients: int, drops: dict[str, tuple[Round, float, int]]
) -> dict[str, Any]:
    masking, party_mib, sent = masked(begun, dim)
    adding, server_mib = added(sent, dim)
    expanding = one_mask(dim)
    found = {}
    for share, (done, opening, masks) in drops.items():
        others = sum(seconds for stage, seconds in done.party_s.items() if stage != "mask")
        short = packed_size(_SHORT, BITS)
        found[share] = {
            "seal_s": others + masking,
            "party_s": {**done.party_s, "mask": masking},
            "bytes_up": done.up - short + len(sent),
            "bytes_down": done.down + 4 * dim,  # and the new parameters, in the clear
            "add_s": adding,
            "server_s": done.server_s,
            "open_s": opening + masks * expanding,
            "every_mask_expanded": False,
            "masks_expanded": masks,
            "client_mib": party_mib,
            "server_mib": server_mib,
        }
    return {
        "kind": "secagg",
        "dim": dim,
        "clients": clients,
        "neighbors": begun.terms.degree[0],
        "bits": BITS,
        "one_mask_s": expanding,
        "dropped": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dims", type=int, nargs="+", required=True)
    parser.add_argument("--clients", type=int, default=10)
    options = parser.parse_args()
    for found in measured(options.clients, options.dims):
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
