"""Lattice encryption of vectors that can be added while sealed, by Microsoft SEAL as TenSEAL ships it.

This is the only file that imports TenSEAL. Vectors of integers (BFV) or of approximate reals (CKKS) lie in the slots of
ciphertexts. Whoever holds the secret key seals with it: half of such a ciphertext is a public random polynomial, sent
as its seed, so that it is half as long as one sealed with the public key. Nothing secret touches a disk here: keys and
ciphertexts reach SEAL through files in memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.transport.he_wire import compact, compact_size, restored

# SEAL draws errors from a centered binomial distribution of 42 bits; encoding rounds by at most a half.
_SECRET_NOISE = 21.5
_MOST_PLAIN_BITS = 60
_SECURE_BITS = {4096: 109, 8192: 218, 16384: 438}  # of the whole modulus, for 128-bit security


@lru_cache(maxsize=1)
def _seal() -> ModuleType:
    """SEAL's own interface within TenSEAL, or an error that names the extra."""
    try:
        import tenseal.sealapi as sealapi
    except ImportError as error:  # pragma: no cover - depends on the installation
        raise BadInput('homomorphic encryption needs TenSEAL: pip install "fedsynth[secure]"') from error
    return sealapi


@dataclass(frozen=True)
class Parameters:
    """The public parameters of a scheme; `plain_bits` is the size of a slot (BFV) or of the scale (CKKS).

    The last of `modulus_bits` is SEAL's own; what is sent has the bits of the others.

    >>> Parameters("bfv", 4096, (54, 55), 41).noise_room(secret=True)
    190
    """

    scheme: str
    degree: int
    modulus_bits: tuple[int, ...]
    plain_bits: int

    def __post_init__(self) -> None:
        if self.scheme not in ("bfv", "ckks"):
            raise BadInput(f"scheme={self.scheme!r}: unknown; known: bfv, ckks")
        secure = _SECURE_BITS.get(self.degree)
        if secure is None or sum(self.modulus_bits) > secure:
            raise BadInput(
                f"degree={self.degree} with a modulus of {sum(self.modulus_bits)} bits: below 128-bit security; "
                f"expected at most {', '.join(f'{bits} bits for {n}' for n, bits in _SECURE_BITS.items())}"
            )
        if not 1 <= self.plain_bits <= min(_MOST_PLAIN_BITS, self.data_bits - 6):
            raise BadInput(
                f"plain_bits={self.plain_bits}: a modulus of {self.data_bits} bits leaves room for fewer; "
                f"expected 1 to {min(_MOST_PLAIN_BITS, self.data_bits - 6)}"
            )

    @property
    def data_bits(self) -> int:
        """Bits of the modulus of what is sent."""
        return sum(self.modulus_bits[:-1])

    @property
    def slots(self) -> int:
        """Numbers in one ciphertext."""
        return self.degree if self.scheme == "bfv" else self.degree // 2

    def sealed_bytes(self, secret: bool, dropped: int = 0) -> int:
        """How long a ciphertext is: one polynomial and a seed, or two, the first without its `dropped` lowest bits."""
        sized = [2 ** (bits - 1) for bits in self.modulus_bits[:-1]]
        return compact_size(sized, self.degree, secret, dropped)

    @cached_property
    def primes(self) -> tuple[int, ...]:
        """The primes whose product is the modulus of what is sent."""
        moduli = _seal().CoeffModulus.Create(self.degree, list(self.modulus_bits))
        return tuple(int(prime.value()) for prime in moduli[:-1])

    def noise(self, secret: bool) -> float:
        """The most that one fresh ciphertext's noise can be, in the units of the modulus, whatever was drawn.

        Sealing with the public key ends with a division whose rounding, by at most a half, is multiplied with the
        secret key: `degree` coefficients of -1, 0 or 1.
        """
        return _SECRET_NOISE if secret else _SECRET_NOISE + (1 + self.degree) / 2

    @property
    def noise_limit(self) -> float:
        """The noise below which a sum opens to the message (BFV)."""
        return 2.0 ** (self.data_bits - self.plain_bits - 1) / (1 + 2.0**-10)

    def noise_room(self, secret: bool) -> int:
        """How many fresh ciphertexts add up before noise can reach the message, in the worst case (BFV)."""
        return int(self.noise_limit / self.noise(secret))

    def droppable(self, clients: int, secret: bool) -> int:
        """How many lowest bits of a sum's first polynomial may be left away: together they stay in the noise's room.

        Leaving k bits away and guessing the middle is off by at most 2^(k-1).
        """
        left = self.noise_limit - clients * self.noise(secret)
        return max(0, min(int(math.log2(left)) + 1 if left >= 1 else 0, self.modulus_bits[0] - 1))

    def error(self, secret: bool) -> float:
        """The most that a slot of one fresh ciphertext can be off, in the worst case (CKKS)."""
        return self.degree * self.noise(secret) / 2.0**self.plain_bits

    def to_text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Parameters:
        """Read the text that `to_text` wrote; refuse any other."""
        try:
            read = json.loads(text)
            bits = tuple(int(value) for value in read["modulus_bits"])
            return cls(str(read["scheme"]), int(read["degree"]), bits, int(read["plain_bits"]))
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"parameters {text[:80]!r} cannot be read: {error}") from None

    @cached_property
    def context(self) -> Any:
        """SEAL's context; made once, of these parameters alone."""
        seal = _seal()
        chosen = seal.EncryptionParameters(
            seal.SCHEME_TYPE.BFV if self.scheme == "bfv" else seal.SCHEME_TYPE.CKKS
        )
        chosen.set_poly_modulus_degree(self.degree)
        chosen.set_coeff_modulus(seal.CoeffModulus.Create(self.degree, list(self.modulus_bits)))
        if self.scheme == "bfv":
            chosen.set_plain_modulus(seal.PlainModulus.Batching(self.degree, self.plain_bits))
        context = seal.SEALContext(chosen, True, seal.SEC_LEVEL_TYPE.TC128)
        if not context.parameters_set():
            raise BadInput(
                f"{self.to_text()}: SEAL refuses these parameters ({context.parameters_error_message()})"
            )
        return context

    @cached_property
    def encoder(self) -> Any:
        """Numbers to and from slots."""
        seal = _seal()
        return seal.BatchEncoder(self.context) if self.scheme == "bfv" else seal.CKKSEncoder(self.context)

    @cached_property
    def plain_modulus(self) -> int:
        """Slots hold integers modulo this prime (BFV)."""
        return int(_seal().PlainModulus.Batching(self.degree, self.plain_bits).value())


@dataclass(frozen=True)
class Keys:
    """Key material for one set of parameters; without `secret` it can seal and add, but opens nothing."""

    parameters: Parameters
    public: bytes = field(repr=False)
    secret: bytes | None = field(default=None, repr=False)

    @classmethod
    def fresh(cls, parameters: Parameters) -> Keys:
        """New keys from the operating system's randomness."""
        seal = _seal()
        generator = seal.KeyGenerator(parameters.context)
        public = seal.PublicKey()
        generator.create_public_key(public)
        return cls(parameters, _saved(public), _saved(generator.secret_key()))

    @property
    def shared(self) -> Keys:
        """The same without the secret: what a server may have."""
        return Keys(self.parameters, self.public)

    @cached_property
    def fingerprint(self) -> bytes:
        """A name for the key, the same with and without its secret half."""
        return hashlib.sha256(self.parameters.to_text().encode() + b"\0" + self.public).digest()[:16]

    def seal(self, slots: np.ndarray) -> bytes:
        """One ciphertext of up to `parameters.slots` numbers, as bytes."""
        seal, chosen = _seal(), self.parameters
        plain = seal.Plaintext()
        if chosen.scheme == "bfv":
            chosen.encoder.encode(slots.tolist(), plain)
        else:
            chosen.encoder.encode(slots.tolist(), 2.0**chosen.plain_bits, plain)
        if self.secret is not None:
            return _packed(chosen, self._encryptor.encrypt_symmetric(plain))
        sealed = seal.Ciphertext()
        self._encryptor.encrypt(plain, sealed)
        return _packed(chosen, sealed)

    def open(self, ciphertext: Any) -> np.ndarray:
        """The numbers in a ciphertext; only with the secret key."""
        plain = _seal().Plaintext()
        self._decryptor.decrypt(ciphertext, plain)
        if self.parameters.scheme == "bfv":
            return np.array(self.parameters.encoder.decode_uint64(plain), dtype=np.uint64)
        return np.array(self.parameters.encoder.decode_double(plain), dtype=np.float64)

    @cached_property
    def _encryptor(self) -> Any:
        seal = _seal()
        if self.secret is not None:
            return seal.Encryptor(self.parameters.context, self._secret_key)
        return seal.Encryptor(self.parameters.context, _key(seal.PublicKey(), self.parameters, self.public))

    @cached_property
    def _decryptor(self) -> Any:
        return _seal().Decryptor(self.parameters.context, self._secret_key)

    @cached_property
    def _secret_key(self) -> Any:
        if self.secret is None:
            raise BadInput(
                f"the key {self.fingerprint.hex()} has no secret half here, so nothing can be opened with it; only a "
                "key-holder opens sums"
            )
        return _key(_seal().SecretKey(), self.parameters, self.secret)


def ciphertext(parameters: Parameters, data: bytes | memoryview, final: bool = False) -> Any:
    """The ciphertext in these bytes, if it is a fresh or summed one of just these parameters.

    A sum whose lowest bits were left away is `final`: it opens, but there may be no room to add anything to it.
    """
    loaded = _seal().Ciphertext()
    whole, dropped = restored(data, parameters.primes, parameters.degree)
    if dropped and not final:
        raise BadInput("a sum that was sent out to be opened cannot be added to another")
    try:
        with _lent(whole) as path:
            loaded.load(parameters.context, path)
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"{len(data)} bytes are no ciphertext of {parameters.to_text()}: {error}") from None
    right_form = loaded.is_ntt_form() == (parameters.scheme == "ckks")
    right_level = loaded.parms_id() == parameters.context.first_parms_id()
    right_scale = parameters.scheme == "bfv" or loaded.scale == 2.0**parameters.plain_bits
    if loaded.size() != 2 or not (right_form and right_level and right_scale):
        raise BadInput(
            f"a ciphertext of {loaded.size()} polynomials, another level or scale: expected a sum of fresh ones"
        )
    return loaded


def add(parameters: Parameters, total: Any, more: Any) -> None:
    """Add a ciphertext to the total, in place; needs no key."""
    _adder(parameters).add_inplace(total, more)


@lru_cache(maxsize=8)
def _adder(parameters: Parameters) -> Any:
    return _seal().Evaluator(parameters.context)


def saved(parameters: Parameters, total: Any, dropped: int = 0) -> bytes:
    """A summed ciphertext as bytes; without its `dropped` lowest bits it is there to be opened, not to be added to."""
    return _packed(parameters, total, dropped)


def _packed(parameters: Parameters, value: Any, dropped: int = 0) -> bytes:
    return compact(_saved(value), parameters.primes, parameters.degree, dropped)


def _key(empty: Any, parameters: Parameters, data: bytes) -> Any:
    try:
        with _lent(data) as path:
            empty.load(parameters.context, path)
    except (RuntimeError, ValueError) as error:
        raise BadInput(
            f"a key of {len(data)} bytes cannot be read: {error}; make new ones with fedsynth keys"
        ) from None
    return empty


def _saved(value: Any) -> bytes:
    with _lent(b"") as path:
        value.save(path)
        with open(path, "rb") as file:  # noqa: PTH123 - a descriptor's path, which must not be resolved
            return file.read()


@contextmanager
def _lent(data: bytes | memoryview) -> Iterator[str]:
    """A path with these bytes behind it: SEAL reads and writes paths only. In memory wherever the system can."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fedsynth")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
