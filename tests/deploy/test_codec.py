"""Bytes from elsewhere: every message survives the way there and back, and nothing else is read."""

import json
import struct
from hashlib import sha256

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.deploy.link.codec import VERSION, BadMessage, Envelope, decode, encode, fingerprint_of
from fedsynth.deploy.link.messages import (
    _HINTS,
    _KINDS,
    Refuse,
    Result,
    Settle,
    Status,
    Terms,
    Work,
    read,
    write,
)

DTYPES = ("float32", "float64", "int32", "int64", "uint8")
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def tensors(draw):
    kind = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = int(np.prod(shape))
    bound = 255 if kind == "uint8" else 2**20
    numbers = draw(st.lists(st.integers(0, bound), min_size=size, max_size=size))
    return torch.from_numpy(np.array(numbers, dtype=kind).reshape(shape))


envelopes = st.builds(
    Envelope,
    st.text(max_size=10),
    st.dictionaries(st.text(max_size=6), plain, max_size=4),
    st.dictionaries(st.text(max_size=6), tensors(), max_size=3),
    st.binary(max_size=20),
)


@given(envelopes)
def test_what_was_written_is_read(envelope):
    found = decode(encode(envelope))
    assert found.kind == envelope.kind and found.fields == envelope.fields and found.blob == envelope.blob
    assert list(found.tensors) == list(envelope.tensors)
    for name, value in envelope.tensors.items():
        assert found.tensors[name].dtype == value.dtype and torch.equal(found.tensors[name], value)


@given(envelopes, st.data())
def test_no_damaged_message_is_read(envelope, data):
    """Any byte changed, any cut, anything appended."""
    payload = encode(envelope)
    place = data.draw(st.integers(0, len(payload) - 1))
    flip = data.draw(st.integers(1, 255))
    changed = payload[:place] + bytes([payload[place] ^ flip]) + payload[place + 1 :]
    for damaged in (changed, payload[:place], payload + b"\0", payload + payload):
        with pytest.raises(BadMessage):
            decode(damaged)


def sealed(header: bytes, body: bytes, version: int = VERSION) -> bytes:
    """A message whose lengths and hash are right, whatever it says."""
    digest = sha256(header + body).digest()
    return struct.pack("<4sHIQ32s", b"FSYN", version, len(header), len(body), digest) + header + body


def described(entries, body=b"", blob=0, **more):
    header = {"kind": "status", "fields": {}, "tensors": entries, "blob": blob, **more}
    return sealed(json.dumps(header).encode(), body)


@pytest.mark.parametrize(
    "payload, reason",
    [
        (sealed(b"{}", b"", version=2), "version 2"),
        (sealed(b"{", b""), "cannot be read"),
        (sealed(b"[" * 100_000, b""), "cannot be read"),
        (sealed(b"[]", b""), "must have kind"),
        (sealed(b'{"kind":"a","kind":"b","fields":{},"tensors":[],"blob":0}', b""), "twice"),
        (sealed(b'{"kind":"a","fields":{"x":NaN},"tensors":[],"blob":0}', b""), "NaN"),
        (sealed(b'{"kind":"a","fields":{"x":1e999},"tensors":[],"blob":0}', b""), "no finite"),
        (described([], blob=True), "blob must be"),
        (described([], blob=-1), "negative"),
        (described([], blob=5), "body has 0 bytes"),
        (described([], b"more"), "body has 4 bytes"),
        (described([["x", "object", [1]]], b"12345678"), "'object'"),
        (described([["x", "float32", [2]]], b"1234"), "beyond the end"),
        (described([["x", "float32", [2**62, 2**62]]], b"1234"), "the shape"),
        (described([["x", "float32", [0, 2**62, 2**62]]]), "the shape"),
        (described([["x", "float32", [-1]]], b"1234"), "the shape"),
        (described([["x", "float32", [True]]], b"1234"), "the shape"),
        (described([["x", "float32", [1] * 9]], b"1234"), "the shape"),
        (described([["x", "float32"]], b"1234"), "name, type and shape"),
        (described([["x", ["float32"], [1]]], b"1234"), "expected one of"),
        (described([["x", "uint8", [1]], ["x", "uint8", [1]]], b"12"), "twice"),
        (described([["x", "float32", [1]]], struct.pack("<f", float("nan"))), "NaN or Inf"),
        (described([["x", "float64", [1]]], struct.pack("<d", float("-inf"))), "NaN or Inf"),
        (b"PK\x03\x04" + bytes(100), "begins with"),
    ],
)
def test_a_well_sealed_lie_is_refused_with_the_reason(payload, reason):
    with pytest.raises(BadMessage, match=reason):
        read(payload)


def test_what_is_not_finite_cannot_be_sent():
    for value in (float("nan"), float("inf")):
        with pytest.raises(BadMessage, match="finite"):
            encode(Envelope("x", {}, {"x": torch.tensor([value])}))
        with pytest.raises(BadMessage, match="finite"):
            encode(Envelope("x", {"x": value}))
    with pytest.raises(BadMessage, match="bool"):
        encode(Envelope("x", {}, {"x": torch.tensor([True])}))


def test_a_message_over_the_limit_is_not_read():
    with pytest.raises(BadMessage, match="too long"):
        decode(encode(Envelope("x", blob=bytes(1000))), most=500)


def example(hint):
    """Some value of a field's type."""
    if hint is Terms:
        return Terms("dpd_fvae", {"hidden": [4]}, {"kind": "table"}, epsilon=2.0)
    known = {str: "x", int: 3, float: 0.5, bool: True, tuple[str, ...]: ("a", "b"), bytes: b"\1"}
    if hint in known:
        return known[hint]
    return {"x": torch.tensor([1.0])} if "Tensor" in str(hint) else {"a": 1}


@pytest.mark.parametrize("kind", _KINDS)
def test_every_message_comes_back_as_it_was(kind):
    made = _KINDS[kind]
    hints = {name: hint for name, hint in _HINTS[made].items() if name != "kind"}
    message = made(**{name: example(hint) for name, hint in hints.items()})
    found = read(write(message))
    for name in hints:
        if name == "tensors":
            assert fingerprint_of(found.tensors) == fingerprint_of(message.tensors)
        else:
            assert getattr(found, name) == getattr(message, name), name


@settings(max_examples=300)
@given(st.sampled_from(sorted(_KINDS)), st.data())
def test_fields_of_the_wrong_type_are_refused(kind, data):
    """Structure-aware: a true message in which one field is missing, new, or of another type."""
    made = _KINDS[kind]
    hints = {n: h for n, h in _HINTS[made].items() if n not in ("kind", "tensors", "blob")}
    whole = decode(write(made(**{name: example(hint) for name, hint in hints.items()})))
    fields = dict(whole.fields)
    name = data.draw(st.sampled_from(sorted(fields)))
    what = data.draw(st.sampled_from(("missing", "new", "changed")))
    if what == "missing":
        del fields[name]
    elif what == "new":
        fields["seed"] = 1
    else:
        fields[name] = data.draw(plain)
    payload = encode(Envelope(kind, fields))
    try:
        found = read(payload)
    except BadMessage:
        return
    assert what == "changed"  # then it was of the right type by chance, and reads back the same
    assert decode(write(found)).fields == json.loads(json.dumps(fields))


@settings(max_examples=300)
@given(st.binary(max_size=200) | envelopes.map(encode))
def test_reading_raises_nothing_but_bad_message(payload):
    try:
        read(payload)
    except BadMessage as error:
        assert len(str(error)) > 10


def test_a_message_carries_only_what_its_kind_has():
    for extra in ({"tensors": {"x": torch.ones(1)}}, {"blob": b"x"}):
        with pytest.raises(BadMessage, match="carries no"):
            read(encode(Envelope("status", {"run": "r"}, **extra)))
    with pytest.raises(BadMessage, match="no such message"):
        read(encode(Envelope("pickle", {})))


def test_numbers_and_texts_have_bounds():
    good = {"run": "r", "session": 1, "version": 0, "since": 0, "used": [], "over": False}
    assert isinstance(read(encode(Envelope("settle", good))), Settle)
    for change in (
        {"session": -1},
        {"version": 2**60},
        {"version": 1.0},
        {"run": "x" * 20_000},
        {"used": [1]},
    ):
        with pytest.raises(BadMessage):
            read(encode(Envelope("settle", {**good, **change})))


def test_messages_hold_what_they_say():
    assert Work("r", 1, "round", 2, 0, 3, 2, ()).key == "round 2 0"
    assert not Refuse("r", "", "disk", "full").final and Status("r").run == "r"
    assert Result("r", "o", "n", 1).blob == b""
