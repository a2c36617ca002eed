"""Records in the OMOP common data model (5.3, 5.4): in a database, or a CSV or Parquet file for each table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pandas as pd

from fedsynth.data.sources.duck import open_files
from fedsynth.data.sources.frames import Frames
from fedsynth.data.sources.sql import Database
from fedsynth.data.sources.visits import linked
from fedsynth.data.table_files import list_tables
from fedsynth.errors import BadInput

_DEATH = (
    'LEFT JOIN (SELECT person_id, MIN(death_date) AS "day" FROM {death} GROUP BY person_id) d '
    "ON d.person_id = t.person_id"
)
_QUERIES = {
    "person": (
        'SELECT t.person_id AS "person id", t.year_of_birth AS "birth year", {sex} AS sex, {race} AS race, '
        '{ethnicity} AS ethnicity, {day} AS death FROM {person} t {names} {died}'
    ),
    "visit": (
        'SELECT t.visit_occurrence_id AS "visit id", t.person_id AS "person id", t.visit_start_date AS "start", '
        't.visit_end_date AS "end", {type} AS "type" FROM {visit_occurrence} t {names}'
    ),
    "condition": (
        'SELECT t.visit_occurrence_id AS "visit id", t.person_id AS "person id", t.condition_start_date AS "day", '
        "{condition} AS condition FROM {condition_occurrence} t {names}"
    ),
    "measurement": (
        'SELECT t.visit_occurrence_id AS "visit id", t.person_id AS "person id", t.measurement_date AS "day", '
        "{test} AS test, t.value_as_number AS \"value\", {unit} AS unit FROM {measurement} t {names}"
    ),
    "drug": (
        'SELECT t.visit_occurrence_id AS "visit id", t.person_id AS "person id", t.drug_exposure_start_date AS "day", '
        "{drug} AS drug, t.days_supply AS days FROM {drug_exposure} t {names}"
    ),
}  # fmt: skip
# of each column that a concept stands for: which id names it
_CONCEPTS = {
    "person": {"sex": "gender", "race": "race", "ethnicity": "ethnicity"},
    "visit": {"type": "visit"},
    "condition": {"condition": "condition"},
    "measurement": {"test": "measurement", "unit": "unit"},
    "drug": {"drug": "drug"},
}
_TABLES = {
    "person": "person",
    "visit": "visit_occurrence",
    "condition": "condition_occurrence",
    "measurement": "measurement",
    "drug": "drug_exposure",
}


class _Reader(Protocol):
    def select(self, query: str) -> pd.DataFrame: ...

    def tables(self, schema: str | None = None) -> dict[str, str]: ...


@dataclass(frozen=True)
class Omop:
    """Tables person, visit, condition, measurement and drug, with the names of concepts in the place of numbers."""

    url: str | None = None
    folder: str | None = None
    schema: str | None = None  # of the database, with the records
    vocabulary: str | None = None  # the same with the concepts, where they lie elsewhere
    password_variable: str | None = None
    password_file: str | None = None
    unlisted: str | None = None

    def read(self, folder: Path, names: Collection[str] | None = None, cell_by_cell: bool = False) -> Frames:
        """Return the tables, as far as the records have them."""
        if (self.url is None) == (self.folder is None):
            raise BadInput("url and folder: expected one of them")
        if self.url is not None:
            place = Database(self.url, self.password_variable, self.password_file)
            with place.open(folder) as reader:
                concepts = reader.tables(self.vocabulary or self.schema)
                return _read(reader, {**concepts, **reader.tables(self.schema)}, names)
        where = folder / str(self.folder)
        with open_files(where) as files:
            listed = {name.lower(): path for name, path in list_tables(where).items()}
            files.add({name: path for name, path in listed.items() if name in _NEEDED}, _KINDS)
            return _read(files, files.tables(), names)


# of columns in files, by how their names end
_KINDS = {
    "_id": "ID",
    "_date": "DATE",
    "value_as_number": "DOUBLE",
    "_of_birth": "INTEGER",
    "_supply": "INTEGER",
}
_NEEDED = {*_TABLES.values(), "concept", "death"}


def _read(reader: _Reader, tables: Mapping[str, str], names: Collection[str] | None) -> Frames:
    absent = [name for name in ("person", "visit_occurrence", "concept") if name not in tables]
    if absent:
        raise BadInput(
            f"{absent[0]}: the records have no such table; expected those of the OMOP common data model "
            "(schema = ... names the database's schema that they lie in, vocabulary = ... that of the concepts)"
        )
    wanted = {"person", "visit", *(names or _TABLES)}
    frames = {
        name: reader.select(_query(name, tables))
        for name, table in _TABLES.items()
        if name in wanted and table in tables
    }
    return linked(frames)


def _query(name: str, tables: Mapping[str, str]) -> str:
    """Return the query for a table, joined with the names of its concepts."""
    shown, joins = {}, []
    for column, concept in _CONCEPTS[name].items():
        number = f"t.{concept}_concept_id"
        # a number without a name stays a number: 0 is "no matching concept"
        shown[column] = f"COALESCE(c_{column}.concept_name, CAST({number} AS VARCHAR(20)))"
        joins.append(f"LEFT JOIN {tables['concept']} c_{column} ON c_{column}.concept_id = {number}")
    died = _DEATH.format(death=tables["death"]) if "death" in tables else ""
    more = {"names": " ".join(joins), "died": died, "day": 'd."day"' if died else "NULL"}
    return _QUERIES[name].format(**{**tables, **shown, **more})
