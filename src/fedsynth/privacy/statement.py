"""The privacy statement: what is protected, against whom, how much, what was released, what is not covered.

It is built from the ledger, that is from what really was released, in numbers (privacy.json) and in words that a
data protection officer can sign. A run with seeded noise gets no guarantee, whatever its noise multiplier.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from fedsynth.data.atomic import write_file
from fedsynth.data.notebook import card
from fedsynth.errors import BadInput, nearest
from fedsynth.privacy.accountant import SpentEpsilon, answer
from fedsynth.privacy.ledger import EVERYONE, Ledger, LedgerLine, priced
from fedsynth.privacy.pairs import SAMPLINGS
from fedsynth.privacy.wording import (
    caveat_delta,
    caveat_simulation,
    caveats_inferred,
    caveats_shares,
    shown,
    wording,
)

_NOT_ADDED_UP = (
    "accountant",
    "projection",
    "caveats",
    "text",
    "audited",
    "units",
)  # these say nothing of the cost
_SAME = 1e-3  # relative: what other versions of numerical libraries may change in an epsilon


@dataclass(frozen=True)
class Statement:
    """The content of privacy.json. `epsilon` is None where nothing is claimed: no privacy, or a simulation."""

    unit: str
    adjacency: str
    trust: str
    sampling: str
    epsilon: float | None
    delta: float | None
    accountant: str
    private: bool
    simulation: bool
    projection: int | None  # clients that the statement is projected to; None for those who took part
    releases: tuple[Mapping[str, Any], ...]
    caveats: tuple[str, ...]
    text: str
    audited: Mapping[str, Any] | None = None
    against: Mapping[str, float] | None = None  # the public and a participant, where epsilon differs
    units: int | None = None  # how many of the unit there are, as far as that is public

    @property
    def loses_one(self) -> bool:
        """Whether delta is so large that a mechanism which gives one of the units away whole would keep the promise."""
        return self.delta is not None and self.units is not None and self.delta * self.units >= 1

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        epsilon = "none claimed" if self.epsilon is None else shown(self.epsilon)
        delta = "none claimed" if self.delta is None else f"{self.delta:g}"
        whole = "yes" if self.private else "no: read what is not covered"
        facts = {
            "epsilon": epsilon,
            "delta": delta,
            "protected": self.unit,
            "trusted": self.trust,
            "complete": whole,
        }
        return card("Privacy statement", facts, self.text)

    def to_dict(self) -> dict[str, Any]:
        """JSON values under the names that users and checkers rely on."""
        values = asdict(self)
        return {**values, "releases": list(values["releases"]), "caveats": list(values["caveats"])}

    def save(self, path: Path | str) -> None:
        """Write privacy.json."""
        write_file(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read privacy.json back."""
        path = Path(path)
        try:
            data = json.loads(path.read_text())
            expected = {item.name for item in fields(cls)}
            required = {item.name for item in fields(cls) if item.default is MISSING}
            wrong = (set(data) - expected) | (required - set(data))
            if wrong:
                raise BadInput(f"{path}: keys {sorted(wrong)} are missing or unknown")
        except (OSError, ValueError, TypeError) as error:
            raise BadInput(
                f"{path} is not a privacy statement: {error}; expected privacy.json of a run"
            ) from error
        return cls(**{**data, "releases": tuple(data["releases"]), "caveats": tuple(data["caveats"])})


def statement(
    ledger: Ledger,
    *,
    delta: float,
    adjacency: str = "add-remove",
    sampling: str = "none",
    unit: str | None = None,
    accountant: str = "pld",
    seeded: bool = False,
    inferred: Sequence[str] = (),
    caveats: Sequence[str] = (),
    projection: int | None = None,
    audited: Mapping[str, Any] | None = None,
    units: int | None = None,
) -> Statement:
    """The statement on everything that the ledger holds.

    `caveats` are sentences from the recipe and the transport (key model, no record-level guarantee); `inferred`
    are columns whose bounds or categories were read from the rows without paying; `units` is how many clients or
    records there are, if that is public: a delta of 1 / units or more is no complete promise.
    """
    if sampling not in SAMPLINGS:
        raise BadInput(f"sampling {sampling!r} is not known; {nearest(sampling, SAMPLINGS)}")
    lines = ledger.releases()
    unit = unit or (lines[0].unit if lines else "client")
    cost = ledger.answer(delta, adjacency=adjacency, accountant=accountant, unit=unit) if lines else None
    finite = cost is not None and math.isfinite(cost.epsilon)
    claimed = finite and not seeded
    earlier = sum(line.trust == "distributed" and line.public is None for line in lines)
    listed = [
        *caveats,
        *caveats_inferred(inferred),
        *caveats_shares(earlier),
        *_would_be(cost, delta, seeded),
    ]
    releases = _releases(lines, unit, delta, adjacency, accountant, claimed)
    trust = _trust(lines)
    draft = Statement(
        unit=unit,
        adjacency=adjacency,
        trust=trust,
        sampling=sampling,
        epsilon=cost.epsilon if cost is not None and claimed else None,
        delta=delta if claimed else None,
        accountant=cost.accountant if cost else accountant,
        private=claimed and not inferred,
        simulation=seeded,
        projection=projection,
        releases=releases,
        caveats=tuple(listed),
        text="",
        audited=audited,
        against=None
        if cost is None or not claimed
        else _against(ledger, cost, delta, adjacency, accountant, unit),
        units=units if claimed else None,
    )
    if draft.loses_one:
        caveat = caveat_delta(delta, unit, units or 0)
        draft = replace(draft, private=False, caveats=(caveat, *draft.caveats))
    return worded(draft, ledger)


def worded(made: Statement, ledger: Ledger) -> Statement:
    """The statement with its text written from its fields."""
    runs = len({line.run for line in ledger.releases()})
    return replace(made, text=wording(made, runs))


def disagreement(stated: Statement, recomputed: Statement) -> str | None:
    """The first field of a statement that is not what the ledger adds up to, in words; None if all are.

    A field that an older statement does not have claims nothing, and is not compared.
    """
    for item in fields(Statement):
        said, is_so = getattr(stated, item.name), getattr(recomputed, item.name)
        unclaimed = said is None and item.default is None
        if item.name not in _NOT_ADDED_UP and not unclaimed and not _agree(said, is_so):
            return f"{item.name} is {_brief(said)} there, and {_brief(is_so)} by the ledger"
    return None


def _agree(said: Any, is_so: Any) -> bool:
    """Whether two values are equal, numbers up to what other libraries change in them."""
    if isinstance(said, Mapping) and isinstance(is_so, Mapping):
        return set(said) == set(is_so) and all(_agree(said[name], is_so[name]) for name in said)
    if isinstance(said, tuple | list) and isinstance(is_so, tuple | list):
        return len(said) == len(is_so) and all(map(_agree, said, is_so))
    if isinstance(said, float | int) and isinstance(is_so, float | int) and not isinstance(said, bool):
        return math.isclose(said, is_so, rel_tol=_SAME)
    return bool(said == is_so)


def _brief(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, tuple | list) else str(value)


def _would_be(found: SpentEpsilon | None, delta: float, seeded: bool) -> list[str]:
    if not seeded:
        return []
    finite = found is not None and math.isfinite(found.epsilon)
    return [caveat_simulation(shown(found.epsilon) if found is not None and finite else None, delta)]


def _against(
    ledger: Ledger, found: SpentEpsilon, delta: float, adjacency: str, accountant: str, unit: str
) -> dict[str, float] | None:
    """Epsilon against those who know no share of the noise, beside that against a participant; None if they are one."""
    if all(line.to_the_public == line for line in ledger.lines()):
        return None
    public = ledger.answer(delta, adjacency=adjacency, accountant=accountant, unit=unit, public=True)
    return {"public": public.epsilon, "participant": found.epsilon}


def _trust(lines: Sequence[LedgerLine]) -> str:
    """Who must be honest, by the most trusting release."""
    used = {line.trust for line in lines}
    return next((trust for trust in ("central", "distributed", "local") if trust in used), "none")


def _releases(
    lines: Sequence[LedgerLine], unit: str, delta: float, adjacency: str, accountant: str, claimed: bool
) -> tuple[dict[str, Any], ...]:
    """The lines by kind of release; of local ones the count is that of the client who sent most."""
    groups: dict[str, list[LedgerLine]] = {}
    for line in lines:
        key = json.dumps([_kind(line.release), line.event, line.holder in EVERYONE], sort_keys=True)
        groups.setdefault(key, []).append(line)
    return tuple(_release(group, unit, delta, adjacency, accountant, claimed) for group in groups.values())


def _release(
    group: Sequence[LedgerLine], unit: str, delta: float, adjacency: str, accountant: str, claimed: bool
) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for line in group:
        counts[line.holder] = counts.get(line.holder, 0) + line.count
    count = sum(counts.values()) if group[0].holder in EVERYONE else max(counts.values())
    event = priced(replace(group[0], count=count), unit, adjacency)
    alone = answer(event, delta, adjacency=adjacency, accountant=accountant).epsilon if claimed else None
    return {
        "what": _kind(group[0].release),
        "event": dict(group[0].event),
        "count": count,
        "epsilon_alone": alone if alone is not None and math.isfinite(alone) else None,
    }


def _kind(release: str) -> str:
    """The name of a release without a number at its end.

    >>> _kind("vote #12"), _kind("class counts")
    ('vote', 'class counts')
    """
    return re.sub(r"[\s#]*\d+$", "", release) or release
