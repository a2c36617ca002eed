"""Messages as bytes: a JSON header and raw tensors behind lengths, a version and a hash; reading executes nothing.

    "FSYN" | version u16 | header length u32 | body length u64 | SHA-256 of header and body | header | body

The header names the kind, plain fields, and the type and shape of each tensor; the body is their bytes, little endian,
one after the other, and then bytes that belong to a transport. Whatever does not fit to the last byte is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput

VERSION = 1
MOST_BYTES = 2**30  # a message that claims more is not read
_MOST_HEADER = 2**24
_MOST_TENSORS = 4096
_MOST_AXES = 8
_MAGIC = b"FSYN"
_PREFIX = struct.Struct("<4sHIQ32s")
_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name).newbyteorder("<") for name in ("float32", "float64", "int32", "int64", "uint8")
}
_NAMES = {kind: name for name, kind in _TYPES.items()}  # asking a type for its name is slow


class BadMessage(BadInput):
    """Bytes that are no message of this protocol; what was wrong with them, for the log of whoever got them."""


@dataclass(frozen=True)
class Envelope:
    """A message before its fields are understood: kind, plain JSON values, named tensors, bytes of a transport."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    blob: bytes = b""


def encode(envelope: Envelope) -> bytes:
    """The message as bytes; refuses numbers that are not finite, as the reader would."""
    arrays = {name: _plain(name, value) for name, value in envelope.tensors.items()}
    header = {
        "kind": envelope.kind,
        "fields": dict(envelope.fields),
        "tensors": [[name, _NAMES[array.dtype], list(array.shape)] for name, array in arrays.items()],
        "blob": len(envelope.blob),
    }
    try:
        written = _WRITER.encode(header).encode()
    except (TypeError, ValueError) as error:
        raise BadMessage(
            f"{envelope.kind}: a field cannot be sent ({error}); expected finite JSON values"
        ) from None
    body = b"".join([*(array.tobytes() for array in arrays.values()), envelope.blob])
    prefix = _PREFIX.pack(_MAGIC, VERSION, len(written), len(body), _hash(written, body))
    return b"".join([prefix, written, body])


def decode(payload: bytes, most: int = MOST_BYTES) -> Envelope:
    """The message in these bytes.

    >>> decode(encode(Envelope("work", {"version": 3}, {"x": torch.tensor([1.5])}))).tensors["x"]
    tensor([1.5000])
    >>> decode(b"FSYN")
    Traceback (most recent call last):
    fedsynth.deploy.link.codec.BadMessage: a message of 4 bytes is cut short; expected at least 50
    """
    if len(payload) > most:
        raise BadMessage(f"a message of {len(payload)} bytes is too long; expected at most {most}")
    if len(payload) < _PREFIX.size:
        raise BadMessage(f"a message of {len(payload)} bytes is cut short; expected at least {_PREFIX.size}")
    magic, version, header_size, body_size, digest = _PREFIX.unpack_from(payload)
    if magic != _MAGIC:
        raise BadMessage(f"a message begins with {magic!r}; expected {_MAGIC!r}")
    if version != VERSION:
        raise BadMessage(
            f"a message has version {version} of the protocol, this is {VERSION}; install the same fedsynth everywhere"
        )
    if header_size > _MOST_HEADER or _PREFIX.size + header_size + body_size != len(payload):
        raise BadMessage(
            f"a message of {len(payload)} bytes claims a header of {header_size} and a body of {body_size}; "
            "it was cut short or has something behind it"
        )
    view = memoryview(payload)
    header, body = view[_PREFIX.size : _PREFIX.size + header_size], view[_PREFIX.size + header_size :]
    if _hash(header, body) != digest:
        raise BadMessage("a message does not match its hash; it was damaged on the way")
    return _read(_header(bytes(header)), body)


def fingerprint(*pieces: bytes | str | int) -> str:
    """A short name for what is hashed, the same for whoever hashes the same."""
    digest = hashlib.sha256()
    for piece in pieces:
        data = piece if isinstance(piece, bytes) else repr(piece).encode()
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()[:32]


def fingerprint_of(tensors: Mapping[str, Tensor]) -> str:
    """A short name for named tensors."""
    pieces: list[bytes | str] = []
    for name in sorted(tensors):
        array = _plain(name, tensors[name])
        pieces += [name, _NAMES[array.dtype], repr(array.shape), array.tobytes()]
    return fingerprint(*pieces)


def _hash(header: bytes | memoryview, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(header)
    digest.update(body)
    return digest.digest()


def _plain(name: str, value: Tensor) -> np.ndarray:
    array = value.detach().cpu().contiguous().numpy()
    kind = array.dtype.newbyteorder("<")
    if kind not in _NAMES:
        raise BadMessage(f"tensor {name!r} is of {array.dtype}; expected one of {', '.join(_TYPES)}")
    _finite(name, array)
    return np.asarray(array, dtype=kind, order="C")


def _finite(name: str, array: np.ndarray) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BadMessage(f"tensor {name!r} holds NaN or Inf; expected finite numbers")


def _header(written: bytes) -> dict[str, Any]:
    try:
        header = _READER.decode(written.decode())
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"the header of a message cannot be read ({error})") from None
    expected = {"kind": str, "fields": dict, "tensors": list, "blob": int}
    if not isinstance(header, dict) or set(header) != set(expected):
        raise BadMessage(f"the header of a message must have {', '.join(expected)} and nothing else")
    for name, kind in expected.items():
        if type(header[name]) is not kind:
            raise BadMessage(f"the header's {name} must be a {kind.__name__}")
    if header["blob"] < 0 or len(header["tensors"]) > _MOST_TENSORS:
        raise BadMessage("the header of a message claims a negative length or too many tensors")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name is there twice")
    return table


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no finite number")


def _number(written: str) -> float:
    return float(written) if math.isfinite(float(written)) else _refuse(written)


_WRITER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_READER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_number)


def _read(header: dict[str, Any], body: memoryview) -> Envelope:
    tensors: dict[str, Tensor] = {}
    at = 0
    for entry in header["tensors"]:
        name, kind, shape = _described(entry)
        if name in tensors:
            raise BadMessage(f"tensor {name!r} is there twice")
        size = math.prod(shape) * _TYPES[kind].itemsize
        if at + size > len(body):
            raise BadMessage(f"tensor {name!r} of shape {shape} reaches beyond the end of the message")
        array = np.frombuffer(body[at : at + size], dtype=_TYPES[kind]).reshape(shape)
        _finite(name, array)
        tensors[name] = torch.from_numpy(array.astype(kind, copy=True))
        at += size
    if at + header["blob"] != len(body):
        raise BadMessage(f"the body has {len(body)} bytes, but tensors and blob make {at + header['blob']}")
    return Envelope(header["kind"], header["fields"], tensors, bytes(body[at:]))


def _described(entry: Any) -> tuple[str, str, list[int]]:
    if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str)):
        raise BadMessage(f"a tensor is described by name, type and shape, not by {str(entry)[:80]!r}")
    name, kind, shape = entry
    if not isinstance(kind, str) or kind not in _TYPES:
        raise BadMessage(f"tensor {name!r} is of {str(kind)[:40]!r}; expected one of {', '.join(_TYPES)}")
    whole = isinstance(shape, list) and all(type(length) is int and length >= 0 for length in shape)
    if not whole or len(shape) > _MOST_AXES or math.prod(max(1, length) for length in shape) > MOST_BYTES:
        raise BadMessage(f"tensor {name!r} has the shape {str(shape)[:80]}; expected a few lengths")
    return name, kind, shape
