"""A party's half of a masked sum: five stages, bytes in and bytes out, each at most once and in order.

    advertise  signed public keys of this round
    share      shares of the two secrets behind the masks, sealed for each neighbor
    mask       the vector plus its own mask plus or minus one mask for each neighbor
    confirm    a signature under the list of those whose vectors arrived
    reveal     for each of them a share of its own mask, for each drop-out a share of its neighbor masks: never both

The party trusts nobody: what could open a single vector is refused with the reason (`Cheated`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.transport.agreement import STAGES, Agreement, Cheated, dump, load, spot_checks
from fedsynth.transport.bits import frame, pack, unframe
from fedsynth.transport.primitives import (
    KEY,
    Identity,
    KeyPair,
    add_masks,
    derive,
    digest,
    seal,
    signed_by,
    unseal,
)
from fedsynth.transport.shamir import SHARE, split

OWN, PAIRED = b"own", b"paired"  # the two kinds of secrets


def signed_keys(agreement: Agreement, party: int, keys: bytes) -> bytes:
    """Return the bytes that a party signs about its keys."""
    return digest(agreement.context, b"keys", party.to_bytes(4, "big"), keys)


def signed_survivors(agreement: Agreement, survivors: bytes) -> bytes:
    """Return the bytes that a party signs about those whose vectors arrived."""
    return digest(agreement.context, b"survivors", survivors)


def commitment(agreement: Agreement, owner: int, holder: int, kind: bytes, share: bytes) -> bytes:
    """Binds a share without telling it, so that a wrong one is seen and its sender named."""
    return digest(agreement.context, kind, owner.to_bytes(4, "big"), holder.to_bytes(4, "big"), share)


def pair_seed(agreement: Agreement, secret: bytes, one: int, other: int) -> bytes:
    """The seed of the mask between two parties."""
    low, high = sorted((one, other))
    return derive(secret, agreement.context, b"mask" + low.to_bytes(4, "big") + high.to_bytes(4, "big"))


def sealing_key(agreement: Agreement, secret: bytes, sender: int, receiver: int) -> bytes:
    """The key of the one message from sender to receiver."""
    return derive(
        secret, agreement.context, b"seal" + sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")
    )


@dataclass
class Party:
    """A long-lived member: its identity, the smallest cohort it agrees to, and the last round it took part in.

    `last` must survive a restart: a round number is used once.
    """

    number: int
    identity: Identity
    minimum: int = 2
    last: int = -1

    def begin(self, agreement: Agreement) -> PartyRound:
        """Take part in a round; refuses terms that it was not told before, and a number that is not new."""
        if agreement.number <= self.last:
            raise Cheated(
                f"round {agreement.number} was asked again (the last was {self.last}): answering twice could open a "
                "vector; ask for a new round"
            )
        if agreement.roster.get(self.number) != self.identity.public:
            raise Cheated(f"party {self.number} is on the roster with another identity, or not at all")
        if agreement.threshold < self.minimum:
            raise Cheated(
                f"a sum over {agreement.threshold} parties was asked for; this one agrees to {self.minimum} or more"
            )
        self.last = agreement.number
        return PartyRound(agreement, self.number, self.identity)


@dataclass
class PartyRound:
    """The state of one party in one round."""

    agreement: Agreement
    number: int
    identity: Identity = field(repr=False)
    survivors: tuple[int, ...] = ()  # known from the stage confirm on: what the round costs can be paid then
    _done: int = 0
    _masking: KeyPair = field(default_factory=KeyPair.fresh, repr=False)
    _sealing: KeyPair = field(default_factory=KeyPair.fresh, repr=False)
    _own: bytes = field(default_factory=lambda: os.urandom(KEY), repr=False)
    _keys: dict[int, bytes] = field(default_factory=dict)
    _neighbors: tuple[int, ...] = ()
    _watched: frozenset[int] = frozenset()  # whose signatures it checks
    _sealed_with: dict[int, bytes] = field(default_factory=dict, repr=False)
    _held: dict[int, bytes] = field(default_factory=dict, repr=False)  # shares of others, and its own

    def answer(self, stage: str, request: bytes, vector: np.ndarray | None = None) -> bytes:
        """The answer to the server's request of this stage; `vector` (below 2^bits) for the stage mask."""
        if stage not in STAGES[self._done : self._done + 1]:
            expected = STAGES[self._done] if self._done < len(STAGES) else "nothing more"
            raise Cheated(f"stage {stage!r} was asked of party {self.number}, which expects {expected}")
        self._done += 1
        if stage == "mask":
            if vector is None:
                raise BadInput("the stage mask needs the party's vector")
            return self._mask(request, vector)
        steps = {
            "advertise": self._advertise,
            "share": self._share,
            "confirm": self._confirm,
            "reveal": self._reveal,
        }
        return steps[stage](request)

    def _advertise(self, request: bytes) -> bytes:
        keys = self._masking.public + self._sealing.public
        return keys + self.identity.sign(signed_keys(self.agreement, self.number, keys))

    def _share(self, request: bytes) -> bytes:
        """Check everybody's keys, then hand out shares of both secrets."""
        self._keys = self._checked_keys(request)
        holders, needed = (*self._neighbors, self.number), self.agreement.degree[1]
        if len(holders) < needed:
            raise Cheated(f"{len(holders)} parties could hold shares; {needed} are needed to open anything")
        own = split(self._own, needed, holders)
        paired = split(self._masking.secret, needed, holders)
        pieces = [digest(self.agreement.context, OWN, self._own)]
        for holder in sorted(holders):
            about = [
                commitment(self.agreement, self.number, holder, kind, share[holder])
                for kind, share in ((OWN, own), (PAIRED, paired))
            ]
            sealed = b""
            if holder == self.number:
                self._held[holder] = own[holder] + paired[holder]
            else:
                key = self._sealing_key(self.number, holder)
                sealed = seal(key, own[holder] + paired[holder], self.agreement.context)
            pieces.append(frame([holder.to_bytes(4, "big"), *about, sealed]))
        return frame(pieces)

    def _sealing_key(self, sender: int, receiver: int) -> bytes:
        other = receiver if sender == self.number else sender
        if other not in self._sealed_with:
            self._sealed_with[other] = self._sealing.agree(self._keys[other][KEY:])
        return sealing_key(self.agreement, self._sealed_with[other], sender, receiver)

    def _checked_keys(self, request: bytes) -> dict[int, bytes]:
        """Everybody's keys of this round, signed by the identities that the roster names."""
        sent: dict[int, bytes] = {}
        signatures: dict[int, bytes] = {}
        for entry in unframe(request):
            party = int.from_bytes(entry[:4], "big")
            if party in sent:
                raise Cheated(f"party {party} is in the cohort twice")
            sent[party], signatures[party] = entry[4:68], entry[68:]
        strangers = sorted(set(sent) - set(self.agreement.roster))
        if strangers:
            raise Cheated(f"party {strangers[0]} is not on the roster: its keys may be swapped")
        self._meet(sorted(sent))
        for party in self._watched:
            message = signed_keys(self.agreement, party, sent[party])
            if not signed_by(self.agreement.roster[party], signatures[party], message):
                raise Cheated(
                    f"the keys of party {party} are not signed by its identity: they may be swapped"
                )
        if sent.get(self.number) != self._masking.public + self._sealing.public:
            raise Cheated(f"the cohort was formed with other keys of party {self.number} than it sent")
        if len(sent) < self.agreement.threshold:
            raise Cheated(
                f"a cohort of {len(sent)}: fewer than the {self.agreement.threshold} agreed on would expose them"
            )
        self._enough_noise(sent)
        if len({keys[:KEY] for keys in sent.values()}) != len(sent):
            raise Cheated("two parties have the same keys")
        return sent

    def _meet(self, present: list[int]) -> None:
        """Learn who the neighbors are, and choose whom to check: them, and some others that nobody can foresee.

        With everybody as a neighbor that is everybody. Else each party is checked by its neighbors and, by chance, by
        many others: keys that were made up cost the server more and more honest parties, until too few are left.
        """
        if self.number not in present:
            raise Cheated(
                f"the cohort was formed without it, or with other keys of party {self.number} than it sent"
            )
        self._neighbors = self.agreement.neighbors(present, of=self.number)[self.number]
        others = sorted(set(present) - {self.number, *self._neighbors})
        terms = self.agreement
        checks = spot_checks(len(terms.roster), terms.threshold, terms.colluders)
        by_chance = secrets.SystemRandom().sample(others, min(checks, len(others)))
        self._watched = frozenset((self.number, *self._neighbors, *by_chance))

    def _mask(self, request: bytes, vector: np.ndarray) -> bytes:
        """Open what neighbors sealed, and mask the vector with all who shared."""
        terms = self.agreement
        if vector.shape != (terms.dim,):
            raise BadInput(f"a vector of shape {vector.shape}: the round sums {terms.dim} numbers")
        sharers = {}
        for entry in unframe(request):
            sender, sealed = int.from_bytes(entry[:4], "big"), entry[4:]
            if sender not in self._neighbors or sender in sharers:
                raise Cheated(f"a share came from party {sender}, which is no neighbor or sent one already")
            opened = unseal(self._sealing_key(sender, self.number), sealed, terms.context)
            if opened is None or len(opened) != 2 * SHARE:
                raise Cheated(f"the share from party {sender} was not sealed by it for this round")
            sharers[sender] = opened
        if len(sharers) + 1 < terms.degree[1]:
            raise Cheated(
                f"{len(sharers)} neighbors shared their secrets: with fewer than {terms.degree[1] - 1} the masks "
                "would not hide this party's vector"
            )
        self._held |= sharers
        total = (vector.astype(np.int64) & (2**terms.bits - 1)).astype(np.uint32)
        own = derive(self._own, terms.context, OWN)
        add_masks(total, [lambda: (own, False), *(partial(self._pair_mask, other) for other in sharers)])
        return pack(total, terms.bits)

    def _pair_mask(self, other: int) -> tuple[bytes, bool]:
        return self._pair_seed(other), self.number > other

    def _pair_seed(self, other: int) -> bytes:
        return pair_seed(self.agreement, self._masking.agree(self._keys[other][:KEY]), self.number, other)

    def _confirm(self, request: bytes) -> bytes:
        """Sign the list of survivors, if it is one that may be opened."""
        survivors = load(request)
        if self.number not in survivors:
            raise Cheated(f"party {self.number} sent its vector but is said to have dropped out")
        strangers = set(survivors) - set(self._keys)
        if strangers:
            raise Cheated(f"parties {sorted(strangers)} survived without having been in the cohort")
        if len(survivors) < self.agreement.threshold:
            raise Cheated(
                f"{len(survivors)} survivors: fewer than the {self.agreement.threshold} agreed on must not be opened"
            )
        self._enough_noise(survivors)
        around = len(set(survivors) & {self.number, *self._neighbors})
        if around < self.agreement.degree[1]:
            raise Cheated(f"{around} neighbors of party {self.number} survived: too few to hide its vector")
        self.survivors = tuple(survivors)
        return self.identity.sign(signed_survivors(self.agreement, dump(survivors)))

    def _enough_noise(self, parties: Iterable[int]) -> None:
        clients, least = self.agreement.clients(parties), self.agreement.least
        if clients < least:
            raise Cheated(f"{clients} clients in the sum: the noise is shared out over at least {least}")

    def _reveal(self, request: bytes) -> bytes:
        """Shares that open the sum over the survivors, once enough of them confirmed the same list."""
        signers = set()
        message = signed_survivors(self.agreement, dump(self.survivors))
        for entry in unframe(request):
            party, signature = int.from_bytes(entry[:4], "big"), entry[4:]
            if party not in self.survivors or (
                party in self._watched and not signed_by(self.agreement.roster[party], signature, message)
            ):
                raise Cheated(
                    f"party {party} did not confirm the survivors that this party was shown: somebody may have been "
                    "told that others are alive"
                )
            signers.add(party)
        if len(signers) < self.agreement.threshold:
            raise Cheated(
                f"{len(signers)} parties confirmed the survivors; {self.agreement.threshold} must agree on them"
            )
        pieces = []
        for owner, shares in sorted(self._held.items()):
            alive = owner in self.survivors
            share = shares[:SHARE] if alive else shares[SHARE:]
            pieces.append(owner.to_bytes(4, "big") + (b"\x01" if alive else b"\x00") + share)
        self._held.clear()
        return frame(pieces)
