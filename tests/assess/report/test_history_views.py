"""Time lines of synthetic persons whose rows are ordered by numbers: they begin with the first number, not with 0."""

import pandas as pd

from fedsynth.assess.report.history_views import histories
from fedsynth.data.schema import Schema

TABLES = {
    "pupil": {"id": "pupil id", "columns": [{"name": "age", "type": "integer", "min": 5, "max": 20}]},
    "term": {
        "parent": "pupil", "key": "pupil id", "order": "year",
        "columns": [{"name": "year", "type": "integer", "min": 2015, "max": 2019}],
    },
}  # fmt: skip


def test_a_time_line_spans_the_numbers_that_there_can_be():
    pupil = pd.DataFrame({"pupil id": [1, 2], "age": [7, 8]})
    term = pd.DataFrame({"pupil id": [1, 1, 2], "year": [2015, 2019, 2017]})
    parts = histories({"pupil": pupil, "term": term}, Schema.from_dict({"version": 2, "tables": TABLES}))
    page = str(parts[0])
    assert "rows of term, 2015 to 2019" in page and "from 2015 on" in page
    assert "2 rows: age 7" in page and "1 row: age 8" in page
    strokes = [float(piece.split('"')[1]) for piece in page.split("<rect ")[1:]]
    first, last, middle = strokes
    assert last - first > 200 and abs(middle - (first + last) / 2) < 1  # over the whole width
