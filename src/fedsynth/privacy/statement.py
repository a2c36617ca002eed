"""The privacy statement: what is protected, against whom, how much, what was released, what is not covered.

It is built from the ledger, that is from what really was released, in numbers (privacy.json) and in words that a
data protection officer can sign. A run with seeded noise gets no guarantee, whatever its noise multiplier.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from fedsynth.errors import BadInput, nearest
from fedsynth.privacy.accountant import Answer, answer
from fedsynth.privacy.ledger import EVERYONE, Ledger, Line, priced
from fedsynth.privacy.pairs import SAMPLINGS
from fedsynth.privacy.wording import caveat_simulation, caveats_inferred, caveats_shares, shown, wording

_LATER = {"against"}  # keys that files of earlier versions do not have


@dataclass(frozen=True)
class Statement:
    """What privacy.json holds. `epsilon` is None where nothing is claimed: no privacy, or a simulation."""

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
    against: Mapping[str, float] | None = (
        None  # epsilon against the public and a participant, where they differ
    )

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """JSON values under the names that users and checkers rely on."""
        values = asdict(self)
        return {**values, "releases": list(values["releases"]), "caveats": list(values["caveats"])}

    def save(self, path: Path | str) -> None:
        """Write privacy.json."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read privacy.json back."""
        path = Path(path)
        try:
            data = json.loads(path.read_text())
            expected = {item.name for item in fields(cls)}
            odd = (set(data) ^ expected) - (expected & _LATER)
            if odd:
                raise BadInput(f"{path}: keys {sorted(odd)} are missing or unknown")
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
) -> Statement:
    """The statement on everything that the ledger holds.

    `caveats` are sentences from the recipe and the transport (key model, no record-level guarantee); `inferred`
    are columns whose bounds or categories were read from the rows without paying.
    """
    if sampling not in SAMPLINGS:
        raise BadInput(f"sampling {sampling!r} is not known; {nearest(sampling, SAMPLINGS)}")
    lines = [line for line in ledger.lines() if line.count]
    unit = unit or (lines[0].unit if lines else "client")
    found = ledger.answer(delta, adjacency=adjacency, accountant=accountant, unit=unit) if lines else None
    finite = found is not None and math.isfinite(found.epsilon)
    claimed = finite and not seeded
    earlier = sum(line.trust == "distributed" and line.public is None for line in lines)
    listed = [
        *caveats,
        *caveats_inferred(inferred),
        *caveats_shares(earlier),
        *_would_be(found, delta, seeded),
    ]
    differs = found is not None and claimed and any(line.to_the_public != line for line in lines)
    how = {"adjacency": adjacency, "accountant": accountant, "unit": unit}
    public = ledger.answer(delta, **how, public=True).epsilon if differs else None
    releases = _releases(lines, unit, delta, adjacency, accountant, claimed)
    trust = _trust(lines)
    draft = Statement(
        unit=unit,
        adjacency=adjacency,
        trust=trust,
        sampling=sampling,
        epsilon=found.epsilon if found is not None and claimed else None,
        delta=delta if claimed else None,
        accountant=found.accountant if found else accountant,
        private=claimed and not inferred,
        simulation=seeded,
        projection=projection,
        releases=releases,
        caveats=tuple(listed),
        text="",
        audited=audited,
        against=None if public is None or found is None else {"public": public, "participant": found.epsilon},
    )
    runs = len({line.run for line in lines})
    return Statement(**{**_shallow(draft), "text": wording(draft, runs)})


def _shallow(made: Statement) -> dict[str, Any]:
    return {item.name: getattr(made, item.name) for item in fields(made)}


def _would_be(found: Answer | None, delta: float, seeded: bool) -> list[str]:
    if not seeded:
        return []
    finite = found is not None and math.isfinite(found.epsilon)
    return [caveat_simulation(shown(found.epsilon) if found is not None and finite else None, delta)]


def _trust(lines: Sequence[Line]) -> str:
    """Who must be honest, by the most trusting release."""
    used = {line.trust for line in lines}
    return next((trust for trust in ("central", "distributed", "local") if trust in used), "none")


def _releases(
    lines: Sequence[Line], unit: str, delta: float, adjacency: str, accountant: str, claimed: bool
) -> tuple[dict[str, Any], ...]:
    """The lines by kind of release; of local ones the count is that of the client who sent most."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        key = json.dumps([_kind(line.what), line.event, line.holder in EVERYONE], sort_keys=True)
        groups.setdefault(key, []).append(line)
    return tuple(_release(group, unit, delta, adjacency, accountant, claimed) for group in groups.values())


def _release(
    group: Sequence[Line], unit: str, delta: float, adjacency: str, accountant: str, claimed: bool
) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for line in group:
        counts[line.holder] = counts.get(line.holder, 0) + line.count
    count = sum(counts.values()) if group[0].holder in EVERYONE else max(counts.values())
    event = priced(replace(group[0], count=count), unit, adjacency)
    alone = answer(event, delta, adjacency=adjacency, accountant=accountant).epsilon if claimed else None
    return {
        "what": _kind(group[0].what),
        "event": dict(group[0].event),
        "count": count,
        "epsilon_alone": alone if alone is not None and math.isfinite(alone) else None,
    }


def _kind(what: str) -> str:
    """What a release is, without its number.

    >>> _kind("noisy sum, round 12"), _kind("class counts")
    ('noisy sum', 'class counts')
    """
    return re.sub(r"(, round)?[\s#]*\d+$", "", what) or what
