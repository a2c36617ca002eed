"""Cells of a table read one by one: what is read of a row depends on no other row, unlike a column's guessed type."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedsynth.data.values import as_text

MOST_DECIMALS = 3  # more than these are not told apart
MISSING, TEXT, WHOLE = 0, 1, 2  # kinds of cells; WHOLE + d is a number with d decimals
KINDS = WHOLE + MOST_DECIMALS + 2  # the last one: a number with more than MOST_DECIMALS decimals


@dataclass(frozen=True)
class Cells:
    """A column's cells: the text of each (None where missing), and its number (NaN where it is none)."""

    texts: np.ndarray  # [rows] object
    numbers: np.ndarray  # [rows] float64

    def kinds(self) -> np.ndarray:
        """Whether each cell is missing, a text, or a number with how many decimals, as int64.

        >>> read_cells(pd.Series([None, "a", 3.0, 3.5, "0.12345", "007"], dtype=object)).kinds().tolist()
        [0, 1, 2, 3, 6, 1]
        """
        found = np.full(len(self.texts), KINDS - 1, dtype=np.int64)
        for decimals in range(MOST_DECIMALS, -1, -1):
            found[np.round(self.numbers, decimals) == self.numbers] = WHOLE + decimals
        found[np.isnan(self.numbers)] = TEXT
        found[pd.isna(self.texts)] = MISSING
        return found


def read_cells(values: pd.Series) -> Cells:
    """The cells of a column, each read by itself.

    >>> read_cells(pd.Series(["1.50", "x", None], dtype=object)).numbers
    array([1.5, nan, nan])
    """
    texts = values.astype(object).map(as_text, na_action="ignore").to_numpy(dtype=object, copy=True)
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
