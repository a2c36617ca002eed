"""How a rehearsal deals its rows: every row to one site, and what cannot be dealt is said before anything starts."""

import json
import tomllib

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedsynth.cli.federation_try import next_command
from fedsynth.data.linked import LinkedSchema, link
from fedsynth.data.linked_tables import Linked
from fedsynth.data.schema import Schema
from fedsynth.deploy.rehearsal import deal, deal_persons, plain_names, write_site
from fedsynth.errors import BadInput
from fedsynth.research.hospital_records import records
from fedsynth.research.hospital_records import schema as hospital_schema


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


def test_the_run_that_is_proposed_on_a_drafted_schema_is_not_refused_for_what_was_inferred(tmp_path):
    drafted = Schema.draft(pd.DataFrame({"age": [20, 31, 64]}))
    words = next_command(tmp_path / "try", tmp_path / "schema.json", drafted, "record").split()
    assert words[words.index("--accept") + 1] == "inferred" and "--trust" in words
    assert "--accept" not in next_command(tmp_path / "try", tmp_path / "s", drafted.made_public(), "client")


def test_a_row_without_a_site_is_not_lost_in_silence():
    frame = pd.DataFrame({"site": ["a", None], "x": [1, 2]})
    with pytest.raises(BadInput, match="1 of 2 rows name no site"):
        deal(frame, "site", None, [])


def test_more_sites_than_clients_are_refused():
    frame = pd.DataFrame({"who": [1, 1, 2], "x": [1, 2, 3]})
    with pytest.raises(BadInput, match="no rows are left for c;"):
        deal(frame, None, "who", ["a", "b", "c"])


def test_persons_of_linked_tables_are_dealt_with_all_their_rows(tmp_path):
    schema, tables = LinkedSchema.from_dict(hospital_schema()["tables"]), records(7, seed=1)
    dealt = deal_persons(schema, tables, ["a", "b"])
    assert {site: len(of["person"]) for site, of in dealt.items()} == {"a": 4, "b": 3}
    for of in dealt.values():
        link(schema, of)  # no row without a parent
    for name, frame in tables.items():
        assert sum(len(of[name]) for of in dealt.values()) == len(frame)
    with pytest.raises(BadInput, match="no persons are left for h; name fewer --sites"):
        deal_persons(schema, tables, list("abcdefgh"))
    (tmp_path / "schema.json").write_text(json.dumps(hospital_schema()))
    write_site(tmp_path / "a", dealt["a"], tmp_path / "schema.json", None, {"unit": "client"})
    again = Linked(Schema.load(tmp_path / "schema.json")).read(tmp_path / "a" / "rows")
    assert {name: len(frame) for name, frame in again.items()} == {k: len(v) for k, v in dealt["a"].items()}
    assert tomllib.loads((tmp_path / "a" / "site.toml").read_text())["data"]["file"] == "rows"
