"""The transports by name."""

from __future__ import annotations

from collections.abc import Callable

from fedsynth.errors import BadInput, nearest
from fedsynth.transport.clear import Clear
from fedsynth.transport.he import Homomorphic
from fedsynth.transport.secagg import SecAgg
from fedsynth.transport.transport import Transport

TRANSPORTS: dict[str, Callable[[], Transport]] = {
    "clear": Clear,
    "secagg": SecAgg,
    "he": Homomorphic,
    "he-open": lambda: Homomorphic("he-open", blind=False),
    "he-ckks": lambda: Homomorphic("he-ckks", approximate=True),
}


def transport_named(name: str) -> Transport:
    """The transport, or an error with the nearest name.

    >>> transport_named("clear").name
    'clear'
    """
    if name not in TRANSPORTS:
        raise BadInput(f"transport={name!r}: unknown; {nearest(name, TRANSPORTS)}")
    return TRANSPORTS[name]()
