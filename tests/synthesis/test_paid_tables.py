"""Linked tables that persons pay for: found by names, one vote a person, and nobody's number of rows shows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.linked_draft import links_by_name
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis import paid_tables
from fedsynth.synthesis.paid_tables import pay_for_tables

PERSONS = 400


def hospital(busiest: int) -> dict[str, pd.DataFrame]:
    """Persons with two or three visits each, but for one that has very many."""
    visits = np.where(np.arange(PERSONS) % 2, 2, 3)
    visits[0] = busiest
    owner = np.repeat(np.arange(PERSONS), visits)
    return {
        "person": pd.DataFrame(
            {"person id": np.arange(PERSONS), "sex": np.array(["F", "M"])[np.arange(PERSONS) % 2]}
        ),
        "visit": pd.DataFrame(
            {"person id": owner, "day": [f"2020-01-{1 + row % 28:02d}" for row in range(len(owner))]}
        ),
    }


def paid(tmp_path, busiest: int, name: str = "ledger.jsonl"):
    frames = {table: frame.astype(str) for table, frame in hospital(busiest).items()}
    ledger = Ledger(tmp_path / name)
    return pay_for_tables(frames, epsilon=20, delta=1e-3, ledger=ledger, rng=Rng(1)).schema, ledger


def lone_persons_show(tmp_path) -> bool:
    """Whether a bound on children follows the one person that has very many."""
    return any(paid(tmp_path, 100, f"{draw}.jsonl")[0].tables[1].most > 16 for draw in range(1))


def test_tables_are_learned_and_every_release_is_in_the_ledger(tmp_path):
    schema, ledger = paid(tmp_path, 3)
    person, visit = schema.tables
    assert (visit.parent, visit.key, visit.order) == ("person", "person id", "day")
    assert person.schema.column("sex").categories == ("F", "M")
    assert schema.paid() == ("person.sex", "visit.day") and not schema.inferred()
    assert {line.unit for line in ledger.lines()} == {"client"}
    assert ledger.epsilon(1e-3) <= 20


def test_the_bound_on_children_does_not_follow_one_person(tmp_path):
    assert not lone_persons_show(tmp_path)


def test_a_maximum_without_noise_is_found(tmp_path, monkeypatch):
    def leaking(raw, **words):
        schema = pay(raw, **words)
        return replace(
            schema,
            columns=tuple(
                replace(c, max=int(raw.data[c.name].astype(int).max())) if c.name.endswith("count") else c
                for c in schema.columns
            ),
        )

    pay = paid_tables.pay_for_schema
    monkeypatch.setattr(paid_tables, "pay_for_schema", leaking)
    assert lone_persons_show(tmp_path)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"a": ["x"], "b": ["y"]}, "2 tables"),
        (
            {"a": ["id"], "b": ["id", "a id"], "c": ["id", "a id"], "d": ["b id", "c id"]},
            "names rows of b and c",
        ),
    ],
)
def test_links_that_names_do_not_tell_are_refused(columns, sentence):
    with pytest.raises(BadInput, match=sentence):
        links_by_name(columns)
