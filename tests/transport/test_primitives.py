"""The cryptography, held to the vectors of its standards: a key or a mask that is almost right protects nobody."""

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedsynth.errors import BadInput
from fedsynth.transport.primitives import (
    KEY,
    SIGNATURE,
    Identity,
    KeyPair,
    add_mask,
    add_masks,
    digest,
    mask,
    seal,
    signed_by,
    unseal,
)

SEED = bytes(range(32))


def test_x25519_is_that_of_rfc_7748():
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    shared = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert KeyPair(scalar).agree(point).hex() == shared
    nine = bytes([9]) + bytes(31)
    assert KeyPair(nine).public.hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"


@pytest.mark.parametrize("other", [bytes(32), b"", bytes(31)])
def test_a_public_key_that_agrees_on_nothing_is_refused(other):
    with pytest.raises(BadInput, match=f"a public key of {len(other)} bytes cannot be used"):
        KeyPair(SEED).agree(other)


def test_ed25519_is_that_of_rfc_8032():
    identity = Identity(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    assert identity.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = identity.sign(b"")
    assert len(signature) == SIGNATURE and signature.hex().startswith("e5564300c360ac729086e2cc806e828a")
    assert signed_by(identity.public, signature, b"")


def test_a_signature_holds_for_its_signer_and_its_message_alone():
    me, other = Identity(SEED), Identity(SEED[::-1])
    signature = me.sign(b"yes")
    assert signed_by(me.public, signature, b"yes")
    for public, sign, message in (
        (other.public, signature, b"yes"),
        (me.public, signature, b"no"),
        (me.public, other.sign(b"yes"), b"yes"),
        (me.public, signature[:-1], b"yes"),
        (me.public[:-1], signature, b"yes"),
    ):
        assert not signed_by(public, sign, message)


@pytest.mark.parametrize("kind", [KeyPair, Identity])
def test_fresh_keys_have_256_bits_and_are_never_the_same(kind):
    one, other = kind.fresh(), kind.fresh()
    assert len(one.secret) == KEY == 32 and one.secret != other.secret and one.public != other.public


def test_a_digest_is_sha256_of_pieces_behind_their_lengths():
    spelled = bytes(7) + b"\x03one" + bytes(8) + bytes(7) + b"\x02no"
    assert digest(b"one", b"", b"no") == hashlib.sha256(spelled).digest()
    assert digest(b"ab", b"c") != digest(b"a", b"bc") != digest(b"abc")
    assert digest() == hashlib.sha256().digest()


def test_what_is_sealed_is_chacha20_poly1305_with_the_context_bound():
    assert seal(SEED, b"share", b"round") == ChaCha20Poly1305(SEED).encrypt(bytes(12), b"share", b"round")


@pytest.mark.parametrize("sealed", [b"", b"short", bytes(40)])
def test_what_was_never_sealed_does_not_open(sealed):
    assert unseal(SEED, sealed, b"round") is None


def keystream(seed, dim):
    cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(4 * dim)), dtype="<u4")


@pytest.mark.parametrize("dim", [1, 3, 7, 8, 9, 1000, 65_535, 65_536, 65_537, 200_003])
def test_a_mask_is_one_unbroken_stream_of_aes_in_counter_mode(dim):
    found = mask(SEED, dim)
    assert found.dtype == np.uint32 and np.array_equal(found, keystream(SEED, dim))


def test_adding_and_taking_away_a_mask_wraps_around_in_place():
    total = np.array([5, 2**32 - 1, 0], dtype=np.uint32)
    add_mask(total, SEED)
    assert total.tolist() == (np.array([5, 2**32 - 1, 0], dtype=np.uint32) + keystream(SEED, 3)).tolist()
    add_mask(total, SEED, subtract=True)
    assert total.tolist() == [5, 2**32 - 1, 0]


@pytest.mark.parametrize("seed", [b"", SEED[:16], SEED + b"\0"])
def test_a_mask_needs_all_256_bits_of_its_seed(seed):
    with pytest.raises(BadInput, match="expected all 32"):
        add_mask(np.zeros(3, dtype=np.uint32), seed)


@pytest.mark.parametrize("dim", [3, 2**19])
def test_masks_that_many_threads_add_are_those_of_one(dim, monkeypatch):
    monkeypatch.setattr(
        "fedsynth.transport.primitives._cores", lambda: 3
    )  # the longer ones are worth threads
    seeds = [(digest(bytes([number])), number % 3 == 0) for number in range(25)]
    total = np.arange(dim, dtype=np.uint32)
    expected = total.copy()
    for seed, subtract in seeds:
        add_mask(expected, seed, subtract=subtract)
    add_masks(total, [lambda pair=pair: pair for pair in seeds])
    assert np.array_equal(total, expected) and not np.array_equal(total, np.arange(dim))


def test_a_seed_that_cannot_be_used_is_refused_in_a_thread_too(monkeypatch):
    monkeypatch.setattr("fedsynth.transport.primitives._cores", lambda: 2)
    with pytest.raises(BadInput, match="expected all 32"):
        add_masks(np.zeros(2**21, dtype=np.uint32), [lambda: (b"", False)] * 4)
