"""Shares lie on a polynomial of the right degree whose other coefficients are uniform."""

import secrets

import pytest

from fedsynth.errors import BadInput
from fedsynth.transport.shamir import PRIME, SHARE, _weights, join, split

SECRET = bytes(range(1, 33))


def test_shares_are_values_of_the_polynomial_that_begins_with_the_secret(monkeypatch):
    limits, coefficients = [], iter([7, PRIME - 3])
    monkeypatch.setattr(secrets, "randbelow", lambda limit: limits.append(limit) or next(coefficients))
    shares = split(SECRET, 3, [0, 4, 9])
    secret = int.from_bytes(SECRET, "big")
    for place, share in shares.items():
        x = place + 1  # at zero lies the secret itself
        assert len(share) == SHARE and int.from_bytes(share, "big") == (secret + 7 * x - 3 * x * x) % PRIME
    assert limits == [PRIME, PRIME]


def test_a_threshold_of_one_gives_everybody_the_secret():
    assert {int.from_bytes(share, "big") for share in split(SECRET, 1, range(3)).values()} == {
        int.from_bytes(SECRET, "big")
    }


def test_the_same_secret_is_never_shared_in_the_same_way():
    assert split(SECRET, 2, range(2)) != split(SECRET, 2, range(2))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_secret_of_another_length_is_refused(length):
    with pytest.raises(BadInput, match=f"a secret of {length} bytes: expected 32"):
        split(bytes(length), 2, range(3))


@pytest.mark.parametrize(
    ("threshold", "holders"), [(0, [0, 1]), (3, [0, 1]), (2, [0, 0, 1]), (1, [-1, 0]), (1, [])]
)
def test_holders_that_cannot_share_are_refused(threshold, holders):
    with pytest.raises(BadInput, match="expected different holders"):
        split(SECRET, threshold, holders)


def test_all_holders_may_be_needed_and_the_first_is_number_zero():
    shares = split(SECRET, 2, [0, 1])
    assert sorted(shares) == [0, 1] and join(shares, 2) == SECRET


def test_more_shares_than_needed_do_not_disturb():
    shares = split(SECRET, 2, [3, 8, 20])
    assert join(shares, 2) == SECRET and join({8: shares[8], 20: shares[20]}, 2) == SECRET


def test_the_largest_and_the_smallest_secret_come_back():
    for secret in (bytes(32), b"\xff" * 32):
        assert join(split(secret, 3, range(5)), 3) == secret


@pytest.mark.parametrize("value", [2**256, PRIME - 1])
def test_what_is_no_secret_of_32_bytes_is_told_apart(value):
    assert join({0: value.to_bytes(SHARE, "big")}, 1) is None
    assert join({0: (2**256 - 1).to_bytes(SHARE, "big")}, 1) == b"\xff" * 32


def test_the_weights_are_those_of_lagrange():
    places = (0, 3, 4, 9, 700)
    for place, weight in zip(places, _weights(places), strict=True):
        expected = 1
        for other in places:
            if other != place:
                expected = expected * (other + 1) * pow(other - place, -1, PRIME) % PRIME
        assert weight == expected
