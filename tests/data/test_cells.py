"""A cell is read by itself, whatever stands in the other rows."""

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.cells import MISSING, MOMENT_KINDS, TEXT, WHOLE, read_cells
from fedsynth.data.table_files import read_table

CELLS = ["1", "1.0", "2.50", "-0.125", "0.12345", "1e3", "007", "0", "x", "true", "inf", "1_000", " 4", ""]


@pytest.fixture
def written(tmp_path):
    """Reads a CSV file of one column as written."""

    def write(cells):
        pd.DataFrame({"a": cells}).to_csv(tmp_path / "a.csv", index=False)
        return read_cells(read_table(tmp_path / "a.csv", as_written=True)["a"])

    return write


def test_kinds_of_cells(written):
    expected = [0, 0, 1, 3, 4, 0, None, 0, None, None, None, None, 0]
    kinds = [TEXT if decimals is None else WHOLE + decimals for decimals in expected]
    assert written(CELLS).kinds().tolist() == [*kinds, MISSING] and max(kinds) < min(MOMENT_KINDS.values())


@pytest.mark.parametrize("other", ["3.5", "x", "007", ""])
def test_no_cell_changes_what_is_read_of_another(written, other):
    alone, beside = written([*CELLS, "5"]), written([*CELLS, other])
    assert alone.texts[:-1].tolist() == beside.texts[:-1].tolist()
    np.testing.assert_array_equal(alone.numbers[:-1], beside.numbers[:-1])


MOMENTS = ["9999-12-31", "1500-06-01", "2020-01-31T08:30:00+02:00", "2500-01-01 08:30:00.5", "08:30", "soon"]


@pytest.mark.parametrize(
    "other",
    ["2020-01-01T00:00:00.123456789", "08:30:00.123456789Z", "0001-01-01", "10000-01-01", "2020-W53-7"],
)
def test_no_moment_changes_what_is_read_of_another(written, other):
    alone, beside = written([*MOMENTS, "x"]), written([*MOMENTS, other])
    assert alone.kinds()[:-1].tolist() == beside.kinds()[:-1].tolist()
    for kind in MOMENT_KINDS:
        np.testing.assert_array_equal(alone.seconds(kind)[:-1], beside.seconds(kind)[:-1])


def test_whole_numbers_read_the_same_whether_stored_as_whole_or_not():
    whole, floats = (read_cells(pd.Series([1, 2, 30], dtype=kind)) for kind in ("int64", "float64"))
    assert whole.texts.tolist() == floats.texts.tolist() == ["1", "2", "30"]
    assert read_cells(pd.Series([True, None], dtype=object)).texts.tolist() == ["True", None]
