"""Answers for one row: which of a client's rows it is, and that a client without rows answers for none."""

import math

import numpy as np
import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.models.table_domain import TableDomain
from fedsynth.privacy.rappor import Rappor
from fedsynth.privacy.response import Views
from fedsynth.rng import Rng
from fedsynth.training.row_answers import RowAnswers

DOMAIN = TableDomain(
    Schema(
        columns=(Column("first", "categorical", categories=tuple("abcd")), Column("label", "binary")),
        label="label",
    )
)
TRUTH = Rappor(DOMAIN.sizes, math.inf, hashes=1)


def padded(clients):
    most = max(1, *map(len, clients))
    codes = torch.zeros(len(clients), most, 2, dtype=torch.int64)
    mask = torch.zeros(len(clients), most, dtype=torch.bool)
    for client, rows in enumerate(clients):
        for place, row in enumerate(rows):
            codes[client, place], mask[client, place] = torch.tensor(row), True
    x = DOMAIN.rows(codes.reshape(-1, 2), Rng(0)).reshape(len(clients), most, -1)
    return Padded(x, codes[..., 1], mask)


def answered(clients, rng, mechanism=TRUTH, ids=None):
    """The values [clients, columns] that are told."""
    sums = RowAnswers(DOMAIN, mechanism)
    assert not sums.together
    ids = np.arange(len(clients)) if ids is None else ids
    sent = sums.messages(None, {}, padded(clients), ids, {}, rng)
    if isinstance(mechanism, Views):
        return sent.numpy()
    bits = np.unpackbits(sent.numpy(), axis=1, count=int(mechanism.starts[-1]))
    spans = zip(mechanism.patterns, mechanism.starts, mechanism.starts[1:], strict=False)
    return np.stack([(bits[:, a:b] @ each.T).argmax(1) for each, a, b in spans], axis=1)


@pytest.mark.parametrize("seed", [1, None])
def test_the_answer_is_for_one_whole_row_and_each_is_as_likely(seed):
    rows = [[0, 0], [1, 1], [3, 0]]
    told = answered([rows] * 3000, Rng(seed))
    counts = [(told == row).all(1).mean() for row in rows]
    assert sum(counts) == 1 and np.allclose(counts, 1 / 3, atol=0.05)


def test_padding_is_never_answered_for():
    told = answered([[[2, 1]], [[3, 1]] * 9, [[1, 1]] * 2] * 50, Rng(3))
    assert told.tolist() == [[2, 1], [3, 1], [1, 1]] * 50


def test_a_client_without_rows_answers_at_random():
    told = answered([[], [[2, 1]]] * 2000, Rng(1))
    assert (told[1::2] == [2, 1]).all()
    assert np.allclose(np.bincount(told[::2, 0], minlength=4) / 2000, 0.25, atol=0.05)
    views = Views(DOMAIN.sizes, (1,), 1, math.inf)
    cells = answered([[], [[2, 1]]] * 2000, Rng(1), views)
    assert (cells[1::2, -1] == cells[1, -1]).all() and len({*cells[::2, -1].tolist()}) == 8


def test_an_answer_is_the_client_s_own_whoever_is_beside_it():
    clients = [[[0, 0], [1, 1], [3, 0]]] * 6
    whole = answered(clients, Rng(5), Rappor(DOMAIN.sizes, 3.0))
    parts = [
        answered([one], Rng(5), Rappor(DOMAIN.sizes, 3.0), np.array([place]))
        for place, one in enumerate(clients)
    ]
    assert whole.tolist() == np.concatenate(parts).tolist()
    assert len({*map(tuple, whole.tolist())}) > 1
