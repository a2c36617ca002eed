"""FHIR bulk exports: NDJSON files of Patient, Encounter, Observation and Condition resources (R4, R5)."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.data.sources.frames import Frames, frame_of
from fedsynth.data.sources.visits import linked
from fedsynth.errors import BadInput

ENDINGS = (".ndjson", ".ndjson.gz")
_WRONG = ("entered-in-error", "cancelled", "planned")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
Resource = Mapping[str, Any]


@dataclass(frozen=True)
class Fhir:
    """Tables person, visit, condition and measurement; codes by their text, else by what their coding displays."""

    folder: str
    unlisted: str | None = None

    def read(self, folder: Path, names: Collection[str] | None = None, cell_by_cell: bool = False) -> Frames:
        """Return all tables; one is empty where the export has nothing for it."""
        place = folder / self.folder
        files = export_files(place)
        if not files:
            raise BadInput(f"{place}: holds no .ndjson file; expected the files of a FHIR bulk export")
        rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name, _, _ in _SHAPES.values()}
        for file in files:
            for number, resource in _resources(file):
                name, _, row = _SHAPES[resource["resourceType"]]
                if str(resource.get("status")) not in _WRONG:
                    try:
                        rows[name].append(row(resource))
                    except (AttributeError, TypeError, KeyError, IndexError, ValueError):
                        raise BadInput(
                            f"{file}: line {number} is no {resource['resourceType']} as FHIR has it; export it again"
                        ) from None
        for needed, resource_type in (("person", "Patient"), ("visit", "Encounter")):
            if not rows[needed]:
                raise BadInput(
                    f"{place}: holds no {resource_type}; expected at least one in its .ndjson files"
                )
        wanted = {"person", "visit", *(names or rows)}
        shapes = {name: columns for name, columns, _ in _SHAPES.values()}
        return linked({name: frame_of(shapes[name], rows[name]) for name in rows if name in wanted})


def export_files(folder: Path) -> list[Path]:
    """Return the NDJSON files of a folder."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder; expected one with the files of a FHIR bulk export")
    return sorted(file for file in folder.iterdir() if file.name.endswith(ENDINGS))


def _resources(file: Path) -> Iterator[tuple[int, Resource]]:
    """Go through the resources of one file that become rows, each with its line's number."""
    opened: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    try:
        with opened(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                resource = json.loads(line)
                if not isinstance(resource, dict) or "resourceType" not in resource:
                    raise BadInput(
                        f"{file}: line {number} has no resourceType; expected one resource per line"
                    )
                if resource["resourceType"] in _SHAPES:
                    yield number, resource
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{file}: not NDJSON in UTF-8 ({type(error).__name__}); export it again") from None
    except (OSError, EOFError) as error:
        raise BadInput(f"{file}: cannot be read ({error}); check the file") from None


def _patient(resource: Resource) -> tuple[Any, ...]:
    birth = resource.get("birthDate")
    year = int(birth[:4]) if birth else None
    return resource["id"], year, resource.get("gender"), _day(resource.get("deceasedDateTime"))


def _encounter(resource: Resource) -> tuple[Any, ...]:
    period = resource.get("period") or resource.get("actualPeriod") or {}
    kinds = resource.get("class")
    kind = kinds[0] if isinstance(kinds, list) else {"coding": [kinds]} if kinds else None
    person = _reference(resource.get("subject"))
    return resource["id"], person, _day(period.get("start")), _day(period.get("end")), _code(kind)


def _observation(resource: Resource) -> tuple[Any, ...]:
    quantity = resource.get("valueQuantity") or {}
    value = quantity.get("value", resource.get("valueInteger"))
    moment = resource.get("effectiveDateTime") or (resource.get("effectivePeriod") or {}).get("start")
    number = None if value is None else float(value)
    unit = quantity.get("unit") or quantity.get("code")
    return *_owner(resource), _day(moment), _code(resource.get("code")), number, unit


def _condition(resource: Resource) -> tuple[Any, ...]:
    moment = resource.get("onsetDateTime") or resource.get("recordedDate")
    return *_owner(resource), _day(moment), _code(resource.get("code"))


def _owner(resource: Resource) -> tuple[str | None, str | None]:
    return _reference(resource.get("encounter")), _reference(resource.get("subject"))


def _reference(to: Resource | None) -> str | None:
    """Return the id in a reference such as Patient/17 or https://example.org/fhir/Patient/17/_history/2."""
    text = (to or {}).get("reference")
    if not text:
        return None
    return str(text).split("/_history/")[0].rsplit("/", 1)[-1].removeprefix("urn:uuid:")


def _code(concept: Resource | None) -> str | None:
    if not concept:
        return None
    coding: Resource = next(iter(concept.get("coding") or ()), {})
    return concept.get("text") or coding.get("display") or coding.get("code")


def _day(moment: str | None) -> str | None:
    """Return the day of a moment; None for a year or a month alone."""
    return moment[:10] if moment and _DATE.match(moment) else None


_VISIT = ("visit id", "person id", "day")
_SHAPES: dict[str, tuple[str, tuple[str, ...], Callable[[Resource], tuple[Any, ...]]]] = {
    "Patient": ("person", ("person id", "birth year", "sex", "death"), _patient),
    "Encounter": ("visit", ("visit id", "person id", "start", "end", "type"), _encounter),
    "Condition": ("condition", (*_VISIT, "condition"), _condition),
    "Observation": ("measurement", (*_VISIT, "test", "value", "unit"), _observation),
}
