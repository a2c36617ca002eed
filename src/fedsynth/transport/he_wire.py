"""Ciphertexts as they travel: each coefficient at just as many bits as it has, and sums without bits that are noise.

SEAL writes 64-bit words and compresses them, which leaves much of what a modulus of 34 or 54 bits does not use. Here
its file is taken apart and its coefficients are packed; whoever reads puts the file together again for SEAL to check.

The first polynomial of a sum is only ever added to a multiple of the second, so its lowest bits disappear in the noise
when the sum is opened: they are not sent. How many that may be follows from the room that the layout left for noise.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.late import late
from fedsynth.transport.bits import pack, packed_size, unpack

pa = late("pyarrow")

_HEADER = struct.Struct(
    "<HBBBBHQ"
)  # of SEAL: magic, its length, version, compression, nothing, length of the file
_PLAIN, _ZSTD = 0, 2  # ways of compression
_BEFORE = 97  # bytes of a file before its coefficients: parameters, form, sizes, scale
_SEED = 81  # bytes after them, where the second polynomial is sent as its seed
_WORD = 32


def compact(saved: bytes, primes: Sequence[int], degree: int, dropped: int = 0) -> bytes:
    """SEAL's file of a ciphertext, packed; of a sum without the `dropped` lowest bits of the first polynomial."""
    raw = _uncompressed(saved)
    words = degree * len(primes)
    seeded = len(raw) == _BEFORE + 8 * words + _SEED
    if not seeded and len(raw) != _BEFORE + 16 * words:
        raise BadInput(
            f"a ciphertext of {len(raw)} bytes: expected {len(primes)} times {degree} coefficients"
        )
    after = _BEFORE + 8 * words * (1 if seeded else 2)
    coefficients = np.frombuffer(raw, dtype="<u8", count=(after - _BEFORE) // 8, offset=_BEFORE)
    polynomials = coefficients.reshape(-1, len(primes), degree)
    if dropped:
        polynomials = polynomials.copy()
        polynomials[0] = _digits(polynomials[0], primes)
        polynomials[0, 0] >>= np.uint64(dropped)
    pieces = [bytes([int(seeded), dropped]), raw[:_BEFORE], raw[after:]]
    for number, polynomial in enumerate(polynomials):
        for place, values in enumerate(polynomial):
            pieces.append(_packed(values, _bits(primes, number, place, dropped)))
    return b"".join(pieces)


def compact_size(primes: Sequence[int], degree: int, seeded: bool, dropped: int = 0) -> int:
    """The bytes of a packed ciphertext."""
    polynomials = 1 if seeded else 2
    sizes = [
        _packed_size(degree, _bits(primes, number, place, dropped))
        for number in range(polynomials)
        for place in range(len(primes))
    ]
    return 2 + _BEFORE + (_SEED if seeded else 0) + sum(sizes)


def restored(data: bytes | memoryview, primes: Sequence[int], degree: int) -> tuple[bytes, int]:
    """SEAL's file of a packed ciphertext, and how many bits of it were dropped; refuses another length."""
    kept = bytes(data)
    if len(kept) < 2 or kept[0] not in (0, 1) or kept[1] > max(primes).bit_length() - 1:
        raise BadInput(f"{len(kept)} bytes are no packed ciphertext")
    seeded, dropped = bool(kept[0]), kept[1]
    expected = compact_size(primes, degree, seeded, dropped)
    if len(kept) != expected or (seeded and dropped):
        raise BadInput(f"a packed ciphertext of {len(kept)} bytes: expected {expected}")
    before, at = kept[2 : 2 + _BEFORE], 2 + _BEFORE
    seed, at = kept[at : at + seeded * _SEED], at + seeded * _SEED
    polynomials = np.empty((1 if seeded else 2, len(primes), degree), dtype="<u8")
    for number in range(len(polynomials)):
        for place in range(len(primes)):
            bits = _bits(primes, number, place, dropped)
            size = _packed_size(degree, bits)
            polynomials[number, place] = _unpacked(kept[at : at + size], degree, bits)
            at += size
    if dropped:
        lowest = (polynomials[0, 0] << np.uint64(dropped)) + np.uint64(1 << (dropped - 1))
        polynomials[0, 0] = np.minimum(lowest, np.uint64(primes[0] - 1))
        polynomials[0] = _residues(polynomials[0], primes)
    raw = before + polynomials.tobytes() + seed
    magic = struct.unpack_from("<H", before, 73)[0]  # of the array within, which has a header of its own
    version = before[76:78]
    head = _HEADER.pack(magic, _HEADER.size, version[0], version[1], _PLAIN, 0, _HEADER.size + len(raw))
    return head + raw, dropped


def _bits(primes: Sequence[int], polynomial: int, place: int, dropped: int) -> int:
    return primes[place].bit_length() - (dropped if polynomial == place == 0 else 0)


def _uncompressed(saved: bytes) -> bytes:
    """The content of SEAL's file."""
    _, size, _, _, way, _, _ = _HEADER.unpack_from(saved)
    body = saved[size:]
    if way == _PLAIN:
        return body
    if way != _ZSTD:
        raise BadInput(f"SEAL compressed in a way that is not known here ({way}); expected Zstandard")
    return bytes(pa.decompress(body, _content_size(body), codec="zstd", asbytes=True))


def _content_size(frame: bytes) -> int:
    """The length that a Zstandard frame says its content has (RFC 8878, 3.1.1.1)."""
    described = frame[4]
    single = described >> 5 & 1
    width = (single, 2, 4, 8)[described >> 6]
    at = 5 + (1 - single)
    return int.from_bytes(frame[at : at + width], "little") + (256 if width == 2 else 0)


def _packed_size(dim: int, bits: int) -> int:
    return packed_size(dim, bits) if bits <= _WORD else 4 * dim + packed_size(dim, bits - _WORD)


def _packed(values: np.ndarray, bits: int) -> bytes:
    """64-bit numbers below 2^bits: their low words as they are, the rest packed."""
    low = values.astype("<u4")
    if bits <= _WORD:
        return pack(low, bits)
    return low.tobytes() + pack((values >> np.uint64(_WORD)).astype(np.uint32), bits - _WORD)


def _unpacked(data: bytes, dim: int, bits: int) -> np.ndarray:
    if bits <= _WORD:
        return unpack(data, dim, bits).astype(np.uint64)
    high = unpack(data[4 * dim :], dim, bits - _WORD).astype(np.uint64) << np.uint64(_WORD)
    return high | np.frombuffer(data, dtype="<u4", count=dim)


def _digits(residues: np.ndarray, primes: Sequence[int]) -> np.ndarray:
    """Numbers modulo the product of one or two primes, from residues to digits: first + primes[0] * second."""
    if len(primes) == 1:
        return residues
    first, second = (int(prime) for prime in primes)
    modulus = np.uint64(second)
    apart = (residues[1] + modulus - residues[0] % modulus) % modulus
    return np.stack([residues[0], _times(apart, pow(first, -1, second), second)])


def _residues(digits: np.ndarray, primes: Sequence[int]) -> np.ndarray:
    """Undo `_digits`."""
    if len(primes) == 1:
        return digits
    first, second = (int(prime) for prime in primes)
    modulus = np.uint64(second)
    return np.stack([digits[0], (digits[0] % modulus + _times(digits[1], first % second, second)) % modulus])


def _times(values: np.ndarray, factor: int, modulus: int) -> np.ndarray:
    """values * factor modulo a number of up to 40 bits, in halves whose products 64 bits hold.

    >>> int(_times(np.array([2**36 - 1], dtype=np.uint64), 2**36 - 3, 2**36 - 5)[0]), 4 * 2
    (8, 8)
    """
    half, prime = np.uint64(20), np.uint64(modulus)
    high = values * np.uint64(factor >> 20) % prime
    low = values * np.uint64(factor & (2**20 - 1)) % prime
    return ((high << half) % prime + low) % prime
