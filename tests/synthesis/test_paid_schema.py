"""Bounds and categories under noise, and what every later run pays for them."""

import numpy as np
import pandas as pd
import pytest
from dp_accounting import GaussianDpEvent

from fedsynth.data.clients import clients_from, encode_clients
from fedsynth.data.declaration import declared
from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.paid_schema import pay_for_schema
from fedsynth.synthesis.payer import ledger_of
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import ROWS


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    people = np.repeat(np.arange(3000), 2)
    town = np.where(draw.random(6000) < 0.5, "north", "south").astype(object)
    town[0] = "the only house on the hill"
    age = draw.integers(20, 60, 6000)
    age[0] = 119
    return pd.DataFrame(
        {"who": people, "age": age, "town": town, "ill": np.where(draw.random(6000) < 0.3, "yes", "no")}
    )


def paid(rows, ledger, epsilon=2.0, **more):
    raw = clients_from(rows, client_column="who")
    keys = {"label": "ill", "epsilon": epsilon, "delta": 1e-6, "rng": Rng(), **more}
    return pay_for_schema(raw, ledger=ledger, **keys)


def test_bounds_and_categories_come_from_noise_and_nothing_is_inferred(rows):
    schema = paid(rows, Ledger(None))
    assert schema.inferred() == () and set(schema.provenance.values()) == {"paid"}
    assert schema.column("age").type == "integer"
    assert schema.column("age").bounds == (16, 63)  # powers of two around what many hold
    assert schema.column("ill").type == "binary" and schema.column("ill").labels == ("no", "yes")


def test_what_one_unit_alone_holds_is_not_shown(rows):
    schema = paid(rows, Ledger(None))
    assert "the only house on the hill" not in schema.column("town").labels
    assert set(schema.column("town").labels) >= {"north", "south"}


def test_the_ledger_holds_the_stated_budget(rows):
    ledger = Ledger(None)
    paid(rows, ledger, epsilon=1.0)
    assert 0.98 < ledger.epsilon(1e-6) <= 1.0


def test_rows_outside_are_moved_to_the_bound_or_named_other(rows):
    schema = paid(rows, Ledger(None))
    encoded = encode_clients(clients_from(rows, client_column="who"), schema)
    assert encoded.rows == len(rows)


def test_a_run_on_a_paid_schema_pays_for_it_too(rows, tmp_path):
    path = tmp_path / "schema.json"
    schema = paid(rows, Ledger(beside(path)), epsilon=1.0)
    schema.save(path)
    request = Request(schema=str(path), epsilon=4, delta=1e-5, rounds=2, recipe="dpd_fvae", arguments=ROWS)
    made = Synthesizer.of(request, schema).fit(clients_from(rows, client_column="who"))
    assert made.privacy.epsilon <= 4
    assert {"types of columns", "bounds and categories of columns", "class balance"} <= {
        release["what"] for release in made.privacy.releases
    }


def test_a_paid_schema_without_its_ledger_is_refused(rows, tmp_path):
    schema = paid(rows, Ledger(None))
    request = Request(
        schema=str(tmp_path / "schema.json"),
        epsilon=4,
        delta=1e-5,
        rounds=2,
        recipe="dpd_fvae",
        arguments=ROWS,
    )
    with pytest.raises(NotPrivate, match="no ledger beside the schema"):
        Synthesizer.of(request, schema).fit(clients_from(rows, client_column="who"))


def test_where_all_is_declared_there_is_nothing_to_pay_for(rows):
    known = [
        {"name": "age", "type": "integer", "min": 0, "max": 110},
        {"name": "town", "type": "categorical", "categories": ["north", "south"]},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ]
    ledger = Ledger(None)
    with pytest.raises(BadInput, match="nothing to pay for"):
        paid(rows, ledger, types=map(declared, known))
    assert ledger.lines() == []


def test_a_schema_whose_types_were_free_is_no_longer_taken_for_paid(rows, tmp_path):
    path = tmp_path / "schema.json"
    schema = paid(rows, Ledger(None))
    Ledger(beside(path)).append(
        GaussianDpEvent(5.0), what="bounds and categories", unit="client", run="schema"
    )
    with pytest.raises(NotPrivate, match="types of its columns were read without paying"):
        ledger_of(schema, path)
