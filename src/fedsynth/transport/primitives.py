"""The cryptography that secure aggregation stands on, under names that say what it is for.

This is the only file that imports the library: X25519 for agreement, HKDF-SHA256 for keys, AES-256 in counter mode
for masks, ChaCha20-Poly1305 for sealed shares, Ed25519 for long-term identities.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np

from fedsynth.errors import BadInput

KEY = 32  # bytes of every key, seed and public key
SIGNATURE = 64
_NONCE = bytes(12)  # every sealing key is used for one message only
_PIECE = 2**16  # numbers of a mask that are expanded at a time: they stay in the cache
_HEAD = 32  # bytes of the blocks 0 and 1 of a mask, with which GCM does not encrypt
_ZEROS = memoryview(bytes(4 * _PIECE))
_MOST_THREADS = 16  # each has a vector of its own
_WORTH_A_THREAD = 2**22  # numbers to be expanded


@lru_cache(maxsize=1)
def _library() -> Any:
    """The parts of `cryptography` in use, or an error that names the extra."""
    try:
        from cryptography import exceptions
        from cryptography.hazmat.primitives import ciphers, hashes
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
        from cryptography.hazmat.primitives.ciphers import aead
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:  # pragma: no cover - depends on the installation
        raise BadInput(
            'secure aggregation needs the package cryptography: pip install "fedsynth[secure]"'
        ) from error

    class Parts:
        errors, cipher, signing, agreement, sealing = exceptions, ciphers, ed25519, x25519, aead
        derivation, sha256 = HKDF, hashes.SHA256

    return Parts


def digest(*pieces: bytes) -> bytes:
    """SHA-256 of the pieces, each behind its length, so that no two lists of pieces hash alike."""
    hashed = hashlib.sha256()
    for piece in pieces:
        hashed.update(len(piece).to_bytes(8, "big"))
        hashed.update(piece)
    return hashed.digest()


def derive(secret: bytes, context: bytes, purpose: bytes) -> bytes:
    """A 256-bit key for one purpose (HKDF-SHA256, RFC 5869, with the context as salt)."""
    parts = _library()
    return bytes(parts.derivation(parts.sha256(), KEY, context, purpose).derive(secret))


@dataclass(frozen=True)
class _Secret:
    """A secret key that is not printed."""

    secret: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> Self:
        """A new one from the operating system's randomness."""
        return cls(os.urandom(KEY))


@dataclass(frozen=True)
class KeyPair(_Secret):
    """An X25519 key pair for one round."""

    @cached_property
    def _private(self) -> Any:
        return _library().agreement.X25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> bytes:
        """The public key."""
        return bytes(self._private.public_key().public_bytes_raw())

    def agree(self, other: bytes) -> bytes:
        """The secret shared with the holder of the public key `other`."""
        try:
            return bytes(self._private.exchange(_public_key(other)))
        except ValueError as error:
            raise BadInput(f"a public key of {len(other)} bytes cannot be used: {error}") from error


@lru_cache(maxsize=4096)  # the server agrees with each party once for each of its neighbors that are gone
def _public_key(key: bytes) -> Any:
    return _library().agreement.X25519PublicKey.from_public_bytes(key)


@dataclass(frozen=True)
class Identity(_Secret):
    """A party's long-term Ed25519 key; others know it by `public` from before the first round."""

    @property
    def public(self) -> bytes:
        """The public key by which others know this party."""
        key = _library().signing.Ed25519PrivateKey.from_private_bytes(self.secret)
        return bytes(key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""
        return bytes(_library().signing.Ed25519PrivateKey.from_private_bytes(self.secret).sign(message))


@lru_cache(maxsize=1024)  # in a simulation, many parties check the same signature
def signed_by(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the holder of `public` signed the message.

    >>> me = Identity.fresh()
    >>> signed_by(me.public, me.sign(b"yes"), b"yes"), signed_by(me.public, me.sign(b"yes"), b"no")
    (True, False)
    """
    library = _library()
    try:
        library.signing.Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (library.errors.InvalidSignature, ValueError):
        return False
    return True


def seal(key: bytes, message: bytes, about: bytes) -> bytes:
    """Encrypt for whoever holds the key, bound to `about`; a key seals one message only."""
    return bytes(_library().sealing.ChaCha20Poly1305(key).encrypt(_NONCE, message, about))


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes | None:
    """The message, or None if it was not sealed with this key about this."""
    library = _library()
    try:
        return bytes(library.sealing.ChaCha20Poly1305(key).decrypt(_NONCE, sealed, about))
    except (library.errors.InvalidTag, ValueError):
        return None


def mask(seed: bytes, dim: int) -> np.ndarray:
    """`dim` uniform 32-bit numbers from a 256-bit seed; their low bits are uniform in any smaller ring.

    >>> mask(bytes(32), 3).dtype, len(mask(bytes(32), 3))
    (dtype('uint32'), 3)
    """
    numbers = np.zeros(dim, dtype=np.uint32)
    add_mask(numbers, seed)
    return numbers


def add_mask(total: np.ndarray, seed: bytes, *, subtract: bool = False) -> None:
    """Add the mask of this seed to a uint32 vector in place, or take it away; no mask is ever whole in memory.

    The mask is AES-256 in counter mode from 0 on. GCM is the same stream from the third block on, and libraries have
    it faster, with several blocks in one wide register; its tag is not asked for.
    """
    if len(seed) != KEY:
        raise BadInput(f"a mask's seed has {len(seed)} bytes; expected all {KEY}")
    cipher, apply = _library().cipher, np.subtract if subtract else np.add
    key = cipher.algorithms.AES(seed)
    first = cipher.Cipher(key, cipher.modes.CTR(bytes(16))).encryptor().update(_ZEROS[:_HEAD])
    head = total[: _HEAD // 4]
    apply(head, np.frombuffer(first, dtype="<u4")[: len(head)], out=head)
    stream = cipher.Cipher(key, cipher.modes.GCM(bytes(12))).encryptor()
    drawn = memoryview(bytearray(4 * _PIECE + KEY))
    numbers = np.frombuffer(drawn, dtype="<u4")
    for start in range(_HEAD // 4, len(total), _PIECE):
        piece = total[start : start + _PIECE]
        stream.update_into(_ZEROS[: 4 * len(piece)], drawn)
        apply(piece, numbers[: len(piece)], out=piece)


def add_masks(total: np.ndarray, masks: Sequence[Callable[[], tuple[bytes, bool]]]) -> None:
    """Add many masks to a uint32 vector in place, on all cores; each call returns a seed and whether to subtract.

    >>> total = np.zeros(3, dtype=np.uint32)
    >>> add_masks(total, [lambda: (bytes(32), False), lambda: (bytes(32), True)])
    >>> total
    array([0, 0, 0], dtype=uint32)
    """
    threads = min(_MOST_THREADS, _cores(), len(masks), len(masks) * len(total) // _WORTH_A_THREAD)
    if threads <= 1:
        _add_some(total, masks)
        return
    with ThreadPoolExecutor(threads) as pool:  # the cipher and numpy let other threads run meanwhile
        parts = [
            pool.submit(_add_some, np.zeros_like(total), masks[hand::threads]) for hand in range(threads)
        ]
        for part in parts:
            total += part.result()


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _add_some(total: np.ndarray, masks: Sequence[Callable[[], tuple[bytes, bool]]]) -> np.ndarray:
    for mask_of in masks:
        seed, subtract = mask_of()
        add_mask(total, seed, subtract=subtract)
    return total
