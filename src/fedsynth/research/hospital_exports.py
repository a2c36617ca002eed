"""The made-up hospital records in the two shapes in which hospitals hand theirs out: OMOP tables and FHIR resources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.research.hospital_records import DIAGNOSES, TESTS, TYPES

SEXES = {"F": (8532, "FEMALE"), "M": (8507, "MALE")}
UNITS = dict(zip(TESTS, ("mmol/L", "mg/dL", "mm[Hg]"), strict=True))
_FIRST_CONCEPT = 40_000
_NAMES = [*TYPES, *DIAGNOSES, *TESTS, *UNITS.values(), "aspirin", "metformin"]


def omop_tables(records: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of the OMOP common data model; one measurement in ten names no visit, only person and day."""
    concepts = {name: _FIRST_CONCEPT + place for place, name in enumerate(_NAMES)}
    people, visits, tests = records["person"], records["visit"], records["measurement"]
    visit_of = visits.set_index("visit id")
    owner, start = (tests["visit id"].map(visit_of[name]) for name in ("person id", "admission"))
    rows = pd.DataFrame({"concept_id": concepts.values(), "concept_name": concepts.keys()})
    sexes = pd.DataFrame(SEXES.values(), columns=["concept_id", "concept_name"])
    chronic = people["chronic"] == "yes"
    return {
        "concept": pd.concat([rows, sexes], ignore_index=True),
        "person": pd.DataFrame(
            {
                "person_id": people["person id"],
                "gender_concept_id": people["sex"].map({sex: code for sex, (code, _) in SEXES.items()}),
                "year_of_birth": 2015 - people["age"],
                "race_concept_id": 0,
                "ethnicity_concept_id": 0,
            }
        ),
        "death": pd.DataFrame({"person_id": people["person id"][chronic][:20], "death_date": "2024-12-31"}),
        "visit_occurrence": pd.DataFrame(
            {
                "visit_occurrence_id": visits["visit id"],
                "person_id": visits["person id"],
                "visit_concept_id": visits["type"].map(concepts),
                "visit_start_date": visits["admission"],
                "visit_end_date": visits["discharge"],
            }
        ),
        "condition_occurrence": pd.DataFrame(
            {
                "condition_occurrence_id": visits["visit id"],
                "person_id": visits["person id"],
                "condition_concept_id": visits["diagnosis"].map(concepts),
                "condition_start_date": visits["admission"],
                "visit_occurrence_id": visits["visit id"],
            }
        ),
        "measurement": pd.DataFrame(
            {
                "measurement_id": range(1, len(tests) + 1),
                "person_id": owner,
                "measurement_concept_id": tests["test"].map(concepts),
                "measurement_date": start,
                "value_as_number": tests["value"],
                "unit_concept_id": tests["test"].map(UNITS).map(concepts),
                "visit_occurrence_id": tests["visit id"].astype("Int64").mask(tests.index % 10 == 0),
            }
        ),
        "drug_exposure": pd.DataFrame(
            {
                "drug_exposure_id": visits["visit id"],
                "person_id": visits["person id"],
                "drug_concept_id": [concepts[("aspirin", "metformin")[row % 2]] for row in visits.index],
                "drug_exposure_start_date": visits["admission"],
                "days_supply": [30 if row % 3 else None for row in visits.index],
                "visit_occurrence_id": visits["visit id"],
            }
        ),
    }


def write_fhir(records: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write a bulk export: Patient, Encounter, Condition and Observation files of one resource a line."""
    folder.mkdir(parents=True, exist_ok=True)
    resources: dict[str, list[dict[str, Any]]] = {
        "Patient": [],
        "Encounter": [],
        "Condition": [],
        "Observation": [],
    }
    for row in records["person"].to_dict("records"):
        gender = {"F": "female", "M": "male"}[row["sex"]]
        birth = f"{2015 - row['age']}-06-01"
        resources["Patient"].append({"id": f"p{row['person id']}", "gender": gender, "birthDate": birth})
    for row in records["visit"].to_dict("records"):
        resources["Encounter"].append(_encounter(row))
        resources["Condition"].append(_condition(row))
    visits = records["visit"].set_index("visit id")
    for place, row in enumerate(records["measurement"].to_dict("records")):
        resources["Observation"].append(_observation(place, row, visits))
    for kind, listed in resources.items():
        lines = "".join(json.dumps({"resourceType": kind, **one}) + "\n" for one in listed)
        (folder / f"{kind}.000.ndjson").write_text(lines)


def _encounter(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        "id": f"e{row['visit id']}",
        "status": "finished",
        "class": {"code": row["type"]},
        "subject": {"reference": f"Patient/p{row['person id']}"},
        "period": {
            "start": f"{row['admission']}T08:00:00+01:00",
            "end": f"{row['discharge']}T17:00:00+01:00",
        },
    }


def _condition(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        "id": f"c{row['visit id']}",
        "subject": {"reference": f"Patient/p{row['person id']}"},
        "encounter": {"reference": f"Encounter/e{row['visit id']}"},
        "code": {"coding": [{"system": "http://hl7.org/fhir/sid/icd-10", "code": row["diagnosis"]}]},
        "onsetDateTime": row["admission"],
    }


def _observation(place: int, row: Mapping[Any, Any], visits: pd.DataFrame) -> dict[str, Any]:
    visit = visits.loc[row["visit id"]]
    named = {"encounter": {"reference": f"Encounter/e{row['visit id']}"}} if place % 10 else {}
    return {
        "id": f"o{place}",
        "status": "final",
        "subject": {"reference": f"Patient/p{visit['person id']}"},
        **named,
        "code": {"text": row["test"]},
        "effectiveDateTime": f"{visit['admission']}T09:00:00Z",
        "valueQuantity": {"value": row["value"], "unit": UNITS[row["test"]]},
    }
