"""Shamir's secret sharing (1979) of 256-bit secrets: any `threshold` shares give the secret, fewer give nothing.

The field is that of the smallest prime above 2^256, so every 32-byte string is a secret as it is.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import accumulate

from fedsynth.errors import BadInput

PRIME = 2**256 + 297
SHARE = 33  # bytes
_SECRET = 32


def split(secret: bytes, threshold: int, holders: Iterable[int]) -> dict[int, bytes]:
    """A share for each holder, numbered from 0; the coefficients come from the operating system.

    >>> shares = split(bytes(range(32)), 2, [0, 5, 9])
    >>> join({0: shares[0], 9: shares[9]}, 2) == bytes(range(32))
    True
    """
    places = list(holders)
    if len(secret) != _SECRET:
        raise BadInput(f"a secret of {len(secret)} bytes: expected {_SECRET}")
    if not 1 <= threshold <= len(places) or len(set(places)) != len(places) or min(places) < 0:
        raise BadInput(
            f"threshold={threshold} of {len(places)} holders: expected different holders, numbered from 0, "
            "and a threshold of at most their number"
        )
    coefficients = [int.from_bytes(secret, "big")]
    coefficients += [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    return {place: _value(coefficients, place + 1).to_bytes(SHARE, "big") for place in places}


def _value(coefficients: list[int], x: int) -> int:
    """The polynomial at x, by Horner's rule."""
    total = 0
    for coefficient in reversed(coefficients):
        total = (total * x + coefficient) % PRIME
    return total


def join(shares: Mapping[int, bytes], threshold: int) -> bytes | None:
    """The secret from at least `threshold` shares; None if they are shares of no 32-byte secret.

    Shares that were changed give another secret or None: whoever joins must know what to compare it with.
    """
    if len(shares) < threshold:
        raise BadInput(f"{len(shares)} shares: {threshold} are needed")
    chosen = sorted(shares)[:threshold]
    weights = _weights(tuple(chosen))
    values = (int.from_bytes(shares[place], "big") for place in chosen)
    total = sum(value * weight for value, weight in zip(values, weights, strict=True)) % PRIME
    return total.to_bytes(_SECRET, "big") if total < 2**256 else None


@lru_cache(maxsize=1024)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights at zero: the same holders open the secrets of many."""
    every = math.prod(place + 1 for place in places) % PRIME
    # every weight is `every` divided by this: small numbers, multiplied without a remainder at each step
    below = [
        (place + 1) * math.prod(other - place for other in places if other != place) % PRIME
        for place in places
    ]
    products = [1, *accumulate(below, lambda one, other: one * other % PRIME)]
    inverse = pow(products[-1], -1, PRIME)  # one inversion serves all (Montgomery's trick)
    weights = [0] * len(places)
    for number in reversed(range(len(places))):
        weights[number] = every * inverse * products[number] % PRIME
        inverse = inverse * below[number] % PRIME
    return tuple(weights)
