"""The transports by name."""

from __future__ import annotations

from collections.abc import Callable

from fedsynth.errors import BadInput, nearest
from fedsynth.transport.clear import Clear
from fedsynth.transport.transport import Transport

TRANSPORTS: dict[str, Callable[[], Transport]] = {"clear": Clear}


def transport_named(name: str) -> Transport:
    """The transport, or an error with the nearest name.

    >>> transport_named("clear").name
    'clear'
    """
    if name not in TRANSPORTS:
        raise BadInput(f"transport={name!r}: unknown; {nearest(name, TRANSPORTS)}")
    return TRANSPORTS[name]()
