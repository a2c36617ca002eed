"""The transport `he`: messages are sealed at the clients and added up by a server that cannot open them.

Blind, as in PP-FedGAN: all clients hold one secret key and the server none. Clients seal their full parameters with
equal weights; the server adds them up, and the clients open the average themselves when the next round begins. A named
key-holder opens the last one and exports the generator. Not blind: only a key-holder has the secret key, clients seal
with the public one, and the key-holder opens each sum for the server, which may then do what it likes with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput, Incompatible, NotPrivate
from fedsynth.rng import Rng
from fedsynth.transport.he_packing import PAPER, Approximate, Packed, SlotLayout
from fedsynth.transport.he_scheme import Keys, add, ciphertext, saved
from fedsynth.transport.ring import Parties, Ring
from fedsynth.transport.wire import Real, Wire

# magic, version, fingerprint of the key, digest of the layout, clients in the sum, ciphertexts that follow
_HEAD = struct.Struct("<4sH16s16sII")
_MAGIC, _VERSION = b"FSHE", 1
_LENGTH = struct.Struct("<I")
_SLACK = 4096  # bytes that a ciphertext may be longer than two polynomials of 64-bit words

_SHARED_KEY = (
    "The messages were sealed with one key that all clients hold. This protects them against the server alone: any one "
    "client that helps the server, or lets its key be stolen, opens the messages of all."
)
_HELD_KEY = (
    "The messages were sealed with the public key of a key-holder, who opens the sum. Whoever adds up and the "
    "key-holder together can open the messages of every client."
)
_APPROXIMATE = (
    "CKKS opens approximate numbers, and exact copies of what was opened can reveal the secret key (Li and Micciancio "
    "2021): the opened averages must stay with the key-holders, and the key must not be used for anything else."
)
_QUERIES = "One-shot questions, such as the class balance, are not sealed."


class SealedSum:
    """A sum that nobody here can open: ciphertexts, and how many clients are in them. It grows with neither."""

    def __init__(self, layout: SlotLayout) -> None:
        self.layout = layout
        self.count = 0
        self.ciphertexts: list[Any] = []

    def add(self, sealed: bytes, fingerprint: bytes, clients: int | None = None, final: bool = False) -> None:
        """Add a message or another sum; one that is damaged, foreign or one client too many is refused whole.

        Where it is known of how many `clients` it must be, another number is refused too. A sum that was sent out to be
        opened is taken only where it is `final`.
        """
        count, pieces = _parsed(sealed, self.layout, fingerprint)
        final = final and not self.count
        if clients is not None and count != clients:
            raise BadInput(f"a sealed sum claims {count} clients; {clients} were asked for")
        if self.count + count > self.layout.clients:
            raise Incompatible(
                f"{self.count} clients and {count} more: this sum has room for {self.layout.clients}, which no cohort "
                "should exceed; continue with --resume"
            )
        parameters = self.layout.parameters
        arrived = [
            ciphertext(parameters, piece, final) for piece in pieces
        ]  # all are read before any is added
        for place, one in enumerate(arrived):
            if self.count:
                add(parameters, self.ciphertexts[place], one)
            else:
                self.ciphertexts.append(one)
        self.count += count

    def to_bytes(self, fingerprint: bytes) -> bytes:
        """The sum as a message to those who open it."""
        parameters, dropped = self.layout.parameters, self.layout.dropped
        pieces = [saved(parameters, one, dropped) for one in self.ciphertexts]
        return _joined(self.layout, fingerprint, self.count, pieces)


@dataclass(frozen=True)
class Homomorphic:
    """Sums of sealed messages. `reach` bounds a parameter's magnitude: larger ones are cut to it.

    With `keys=None` key material is made in memory when it is first needed: a simulation, in which one process plays
    all parties. A server has keys without their secret half and cannot open anything; `seal` and `open` are for
    clients and key-holders.
    """

    name: str = "he"
    blind: bool = True
    approximate: bool = False
    reach: float = 8.0
    least_bits: int = 16
    keys: Keys | None = None
    layout: SlotLayout | None = None
    parties: Parties | None = None  # over whom a mechanism shared its noise out
    needs_cohort: bool = False

    @property
    def carries(self) -> tuple[str, ...]:
        """Reals; exact integers only where the sum is opened, since a blind sum holds parameters."""
        return ("real",) if self.blind or self.approximate else ("real", "ring")

    @property
    def caveats(self) -> tuple[str, ...]:
        """The attacks that the key model does not protect against, for the statement."""
        who = _SHARED_KEY if self.blind else _HELD_KEY
        queries = () if self.parties else (_QUERIES,)
        return (who, *((_APPROXIMATE,) if self.approximate else ()), *queries)

    def fitted(self, wire: Wire, clients: int) -> Homomorphic:
        """The same, laid out for sums of at most `clients` such messages; refuses what has no room."""
        if wire.kind not in self.carries:  # whoever composes says what does not fit
            return self
        fixed = self.keys.parameters if self.keys else None
        if wire.kind == "ring":
            ring = cast(Ring, wire)
            packed: SlotLayout = Packed.planned(
                wire.dim, clients, ring_bits=ring.bits, secret=self.blind, fixed=fixed
            )
            return replace(self, layout=packed, parties=ring.parties)
        if cast(Real, wire).as_is:
            raise Incompatible(
                f"{self.name} rounds messages at random, which can make them longer than the clip that noise added at "
                "the server is scaled to; use trust=local or trust=distributed, or the transport clear"
            )
        stated = cast(Real, wire).reach
        reach = self.reach + (stated or 0.0) if self.blind or not stated else stated
        if self.approximate:
            return replace(self, layout=Approximate(fixed or PAPER, wire.dim, clients, reach, self.blind))
        planned = Packed.planned(
            wire.dim, clients, reach=reach, least_bits=self.least_bits, secret=self.blind, fixed=fixed
        )
        return replace(self, layout=planned)

    @cached_property
    def key(self) -> Keys:
        """The key material in use."""
        return self.keys or Keys.fresh(self.laid_out.parameters)

    @property
    def laid_out(self) -> SlotLayout:
        """The layout, once it is known what is summed."""
        if self.layout is None:
            raise Incompatible(
                f"{self.name}: call `fitted` with the form of the messages and the clients first"
            )
        return self.layout

    def rounded(self, messages: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """The client's first half: messages [clients, dim] as they can be sealed exactly."""
        return self.laid_out.rounded(messages, rng.at("rounding"), ids)

    def seal(self, messages: Tensor) -> bytes:
        """The client's second half: the sum of rounded messages [clients, dim], sealed."""
        return self.seal_sum(messages.to(torch.float64).sum(0), len(messages))

    def seal_sum(self, total: Tensor, count: int) -> bytes:
        """The sum [dim] of `count` clients' rounded messages, sealed: steps are powers of two, so sums are exact."""
        layout = self.laid_out
        if not 1 <= count <= layout.clients:
            raise Incompatible(f"{count} messages: a sum here has between 1 and {layout.clients}")
        sealer = self.key if self.blind else self.key.shared
        pieces = [sealer.seal(slots) for slots in layout.slots(total, count)]
        return _joined(layout, self.key.fingerprint, count, pieces)

    def bytes_up(self, wire: Wire, plain: int) -> int:
        """As if each client sealed its own message, though a simulation seals the sum of a chunk."""
        return self.laid_out.bytes_for(self.blind) + self._framing

    def bytes_down(self, plain: int) -> int:
        """The sealed average where the server is blind."""
        return self.laid_out.bytes_down + self._framing if self.blind else plain

    @property
    def _framing(self) -> int:
        return _HEAD.size + _LENGTH.size * self.laid_out.ciphertexts

    def zero(self, wire: Wire) -> SealedSum:
        """The empty sum."""
        return SealedSum(self.laid_out)

    def add(self, total: SealedSum, sealed: bytes) -> SealedSum:
        """The server's half: a message added to the sum, without any secret."""
        total.add(sealed, self.key.fingerprint)
        return total

    def absorb(self, wire: Wire, total: SealedSum, messages: Tensor, weights: Tensor) -> SealedSum:
        """The sum with a chunk of arrivals, sealed on the way."""
        if not bool((weights == 1).all()):
            raise Incompatible("sealed messages cannot be weighted: use a schedule in which all count alike")
        return self.add(total, self.seal(messages)) if len(messages) else total

    def close(self, total: SealedSum) -> bytes:
        """Return the sealed sum as the bytes that the server sends out."""
        return total.to_bytes(self.key.fingerprint)

    def open(self, wire: Wire, total: SealedSum | bytes) -> Tensor:
        """The key-holder's half: the sum, or the average where the server is blind; nothing if nobody is in it."""
        layout = self.laid_out
        if isinstance(total, bytes):
            sealed, total = total, SealedSum(layout)
            total.add(sealed, self.key.fingerprint, final=True)
        if self.parties and total.count < self.parties.threshold:
            raise NotPrivate(
                f"{total.count} messages in the sum: the noise is shared out over at least {self.parties.threshold}; "
                "the round must not be opened"
            )
        if not total.count:
            return torch.zeros(0 if self.blind else layout.dim, dtype=torch.float64)
        slots = np.stack([self.key.open(one) for one in total.ciphertexts])
        numbers = layout.numbers(slots, total.count)
        return numbers / total.count if self.blind else numbers


def _joined(layout: SlotLayout, fingerprint: bytes, count: int, pieces: list[bytes]) -> bytes:
    head = _HEAD.pack(_MAGIC, _VERSION, fingerprint, layout.digest, count, len(pieces))
    return b"".join([head, *(part for piece in pieces for part in (_LENGTH.pack(len(piece)), piece))])


def _parsed(sealed: bytes, layout: SlotLayout, fingerprint: bytes) -> tuple[int, list[memoryview]]:
    """Clients and ciphertexts of a message, every length and name in it checked."""
    if len(sealed) < _HEAD.size:
        raise BadInput(
            f"a sealed message of {len(sealed)} bytes is cut short; expected at least {_HEAD.size}"
        )
    magic, version, key, digest, count, pieces = _HEAD.unpack_from(sealed)
    if (magic, version) != (_MAGIC, _VERSION):
        raise BadInput(
            f"a sealed message begins with {magic!r}, version {version}; expected {_MAGIC!r}, {_VERSION}"
        )
    if key != fingerprint:
        raise BadInput(
            f"a message was sealed with the key {key.hex()}, this one is {fingerprint.hex()}; give all parties the same"
        )
    if digest != layout.digest:
        raise BadInput(
            "a message was sealed for another model, number of clients or precision; update all parties"
        )
    if pieces != layout.ciphertexts or not 1 <= count <= layout.clients:
        raise BadInput(
            f"a message claims {pieces} ciphertexts of {count} clients; expected {layout.ciphertexts} of "
            f"1 to {layout.clients}"
        )
    return count, list(_pieces(memoryview(sealed)[_HEAD.size :], pieces, layout))


def _pieces(body: memoryview, count: int, layout: SlotLayout) -> Iterator[memoryview]:
    parameters = layout.parameters
    most = 16 * parameters.degree * (len(parameters.modulus_bits) - 1) + _SLACK
    at = 0
    for _ in range(count):
        length = _LENGTH.unpack_from(body, at)[0] if at + _LENGTH.size <= len(body) else -1
        at += _LENGTH.size
        if not 0 < length <= most or at + length > len(body):
            raise BadInput(f"a ciphertext claims {length} bytes; expected 1 to {most}, all of them there")
        yield body[at : at + length]
        at += length
    if at != len(body):
        raise BadInput(f"{len(body) - at} bytes follow the last ciphertext; expected none")
