"""Numbers of b bits packed without gaps, and lists of byte strings: what travels."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from fedsynth.errors import BadInput

_GROUP = 8  # numbers of b bits fill b whole bytes


def packed_size(dim: int, bits: int) -> int:
    """The bytes of `dim` numbers of `bits` bits, in whole groups of eight.

    >>> packed_size(421_696, 20) / (4 * 421_696)
    0.625
    """
    return -(-dim // _GROUP) * bits


def pack(values: np.ndarray, bits: int) -> bytes:
    """Unsigned numbers below 2^bits, least significant bit first; higher bits are cut off.

    >>> pack(np.array([1, 2, 3], dtype=np.uint32), 4).hex()
    '21030000'
    """
    dim = len(values)
    numbers = np.zeros(-(-dim // _GROUP) * _GROUP, dtype=np.uint64)
    numbers[:dim] = values & np.uint32(2**bits - 1)
    groups = np.ascontiguousarray(numbers.reshape(-1, _GROUP).T)
    out = np.zeros((bits, groups.shape[1]), dtype=np.uint64)
    for place in range(_GROUP):
        first, offset = divmod(place * bits, 8)
        shifted = groups[place] << np.uint64(offset)
        for byte in range(first, (place * bits + bits - 1) // 8 + 1):
            out[byte] |= shifted >> np.uint64(8 * (byte - first))
    return np.ascontiguousarray(out.astype(np.uint8).T).tobytes()


def unpack(data: bytes, dim: int, bits: int) -> np.ndarray:
    """The numbers [dim] (uint32) that `pack` wrote; refuses any other length.

    >>> unpack(pack(np.array([1, 2, 3], dtype=np.uint32), 20), 3, 20)
    array([1, 2, 3], dtype=uint32)
    """
    if len(data) != packed_size(dim, bits):
        raise BadInput(
            f"a vector of {len(data)} bytes: {dim} numbers of {bits} bits have {packed_size(dim, bits)}"
        )
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, bits).T.astype(np.uint64)
    out = np.empty((_GROUP, rows.shape[1]), dtype=np.uint32)
    for place in range(_GROUP):
        first, offset = divmod(place * bits, 8)
        value = np.zeros(rows.shape[1], dtype=np.uint64)
        for byte in range(first, (place * bits + bits - 1) // 8 + 1):
            value |= rows[byte] << np.uint64(8 * (byte - first))
        out[place] = (value >> np.uint64(offset)) & np.uint64(2**bits - 1)
    return np.ascontiguousarray(out.T).reshape(-1)[:dim]


def frame(pieces: Sequence[bytes]) -> bytes:
    """Byte strings in one, each behind its length."""
    return b"".join([struct.pack("<I", len(piece)) + piece for piece in pieces])


def unframe(data: bytes, count: int | None = None) -> list[bytes]:
    """The byte strings that `frame` joined; refuses leftovers, and another number of them than `count`.

    >>> unframe(frame([b"a", b""]))
    [b'a', b'']
    """
    pieces, at = [], 0
    while at < len(data):
        if at + 4 > len(data):
            raise BadInput("a message ends in the middle of a length")
        (size,) = struct.unpack_from("<I", data, at)
        if at + 4 + size > len(data):
            raise BadInput(f"a message ends {at + 4 + size - len(data)} bytes too early")
        pieces.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    if count is not None and len(pieces) != count:
        raise BadInput(f"a message has {len(pieces)} parts; expected {count}")
    return pieces
