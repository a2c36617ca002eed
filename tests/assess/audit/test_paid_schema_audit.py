"""Neighbours cannot be told apart by the schema that they paid for, types included, beyond its epsilon."""

import json

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.cells import KINDS, read_cells
from fedsynth.data.clients import clients_from
from fedsynth.data.column import Column
from fedsynth.data.declaration import Declared, declared
from fedsynth.data.draft import Wishes, draft_schema
from fedsynth.data.values import UNFIT, fit_of
from fedsynth.errors import BudgetExhausted
from fedsynth.federation.statistics import CellShares
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.error_bounds import bound_from_errors
from fedsynth.rng import Rng
from fedsynth.synthesis.paid_release import clients_with, noise_of
from fedsynth.synthesis.paid_schema import _type_of, _with_places, pay_for_schema

EPSILON, DELTA, DRAWS, PEOPLE = 0.5, 1e-3, 160, 150
NUMBERS = np.arange(PEOPLE)
TABLE = pd.DataFrame(
    {
        "who": NUMBERS,
        "dose": NUMBERS % 8 + 1,
        "answer": NUMBERS % 2,
        "weight": NUMBERS % 8 + 50,
        "visits": NUMBERS % 4,
        "town": np.where(NUMBERS % 2, "north", "south"),
    }
).astype(object)
ONE = {"dose": 3.5, "answer": 7, "weight": None, "visits": "unknown", "town": "the house on the hill"}


def paid(frame, unit):
    raw = clients_from(frame, client_column="who")
    ledger = Ledger(None)
    try:
        schema = pay_for_schema(raw, epsilon=EPSILON, delta=DELTA, ledger=ledger, rng=Rng(), unit=unit)
    except BudgetExhausted as error:
        return str(error)
    return json.dumps(schema.to_dict())


def drafted(frame, unit):
    return json.dumps(draft_schema(frame.infer_objects(), Wishes(client="who")).schema.to_dict())


def with_one(rows):
    return pd.concat([TABLE, pd.DataFrame([{"who": PEOPLE, **ONE}] * rows)])


def distinguishing(outcome, rows, unit, draws):
    """Epsilon's lower bound from guessing by the outcomes that were more frequent with the additional person."""
    added = with_one(rows)
    halves = np.array(
        [[outcome(frame, unit) for _ in range(draws)] for frame in (added, TABLE)], dtype=object
    ).reshape(2, 2, -1)
    return bound_of(*halves)


def bound_of(with_person, without):
    """The guess is made on one half of the outcomes and judged on the other."""
    (chosen_with, with_person), (chosen_without, without) = with_person, without
    guess = {text for text in {*chosen_with} if (chosen_with == text).sum() > (chosen_without == text).sum()}
    false_negatives = sum(text not in guess for text in with_person)
    false_positives = sum(text in guess for text in without)
    return bound_from_errors(false_positives, false_negatives, len(without), len(with_person), DELTA)


@pytest.mark.parametrize(("rows", "unit"), [(1, "record"), (40, "client")])
def test_a_paid_schema_tells_neighbours_apart_by_no_more_than_epsilon(rows, unit):
    assert distinguishing(paid, rows, unit, DRAWS) <= EPSILON


def kinds_of(frame):
    """Codes of the cells of all columns but the owner's, as the question about types takes them."""
    return [read_cells(frame[name]).kinds() for name in frame.columns if name != "who"]


def places_of(frame):
    """The same for the question about what fits, against columns that the table would have."""
    learned = {
        "dose": Column("dose", "integer", min=1, max=15),
        "answer": Column("answer", "categorical", categories=("0", "1")),
        "weight": Column("weight", "integer", min=32, max=63),
        "visits": Column("visits", "integer", min=0, max=3),
        "town": Column("town", "categorical", categories=("north", "south")),
    }
    return [fit_of(column, frame[name]) for name, column in learned.items()]


def read_types(block, noise):
    return str(_type_of(block, noise))


def read_places(block, noise):
    column = Column("town", "categorical", categories=("north", "south"))
    return str(_with_places(Declared(column), block, noise, is_label=False))


@pytest.mark.parametrize(
    ("codes_of", "size", "read"), [(kinds_of, KINDS, read_types), (places_of, UNFIT + 1, read_places)]
)
@pytest.mark.parametrize("rows", [1, 40])
def test_many_draws_of_one_sum_tell_neighbours_apart_by_no_more_than_epsilon(codes_of, size, read, rows):
    """With many draws, because one sum can be noised for all of them at once."""
    draws = 4000
    (noise,) = noise_of(EPSILON, DELTA, (1.0,))
    mechanism = CentralGaussian(Clip(1.0), noise)
    outcomes = []
    for frame in (with_one(rows), TABLE):
        codes = np.stack(codes_of(frame), axis=1)
        columns = codes.shape[1]
        clients = clients_with(
            codes, np.searchsorted(frame["who"].to_numpy(), np.arange(frame["who"].nunique() + 1))
        )
        answers = CellShares(columns, size)(clients.gather(np.arange(len(clients))))
        total = mechanism.privatize(answers, {}, Rng(), np.arange(len(clients))).sum(0)
        noisy, _ = mechanism.estimate(total.repeat(draws), 1.0, {}, Rng())
        blocks = noisy.numpy().reshape(draws, columns, size)
        outcomes.append([" ".join(read(block, noise) for block in draw) for draw in blocks])
    assert bound_of(*np.array(outcomes, dtype=object).reshape(2, 2, -1)) <= EPSILON


def test_types_that_are_read_off_the_rows_are_found_by_the_same_audit():
    assert distinguishing(drafted, 1, "record", DRAWS) > EPSILON


def test_values_of_one_person_alone_show_with_at_most_their_share_of_delta_over_all_columns():
    """Of six columns: a delta that is not shared out over them would show one of them in two draws of three."""
    alone = pd.DataFrame([{"who": 0, **{f"column {place}": f"mine {place}" for place in range(6)}}])
    others = pd.DataFrame([{"who": number} for number in range(1, 30)])
    raw = clients_from(pd.concat([alone, others]), client_column="who")
    types = [declared({"name": f"column {place}", "type": "categorical"}) for place in range(6)]
    shown = 0
    for _ in range(120):
        try:
            pay_for_schema(
                raw, epsilon=1.0, delta=0.4, ledger=Ledger(None), rng=Rng(), unit="record", types=types
            )
            shown += 1
        except BudgetExhausted:
            pass
    assert shown / 120 < 0.2 + 3 * (0.2 * 0.8 / 120) ** 0.5  # half of delta is for this
