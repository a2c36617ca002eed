"""Persons, their visits, and what happened in each: the linked tables that OMOP and FHIR records become."""

from __future__ import annotations

import logging

import pandas as pd

from fedsynth.data.sources.frames import Frames

PERSON, VISIT, DAY = "person id", "visit id", "day"
CONCEPTS = {"condition": "condition", "measurement": "test", "drug": "drug", "visit": "type"}
_log = logging.getLogger(__name__)


def linked(tables: Frames) -> dict[str, pd.DataFrame]:
    """Return tables in which every visit has its person and everything else its visit.

    What names no visit belongs to that visit of the person which was open on its day. Rows that belong to nobody are
    left out, and the log says how many. Days become days since the visit began: a model that drew dates for visits and
    for what happened in them would not make them fit.
    """
    people = _once(tables["person"], "person", PERSON)
    visits = _once(tables["visit"], "visit", VISIT)
    visits = _kept(visits, visits[PERSON].isin(people[PERSON]), "visit", "belong to no person")
    visits = _kept(visits, visits["start"].notna(), "visit", "have no day on which they began")
    result = {"person": people, "visit": visits}
    for name in (one for one in tables if one not in result):
        frame = _attached(tables[name], visits)
        frame = _kept(frame, frame[VISIT].isin(visits[VISIT]), name, "belong to no visit")
        frame = _kept(frame, frame[CONCEPTS[name]].notna(), name, "have no code")
        result[name] = _counted(frame, visits).drop(columns=PERSON)
    return {name: frame.reset_index(drop=True) for name, frame in result.items()}


def unlisted(tables: Frames, listed: dict[str, tuple[str, ...]], instead: str) -> dict[str, pd.DataFrame]:
    """Return the tables with codes that the schema does not list left out (`drop`), or called `instead`."""
    result = dict(tables)
    for name, column in CONCEPTS.items():
        if name in tables and name in listed:
            known = tables[name][column].isin(listed[name]) | tables[name][column].isna()
            if instead == "drop":
                result[name] = _kept(tables[name], known, name, "have a code that the schema does not list")
            else:
                codes = tables[name][column].where(known, instead)
                result[name] = tables[name].assign(**{column: codes})
    if "visit" in result:  # children of visits that were dropped
        for name in (one for one in result if one not in ("person", "visit")):
            inside = result[name][VISIT].isin(result["visit"][VISIT])
            result[name] = result[name][inside].reset_index(drop=True)
    return result


def _attached(frame: pd.DataFrame, visits: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the visit of their day, where they name none."""
    homeless = frame[VISIT].isna() & frame[DAY].notna()
    if not homeless.any():
        return frame
    rows = frame.loc[homeless, [PERSON, DAY]].reset_index(names="row")
    spans = visits[[VISIT, PERSON, "start", "end"]].rename(columns={VISIT: "open"})
    pairs = rows.merge(spans, on=PERSON)
    day, start = pairs[DAY].astype("str"), pairs["start"].astype("str")
    end = pairs["end"].where(pairs["end"].notna(), pairs["start"]).astype("str")
    pairs = pairs[(start <= day) & (day <= end)].drop_duplicates("row")
    return frame.assign(**{VISIT: frame[VISIT].fillna(pairs.set_index("row")["open"].reindex(frame.index))})


def _counted(frame: pd.DataFrame, visits: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the number of days since their visit began in the place of dates."""
    start = frame[VISIT].map(visits.set_index(VISIT)["start"])
    days = (pd.to_datetime(frame[DAY]) - pd.to_datetime(start)).dt.days
    return frame.assign(**{DAY: days.astype("Int64")})


def _once(frame: pd.DataFrame, name: str, key: str) -> pd.DataFrame:
    return _kept(frame, ~frame[key].duplicated(keep="last"), name, "are older versions of another")


def _kept(frame: pd.DataFrame, wanted: pd.Series, name: str, reason: str) -> pd.DataFrame:
    lost = int((~wanted).sum())
    if lost:
        _log.warning("%s: %d of %d rows %s; they are left out", name, lost, len(frame), reason)
    return frame[wanted].reset_index(drop=True)
