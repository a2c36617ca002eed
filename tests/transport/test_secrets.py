"""Packing, shares, seeds, neighbors: the pieces under a masked sum."""

import hashlib
import hmac

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.errors import BadInput
from fedsynth.transport.agreement import Agreement, load, sparse_degree
from fedsynth.transport.bits import frame, pack, packed_size, unframe, unpack
from fedsynth.transport.primitives import Identity, KeyPair, derive, mask, seal, unseal
from fedsynth.transport.shamir import PRIME, join, split


@given(st.integers(1, 32), st.integers(0, 100), st.integers(0, 999))
def test_packing_loses_nothing(bits, dim, seed):
    values = np.random.default_rng(seed).integers(0, 2**bits, dim, dtype=np.uint32)
    data = pack(values, bits)
    assert len(data) == packed_size(dim, bits)
    assert unpack(data, dim, bits).tolist() == values.tolist()


def test_twenty_packed_bits_are_under_two_thirds_of_float32():
    assert packed_size(421_696, 20) <= 0.75 * 4 * 421_696


@given(st.binary(min_size=0, max_size=60))
def test_damaged_frames_are_refused_or_read_as_what_they_say(data):
    try:
        pieces = unframe(data)
    except BadInput:
        return
    assert frame(pieces) == data


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.integers(0, 4), st.randoms())
def test_any_threshold_shares_give_the_secret(secret, threshold, more, random):
    shares = split(secret, threshold, range(threshold + more))
    chosen = random.sample(sorted(shares), threshold)
    assert join({place: shares[place] for place in chosen}, threshold) == secret


def test_fewer_shares_fit_every_secret():
    """With one share of two missing, each candidate for it gives another secret: nothing is told."""
    shares = split(bytes(32), 3, range(3))
    opened = {
        join({**{k: shares[k] for k in (0, 1)}, 2: guess.to_bytes(33, "big")}, 3) for guess in range(50)
    }
    assert len(opened) == 50
    with pytest.raises(BadInput, match="2 shares: 3 are needed"):
        join({0: shares[0], 1: shares[1]}, 3)


def test_the_field_is_a_prime_field():
    assert PRIME > 2**256 and all(pow(base, PRIME - 1, PRIME) == 1 for base in (2, 3, 5, 7, 11, 13))


def test_shares_take_sensible_thresholds():
    for threshold, holders in ((0, [0]), (3, [0, 1]), (1, [0, 0])):
        with pytest.raises(BadInput):
            split(bytes(32), threshold, holders)


def test_both_sides_agree_and_others_do_not():
    one, two, three = (KeyPair.fresh() for _ in range(3))
    assert one.agree(two.public) == two.agree(one.public) != one.agree(three.public)
    with pytest.raises(BadInput, match="cannot be used"):
        one.agree(bytes(32))


@pytest.mark.parametrize(
    ("secret", "salt", "purpose", "expected"),
    [
        ("0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)), "3cb25f25faacd57a90434f64d0362f2a"),
        (
            bytes(range(0x50)).hex(),
            bytes(range(0x60, 0xB0)),
            bytes(range(0xB0, 0x100)),
            "b11e398dc80327a1c8e7f78c596a4934",
        ),
        ("0b" * 22, b"", b"", "8da4e775a563c18f715f802a063c5a31"),
    ],
    ids=["case 1", "case 2", "case 3"],
)
def test_hkdf_is_that_of_rfc_5869(secret, salt, purpose, expected):
    key = derive(bytes.fromhex(secret), salt, purpose)
    assert key.hex().startswith(expected) and len(key) == 32


@pytest.mark.parametrize("size", [0, 1, 32, 65])
def test_keys_are_those_of_runs_of_before(size):
    secret, context, purpose = bytes(range(32)), bytes(size), b"x" * size
    extracted = hmac.new(context, secret, hashlib.sha256).digest()
    assert derive(secret, context, purpose) == hmac.digest(extracted, purpose + b"\x01", "sha256")


def test_every_bit_of_a_seed_counts():
    seed = bytes(range(32))
    base = mask(seed, 64)
    for bit in range(256):
        changed = bytearray(seed)
        changed[bit // 8] ^= 1 << bit % 8
        assert (mask(bytes(changed), 64) != base).mean() > 0.9
    with pytest.raises(BadInput, match="expected all 32"):
        mask(seed[:4], 3)


def test_a_mask_is_aes_256_in_counter_mode():
    block = bytes.fromhex("dc95c078a2408989ad48a21492842087")  # of zeros, under the key of zeros (FIPS 197)
    assert mask(bytes(32), 4).astype("<u4").tobytes() == block


def test_a_long_mask_never_repeats_itself():
    """Two parts of a vector under the same numbers would tell their difference."""
    piece = 2**16
    drawn = mask(bytes(range(32)), 4 * piece + 5)
    assert np.array_equal(drawn[:piece], mask(bytes(range(32)), piece))
    for lag in (1, 4, 2**10, 2**14, 2**15, piece, 2 * piece, 3 * piece):
        assert (drawn[lag:] == drawn[:-lag]).mean() < 1e-3, lag


def test_what_is_sealed_opens_with_the_same_key_about_the_same_thing_only():
    sealed = seal(bytes(32), b"share", b"round 1")
    assert unseal(bytes(32), sealed, b"round 1") == b"share"
    assert unseal(bytes(32), sealed, b"round 2") is None
    assert unseal(b"\1" + bytes(31), sealed, b"round 1") is None


def test_secrets_are_not_shown():
    assert "secret" not in repr(KeyPair(b"s" * 32)) and "sss" not in repr(Identity(b"s" * 32))


def circle(count, threshold, colluders=0):
    roster = {party: party.to_bytes(32, "big") for party in range(count)}
    return Agreement("run", 0, 5, 20, threshold, roster, colluders)


def test_neighbors_are_mutual_and_as_many_as_stated():
    agreement = circle(300, 280, 10)
    degree, needed = agreement.degree
    found = agreement.neighbors(range(300))
    assert all(len(others) == degree and party not in others for party, others in found.items())
    assert all(party in found[other] for party, others in found.items() for other in others)
    assert 2 <= needed <= degree
    assert agreement.neighbors(range(300)) == found != circle(300, 281, 10).neighbors(range(300))


def test_more_colluders_or_drop_outs_need_more_neighbors():
    assert sparse_degree(1000, 900, 100)[0] > sparse_degree(1000, 900, 50)[0]
    assert sparse_degree(1000, 750, 50)[0] > sparse_degree(1000, 900, 50)[0]


def test_up_to_a_hundred_everybody_is_a_neighbor():
    assert circle(100, 70).degree == (99, 70)
    assert len(circle(100, 70).neighbors(range(80))[5]) == 79


@pytest.mark.parametrize("data", [b"\0\0\0\2\0\0\0\1", b"\0\0\0\1\0\0\0\1", b"\0\0"])
def test_a_list_of_parties_has_one_form(data):
    with pytest.raises(BadInput, match="ascending order"):
        load(data)
