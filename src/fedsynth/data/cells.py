"""Cells of a table read one by one: what is read of a row depends on no other row, unlike a column's guessed type."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedsynth.data.clock import read_seconds, without_zone
from fedsynth.data.values import as_text, places

MOST_DECIMALS = 3  # more than these are not told apart
MISSING, TEXT, WHOLE = 0, 1, 2  # kinds of cells; WHOLE + d is a number with d decimals
_MORE = WHOLE + MOST_DECIMALS + 1  # a number with more than MOST_DECIMALS decimals
MOMENT_KINDS = {"date": _MORE + 1, "time": _MORE + 2, "timestamp": _MORE + 3}
KINDS = _MORE + 4
_ISO = {
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "time": re.compile(r"\d\d:\d\d(:\d\d)?"),
    "timestamp": re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?"),
}


@dataclass(frozen=True)
class Cells:
    """A column's cells: the text of each (None where missing), and its number (NaN where it is none)."""

    texts: np.ndarray  # [rows] object
    numbers: np.ndarray  # [rows] float64

    def kinds(self) -> np.ndarray:
        """Whether each cell is missing, a text, a number with how many decimals, or a moment in ISO 8601, as int64.

        >>> read_cells(pd.Series([None, "a", 3.0, 3.5, "0.12345", "007", "08:30"], dtype=object)).kinds().tolist()
        [0, 1, 2, 3, 6, 1, 8]
        """
        kinds = np.full(len(self.texts), _MORE, dtype=np.int64)
        for decimals in range(MOST_DECIMALS, -1, -1):
            kinds[np.round(self.numbers, decimals) == self.numbers] = WHOLE + decimals
        kinds[np.isnan(self.numbers)] = TEXT
        codes, distinct = pd.factorize(self.texts)
        for kind, pattern in _ISO.items():
            shaped = np.array([bool(pattern.fullmatch(without_zone(text))) for text in distinct] + [False])
            if shaped.any():  # else no cell is worth reading as a moment, which takes the longest
                kinds[shaped[codes] & ~np.isnan(self.seconds(kind))] = MOMENT_KINDS[kind]
        kinds[codes < 0] = MISSING
        return kinds

    def seconds(self, kind: str, style: str | None = None) -> np.ndarray:
        """The moment that each cell writes, in seconds; NaN if none."""
        return read_seconds(kind, pd.Series(self.texts, dtype=object), style)


def read_cells(values: pd.Series, missing: tuple[str, ...] = ()) -> Cells:
    """The cells of a column, each read by itself; the texts in `missing` mean a missing value.

    >>> read_cells(pd.Series(["1.50", "x", None], dtype=object)).numbers
    array([1.5, nan, nan])
    """
    spelled = values.astype(object).map(lambda value: as_text(value, ("False", "True")), na_action="ignore")
    texts = spelled.to_numpy(dtype=object, copy=True)
    texts[places(values, missing) >= 0] = None
    codes, distinct = pd.factorize(texts)
    numbers = np.array([*map(number_in, distinct), math.nan], dtype=np.float64)
    texts[codes < 0] = None
    return Cells(texts, numbers[codes])


def number_in(text: str) -> float:
    """The finite number that a text writes, NaN if none; a code such as 007 is no number.

    >>> number_in("-2.5"), number_in("007"), number_in("1_000"), number_in("inf")
    (-2.5, nan, nan, nan)
    """
    digits = text.strip().lstrip("+-")
    if "_" in digits or (digits[:1] == "0" and digits[1:2].isdigit()):
        return math.nan
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
