"""Dates, times of day and timestamps as whole numbers of grains since a public moment, and back."""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from fedsynth.late import pd

UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
DAY = UNITS["day"]
DEFAULT_GRAINS = {"date": "day", "time": "minute", "timestamp": "minute"}
_GRAIN = re.compile(rf"(?:([1-9]\d{{0,5}}) )?({'|'.join(UNITS)})s?")
_ZONE = re.compile(r"(?<=:\d\d)(\.\d+)?(Z| ?[+-]\d\d(:?\d\d)?)$")  # after a time of day
_FRACTION = re.compile(r"(?<=:\d\d)(\.\d{1,6})\d*")  # of a second, to millionths
_EPOCH = "1970-01-01 "  # the day that a time of day is read on


@cache
def grain_seconds(grain: str) -> int | None:
    """How long a grain is; None if the text names none.

    >>> grain_seconds("minute"), grain_seconds("15 minutes"), grain_seconds("fortnight")
    (60, 900, None)
    """
    match = _GRAIN.fullmatch(grain)
    return None if match is None else int(match[1] or 1) * UNITS[match[2]]


@cache
def seconds_of(kind: str, text: str, style: str | None = None) -> int | None:
    """Seconds since 1970 of a date or timestamp, since midnight of a time of day; None if the text is none.

    >>> seconds_of("date", "1970-01-02"), seconds_of("time", "01:30"), seconds_of("date", "soon")
    (86400, 5400, None)
    """
    number = read_seconds(kind, pd.Series([text], dtype=object), style)[0]
    return None if np.isnan(number) else int(number)


def read_seconds(kind: str, values: pd.Series, style: str | None = None) -> np.ndarray:
    """Seconds of each value, whole, NaN where it is none; a time zone is dropped and the clock's own time kept.

    `style` is the strftime format of texts, ISO 8601 by default.
    """
    if pd.api.types.is_datetime64_any_dtype(values):
        naive = values.dt.tz_localize(None)
    elif pd.api.types.is_numeric_dtype(values):
        naive = pd.Series(pd.NaT, index=values.index, dtype="datetime64[s]")
    else:
        naive = _read_texts(kind, values, style)
    whole = naive.to_numpy(dtype="datetime64[s]")
    seconds = np.where(np.isnat(whole), np.nan, whole.astype(np.int64).astype(np.float64))
    return seconds % DAY if kind == "time" else seconds


def _read_texts(kind: str, values: pd.Series, style: str | None) -> pd.Series:
    codes, distinct = pd.factorize(values.astype(object))
    lead = _EPOCH if kind == "time" else ""
    # one text with billionths would have all read in a unit that knows no moment before 1677 or after 2262
    spelled = (_FRACTION.sub(r"\1", without_zone(str(value).strip())) for value in distinct)
    texts = pd.Series([lead + text for text in spelled], dtype="str")
    expected = "ISO8601" if style is None else ("%Y-%m-%d " if lead else "") + style
    moments = pd.to_datetime(texts, format=expected, errors="coerce", utc=True).dt.tz_localize(None)
    padded = np.append(moments.to_numpy(dtype="datetime64[s]"), np.datetime64("NaT", "s"))
    return pd.Series(padded[codes])


def without_zone(text: str) -> str:
    """A moment's text without its time zone: the clock's own time.

    >>> without_zone("2020-01-31T08:30:00+02:00"), without_zone("08:30Z"), without_zone("2020-01-31")
    ('2020-01-31T08:30:00', '08:30', '2020-01-31')
    """
    return _ZONE.sub("", text)


def write_seconds(seconds: np.ndarray, dtype: str | None, style: str | None) -> pd.Series:
    """Values out of seconds (NaN where missing): texts in `style`, what `dtype` says, else datetimes; a time is a text.

    >>> write_seconds(np.array([5400.0, np.nan]), None, "%H:%M").tolist()
    ['01:30', nan]
    """
    missing = np.isnan(seconds)
    whole = np.where(missing, 0, seconds).astype(np.int64).astype("datetime64[s]")
    moments = pd.Series(whole).mask(missing)
    if dtype in ("date", "time"):
        plain = moments.dt.date if dtype == "date" else moments.dt.time
        return plain.astype(object).mask(missing, None)
    if style is not None:
        return moments.dt.strftime(style).astype("str").mask(missing)
    return moments if dtype is None else _as_dtype(moments, dtype)


def _as_dtype(moments: pd.Series, dtype: str) -> pd.Series:
    wanted = pd.api.types.pandas_dtype(dtype)
    if isinstance(wanted, pd.DatetimeTZDtype):
        moments = moments.dt.tz_localize(
            wanted.tz, ambiguous=np.ones(len(moments), bool), nonexistent="shift_forward"
        )
    return moments.astype(wanted)
