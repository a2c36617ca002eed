"""The messages between server and sites, as values: each is checked field by field when it is read.

The server speaks first and a site answers each message once:

    Invite  → Accept     what the run will be; how many clients the site has
    Begin   → Done       the plan as calibrated, and where the site's clients begin in it
    Work    → Result     train from this state; one sum over the site's clients
    Settle  → Done       which results were used, where no work goes along
    Stage   → Staged     a step of the transport's own protocol, in bytes
    Status  → Report     alive?
    Notice  → Report     something that people at the site should know
    any     → Refuse     and why

`used` and `since` travel with every Work and Settle: results named in `used` are in the server's durable state, those
of versions before `since` that are not named never will be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, get_type_hints

from torch import Tensor

from fedsynth.deploy.link.codec import MOST_BYTES, BadMessage, Envelope, decode, encode

Tensors = Mapping[str, Tensor]
_MOST_TEXT = 10_000
_MOST_NUMBER = 2**53
_LATER = {"largest", "software"}  # fields that messages of earlier versions, kept on disk, do not have


@dataclass(frozen=True)
class Terms:
    """The terms a site agrees to: what a run will do with whose data under which promise."""

    recipe: str
    values: Mapping[str, Any]
    schema: Mapping[str, Any]
    private: bool = True
    epsilon: float = 0.0
    delta: float = 0.0
    unit: str = "client"
    trust: str = "central"
    transport: str = "clear"
    minimum_cohort: int = 1  # the run stops when fewer sites than this take part
    clients: int = 0  # of all sites together; 0 while it is not known
    inspection: Mapping[str, Any] = field(default_factory=dict)  # a step of one; empty in an ordinary run
    largest: int = 1  # clients of the site that has most: it knows the noise of all of them
    software: Mapping[str, Any] = field(default_factory=dict)  # the code by which the server composes the run


@dataclass(frozen=True)
class Invite:
    """A question whether a site would take part."""

    kind: ClassVar[str] = "invite"
    run: str
    terms: Terms
    known: int = 0  # lines of the site's ledger that it showed before, and has to have still


@dataclass(frozen=True)
class Begin:
    """The plan as calibrated; `session` counts the server's starts, so that an old server is not obeyed.

    `tensors` holds the public starting point of the parts that stay with the clients; `blob` is the model (ONNX) that
    judges rows in an inspection.
    """

    kind: ClassVar[str] = "begin"
    run: str
    session: int
    terms: Terms
    first: int  # number of the site's first client
    sites: int
    tensors: Tensors = field(default_factory=dict)
    blob: bytes = b""


@dataclass(frozen=True)
class Work:
    """Clients `ids` train from version `version`; `part` counts the orders of one version.

    `tensors` holds `ids`, the shared parts as `parts/NAME` and the mechanism's public state as `mechanism/NAME`.
    """

    kind: ClassVar[str] = "work"
    run: str
    session: int
    job: str
    version: int
    part: int
    sites: int  # that take part now
    since: int
    used: tuple[str, ...]
    tensors: Tensors = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key under which it is answered at most once."""
        return f"{self.job} {self.version} {self.part}"


@dataclass(frozen=True)
class Settle:
    """Which results were used, up to which version; `over` once the run is done."""

    kind: ClassVar[str] = "settle"
    run: str
    session: int
    version: int
    since: int
    used: tuple[str, ...]
    over: bool = False


@dataclass(frozen=True)
class Stage:
    """A step of the transport's own protocol, for example an exchange of keys."""

    kind: ClassVar[str] = "stage"
    run: str
    session: int
    version: int
    name: str
    blob: bytes = b""


@dataclass(frozen=True)
class Status:
    """A question whether anybody is there."""

    kind: ClassVar[str] = "status"
    run: str


@dataclass(frozen=True)
class Notice:
    """A sentence for people at the site; it goes into the site's own log."""

    kind: ClassVar[str] = "notice"
    run: str
    text: str


@dataclass(frozen=True)
class Accept:
    """The site would take part with so many clients; `session` is the last it obeyed in this run.

    `seeded` is true if the site's randomness can be repeated: the run is then a simulation and private for nobody.
    `ledger` is how many lines its ledger has and the hash of the last, `proof` the hash of the last that was known.
    """

    kind: ClassVar[str] = "accept"
    run: str
    answers: str
    clients: int
    session: int
    seeded: bool
    ledger: str = field(default="", compare=False)
    proof: str = field(default="", compare=False)


@dataclass(frozen=True)
class Done:
    """The site did it; `paid` counts the rounds of this run that its ledger shows."""

    kind: ClassVar[str] = "done"
    run: str
    answers: str
    paid: int
    ledger: str = field(default="", compare=False)


@dataclass(frozen=True)
class Result:
    """The site's clients' messages: `tensors` holds `ids` and `messages`, or `blob` is sealed by the transport.

    `order` names the work that it answers, `name` the result itself.
    """

    kind: ClassVar[str] = "result"
    run: str
    order: str
    name: str
    version: int
    tensors: Tensors = field(default_factory=dict)
    blob: bytes = b""
    ledger: str = field(default="", compare=False)


@dataclass(frozen=True)
class Staged:
    """The site's answer in the transport's own protocol."""

    kind: ClassVar[str] = "staged"
    run: str
    answers: str
    name: str
    blob: bytes = b""


@dataclass(frozen=True)
class Report:
    """The site is there, and how many rounds of the run it has settled (0 also where it does not know it)."""

    kind: ClassVar[str] = "report"
    run: str
    answers: str
    version: int


@dataclass(frozen=True)
class Refuse:
    """The site does not do it, and why; `final` if asking again in this run is of no use.

    `code` tells a program which kind of refusal: message, policy, budget, ledger, turns, begin, session, stale, disk,
    data, version, error.
    """

    kind: ClassVar[str] = "refuse"
    run: str
    answers: str
    code: str
    reason: str
    final: bool = False


Message = (
    Invite
    | Begin
    | Work
    | Settle
    | Stage
    | Status
    | Notice
    | Accept
    | Done
    | Result
    | Staged
    | Report
    | Refuse
)
_KINDS: dict[str, type[Any]] = {
    message.kind: message
    for message in (
        Invite, Begin, Work, Settle, Stage, Status, Notice, Accept, Done, Result, Staged, Report, Refuse,
    )
}  # fmt: skip
_TYPES: tuple[type[Any], ...] = (Terms, *_KINDS.values())
_HINTS = {kind: get_type_hints(kind) for kind in _TYPES}
_FIELDS = {kind: tuple(item.name for item in fields(kind)) for kind in _TYPES}
_PLAIN = {
    kind: [name for name in names if name not in ("tensors", "blob")] for kind, names in _FIELDS.items()
}


def write(message: Message) -> bytes:
    """The message as bytes."""
    plain = {name: _as_json(getattr(message, name)) for name in _PLAIN[type(message)]}
    tensors, blob = getattr(message, "tensors", {}), getattr(message, "blob", b"")
    return encode(Envelope(message.kind, plain, tensors, blob))


def read(payload: bytes, most: int = MOST_BYTES) -> Message:
    """The message in these bytes, every field of its type; refuses anything else.

    >>> read(write(Status("r1")))
    Status(run='r1')
    """
    envelope = decode(payload, most)
    kind = _KINDS.get(envelope.kind)
    if kind is None:
        raise BadMessage(f"kind={envelope.kind[:40]!r}: no such message; expected {', '.join(_KINDS)}")
    values = _checked(kind, envelope.fields)
    for name, content in (("tensors", envelope.tensors), ("blob", envelope.blob)):
        if name in _FIELDS[kind]:
            values[name] = content
        elif content:
            raise BadMessage(f"{envelope.kind}: it carries no {name}")
    return kind(**values)


def _as_json(value: Any) -> Any:
    if type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Terms):
        return {name: _as_json(getattr(value, name)) for name in _FIELDS[Terms]}
    if isinstance(value, Mapping):
        return {name: _as_json(entry) for name, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _checked(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a message or of its terms, each of the type that is declared."""
    hints = _HINTS[kind]
    expected = _PLAIN[kind]
    odd = sorted((set(values) ^ set(expected)) - (set(expected) & _LATER))
    if odd:
        raise BadMessage(f"{kind.__name__}: {', '.join(odd)[:200]} is missing or not expected")
    return {
        name: _value(f"{kind.__name__}.{name}", hints[name], values[name])
        for name in expected
        if name in values
    }


def _value(where: str, kind: Any, value: Any) -> Any:
    if kind is Terms and isinstance(value, dict):
        return Terms(**_checked(Terms, value))
    if kind is str and isinstance(value, str) and len(value) <= _MOST_TEXT:
        return value
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and type(value) is int and 0 <= value < _MOST_NUMBER:
        return value
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind == tuple[str, ...] and isinstance(value, list):
        return tuple(_value(where, str, one) for one in value)
    if kind == Mapping[str, Any] and isinstance(value, dict):
        return value
    raise BadMessage(f"{where}={str(value)[:80]!r}: expected {getattr(kind, '__name__', kind)}")
