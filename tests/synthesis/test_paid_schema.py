"""Bounds and categories under noise, and what every later run pays for them."""

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.clients import clients_from, encode_clients
from fedsynth.data.draft import draft_schema
from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.paid_schema import pay_for_schema
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import SMALL


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


def paid(rows, ledger, epsilon=2.0):
    raw = clients_from(rows, client_column="who")
    draft = draft_schema(rows, label="ill", client_column="who")
    return pay_for_schema(raw, draft, epsilon=epsilon, delta=1e-6, ledger=ledger, rng=Rng())


def test_bounds_and_categories_come_from_noise_and_nothing_is_inferred(rows):
    schema = paid(rows, Ledger(None))
    assert schema.inferred() == () and set(schema.provenance.values()) == {"paid"}
    assert schema.column("age").bounds == (16.0, 64.0)  # powers of two around what many hold
    assert schema.column("ill").labels == ("no", "yes", "other")


def test_what_one_unit_alone_holds_is_not_shown(rows):
    schema = paid(rows, Ledger(None))
    assert schema.column("town").labels == ("north", "south", "other")


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
    request = Request(schema=str(path), epsilon=4, delta=1e-5, rounds=2, arguments=SMALL)
    made = Synthesizer.of(request, schema).fit(clients_from(rows, client_column="who"))
    assert made.privacy.epsilon <= 4
    assert {"bounds and categories", "class balance"} <= {
        release["what"] for release in made.privacy.releases
    }


def test_a_paid_schema_without_its_ledger_is_refused(rows, tmp_path):
    schema = paid(rows, Ledger(None))
    request = Request(schema=str(tmp_path / "schema.json"), epsilon=4, delta=1e-5, rounds=2, arguments=SMALL)
    with pytest.raises(NotPrivate, match="no ledger beside the schema"):
        Synthesizer.of(request, schema).fit(clients_from(rows, client_column="who"))


def test_a_public_schema_has_nothing_to_pay_for(rows):
    schema = paid(rows, Ledger(None))
    with pytest.raises(BadInput, match="nothing to pay for"):
        raw = clients_from(rows, client_column="who")
        pay_for_schema(raw, schema, epsilon=1, delta=1e-6, ledger=Ledger(None), rng=Rng())
