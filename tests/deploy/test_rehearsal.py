"""How a rehearsal deals its rows: every row to one site, and what cannot be dealt is said before anything starts."""

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedsynth.deploy.rehearsal import deal, plain_names
from fedsynth.errors import BadInput


def test_sites_named_alike_keep_their_rows_apart():
    frame = pd.DataFrame({"site": ["Zürich", "zurich", "Łódź", "Zürich"], "x": [1, 2, 3, 4]})
    dealt = deal(frame, "site", None, [])
    assert {name: part["x"].tolist() for name, part in dealt.items()} == {
        "zurich": [1, 4], "zurich-2": [2], "odz": [3]
    }  # fmt: skip


@given(st.lists(st.text("aA-2 é", max_size=4) | st.text(max_size=50), max_size=8, unique=True))
@example(["a-2", "a", "A"])
def test_any_names_become_as_many_that_certificates_take(names):
    plain = plain_names(names)
    assert len(set(plain)) == len(names)
    assert all(
        0 < len(name) <= 40 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in plain
    )


def test_a_row_without_a_site_is_not_lost_in_silence():
    frame = pd.DataFrame({"site": ["a", None], "x": [1, 2]})
    with pytest.raises(BadInput, match="1 of 2 rows name no site"):
        deal(frame, "site", None, [])


def test_more_sites_than_clients_are_refused():
    frame = pd.DataFrame({"who": [1, 1, 2], "x": [1, 2, 3]})
    with pytest.raises(BadInput, match="no rows are left for c;"):
        deal(frame, None, "who", ["a", "b", "c"])
