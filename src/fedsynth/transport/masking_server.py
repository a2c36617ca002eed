"""The server's half of a masked sum: it routes, adds up one vector at a time, and opens the sum and nothing else.

A message that does not fit is refused and its sender counts as dropped out; below the threshold the round aborts.
What is kept grows with the number of parties by keys and shares only, never by vectors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.transport.agreement import STAGES, Aborted, Agreement, dump
from fedsynth.transport.bits import frame, unframe, unpack
from fedsynth.transport.masking_client import (
    OWN,
    PAIRED,
    commitment,
    pair_seed,
    signed_keys,
    signed_survivors,
)
from fedsynth.transport.primitives import KEY, SIGNATURE, KeyPair, add_masks, derive, digest, signed_by
from fedsynth.transport.shamir import SHARE, join


@dataclass
class _Sharing:
    """The server's knowledge of one party's secrets: commitments, and sealed shares to be handed on."""

    own: bytes  # digest of the seed of its own mask
    commitments: dict[int, tuple[bytes, bytes]]
    sealed: dict[int, bytes]


@dataclass
class ServerRound:
    """One round: for each stage `requests`, then `take` for each answer, then `close`; at the end `open`."""

    agreement: Agreement
    _stage: int = 0
    _keys: dict[int, bytes] = field(default_factory=dict)
    _sharings: dict[int, _Sharing] = field(default_factory=dict)
    _total: np.ndarray | None = None
    _arrived: list[int] = field(default_factory=list)
    _confirmed: dict[int, bytes] = field(default_factory=dict)
    _shares: dict[tuple[int, bytes], dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    _revealed: set[int] = field(default_factory=set)
    _neighbors: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        """The stage whose answers are taken now."""
        return STAGES[self._stage]

    @property
    def survivors(self) -> tuple[int, ...]:
        """Those whose vectors are in the sum."""
        return tuple(sorted(self._arrived))

    def requests(self) -> dict[int, bytes]:
        """Return the request to each party at this stage."""
        if self.stage == "advertise":
            return dict.fromkeys(sorted(self.agreement.roster), b"")
        if self.stage == "share":
            everyone = frame([party.to_bytes(4, "big") + keys for party, keys in sorted(self._keys.items())])
            return dict.fromkeys(sorted(self._keys), everyone)
        if self.stage == "mask":
            return {party: self._delivery(party) for party in sorted(self._sharings)}
        if self.stage == "confirm":
            return dict.fromkeys(self.survivors, dump(self.survivors))
        signatures = frame(
            [party.to_bytes(4, "big") + sign for party, sign in sorted(self._confirmed.items())]
        )
        return dict.fromkeys(sorted(self._confirmed), signatures)

    def _delivery(self, party: int) -> bytes:
        """The shares that others sealed for this party."""
        senders = (other for other in self._neighbors[party] if other in self._sharings)
        return frame([other.to_bytes(4, "big") + self._sharings[other].sealed[party] for other in senders])

    def take(self, party: int, answer: bytes) -> None:
        """One party's answer; refuses with BadInput what does not fit, and the party then counts as dropped out."""
        if party not in self.agreement.roster:
            raise BadInput(f"party {party} is not on the roster")
        steps = {
            "advertise": self._take_keys,
            "share": self._take_shares,
            "mask": self._take_masked,
            "confirm": self._take_confirmation,
            "reveal": self._take_revealed,
        }
        steps[self.stage](party, answer)

    def close(self) -> None:
        """Go on to the next stage with those who answered."""
        answered = {
            "advertise": len(self._keys),
            "share": len(self._sharings),
            "mask": len(self._arrived),
            "confirm": len(self._confirmed),
            "reveal": len(self._revealed),
        }[self.stage]
        if answered < self.agreement.threshold:
            raise Aborted(
                f"round {self.agreement.number}: {answered} of {len(self.agreement.roster)} parties answered the "
                f"stage {self.stage}, {self.agreement.threshold} are needed; nothing was opened, begin a new round"
            )
        if self.stage == "mask" and self.agreement.clients(self._arrived) < self.agreement.least:
            raise Aborted(
                f"round {self.agreement.number}: {self.agreement.clients(self._arrived)} clients are in the sum, "
                f"{self.agreement.least} are needed for its noise; nothing was opened, begin a new round"
            )
        if self.stage == "advertise":
            self._neighbors = self.agreement.neighbors(sorted(self._keys))
        self._stage = min(self._stage + 1, len(STAGES) - 1)

    def _take_keys(self, party: int, answer: bytes) -> None:
        keys, signature = answer[: 2 * KEY], answer[2 * KEY :]
        fits = len(answer) == 2 * KEY + SIGNATURE
        message = signed_keys(self.agreement, party, keys)
        if not fits or not signed_by(self.agreement.roster[party], signature, message):
            raise BadInput(f"party {party}: its keys are not signed by its identity for this round")
        if party in self._keys:
            raise BadInput(f"party {party} sent keys twice")
        self._keys[party] = answer

    def _take_shares(self, party: int, answer: bytes) -> None:
        own, *entries = unframe(answer)
        if party not in self._keys or party in self._sharings or len(own) != 32:
            raise BadInput(f"party {party}: shares twice, without keys, or without a commitment")
        sharing = _Sharing(own, {}, {})
        for entry in entries:
            holder, first, second, sealed = unframe(entry, 4)
            place = int.from_bytes(holder, "big")
            sharing.commitments[place] = (first, second)
            sharing.sealed[place] = sealed
        if set(sharing.commitments) != {party, *self._neighbors[party]}:
            raise BadInput(f"party {party}: shares for others than its neighbors")
        self._sharings[party] = sharing

    def _take_masked(self, party: int, answer: bytes) -> None:
        """Add one masked vector to the sum; it is not kept."""
        if party not in self._sharings or party in self._arrived:
            raise BadInput(f"party {party}: a vector twice, or without shares")
        vector = unpack(answer, self.agreement.dim, self.agreement.bits)
        if self._total is None:
            self._total = vector
        else:
            self._total += vector
        self._arrived.append(party)

    def _take_confirmation(self, party: int, answer: bytes) -> None:
        message = signed_survivors(self.agreement, dump(self.survivors))
        if party not in self._arrived or not signed_by(self.agreement.roster[party], answer, message):
            raise BadInput(f"party {party}: no valid confirmation of the survivors")
        self._confirmed[party] = answer

    def _take_revealed(self, party: int, answer: bytes) -> None:
        """Shares, each compared with what its owner committed to."""
        if party not in self._confirmed or party in self._revealed:
            raise BadInput(f"party {party}: shares twice, or without a confirmation")
        good: dict[tuple[int, bytes], bytes] = {}
        for piece in unframe(answer):
            owner, share = int.from_bytes(piece[:4], "big"), piece[5:]
            kind = OWN if owner in self._arrived else PAIRED
            known = self._sharings.get(owner)
            stated = None if known is None else known.commitments.get(party)
            committed = commitment(self.agreement, owner, party, kind, share)
            if stated is None or len(share) != SHARE or committed != stated[0 if kind == OWN else 1]:
                raise BadInput(
                    f"party {party}: the share it revealed of party {owner} is not the one it was given"
                )
            good[owner, kind] = share
        for key, share in good.items():
            self._shares[key][party] = share
        self._revealed.add(party)

    def open(self) -> np.ndarray:
        """The sum of the survivors' vectors (uint32 below 2^bits), all masks taken away."""
        terms = self.agreement
        if len(self._revealed) < terms.threshold or self._total is None:
            raise Aborted(
                f"round {terms.number}: {len(self._revealed)} parties revealed shares, {terms.threshold} are needed; "
                "nothing was opened, begin a new round"
            )
        arrived, total = set(self._arrived), self._total.copy()
        masks = [partial(self._own_mask, self._secret(party, OWN)) for party in self._arrived]
        for gone in set(self._sharings) - arrived:
            pair = KeyPair(self._secret(gone, PAIRED))
            here = (other for other in self._neighbors[gone] if other in arrived)
            masks += [partial(self._pair_mask, pair, gone, other) for other in here]
        add_masks(total, masks)
        return total & np.uint32(2**terms.bits - 1)

    def _own_mask(self, secret: bytes) -> tuple[bytes, bool]:
        return derive(secret, self.agreement.context, OWN), True

    def _pair_mask(self, pair: KeyPair, gone: int, other: int) -> tuple[bytes, bool]:
        return pair_seed(self.agreement, pair.agree(self._keys[other][:KEY]), gone, other), other < gone

    def _secret(self, owner: int, kind: bytes) -> bytes:
        """A party's secret from the shares of others, compared with what it said of it before."""
        shares, needed = self._shares[owner, kind], self.agreement.degree[1]
        if len(shares) < needed:
            raise Aborted(
                f"round {self.agreement.number}: {len(shares)} shares of party {owner}'s masks, {needed} are needed; "
                "the sum stays closed, begin a new round"
            )
        secret = join(shares, needed)
        if kind == OWN:
            fits = (
                secret is not None
                and digest(self.agreement.context, OWN, secret) == self._sharings[owner].own
            )
        else:
            fits = secret is not None and KeyPair(secret).public == self._keys[owner][:KEY]
        if secret is None or not fits:
            raise Aborted(
                f"round {self.agreement.number}: the shares that party {owner} gave out do not make its secret; leave "
                "it out and begin a new round"
            )
        return secret
