import hashlib
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth.data.clients import Clients, clients_from, encode_clients, image_clients_from, require_several
from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Column, Schema
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

FRAME = pd.DataFrame(
    {"patient id": ["p", "q", "p", "r"], "age": [1, 2, 3, 4], "ill": ["no", "yes", "yes", "no"]}
)
SCHEMA = Schema(
    columns=(Column("age", "integer", min=0, max=9), Column("ill", "binary", categories=("no", "yes"))),
    label="ill",
)


def ragged(sizes):
    rows = sum(sizes)
    x = torch.arange(1.0, rows + 1)[:, None]
    return Clients(x, torch.arange(rows) % 2, np.concatenate([[0], np.cumsum(sizes)]))


def test_clients_by_column_hold_their_own_rows():
    raw = clients_from(FRAME, client_column="patient id")
    clients = encode_clients(raw, SCHEMA)
    assert (len(clients), raw.names, clients.sizes.tolist()) == (3, ("p", "q", "r"), [2, 1, 1])
    assert clients.y.tolist() == [0, 1, 1, 0]
    assert clients.x[:, -1].tolist() == pytest.approx([0.15, 0.35, 0.25, 0.45])


def test_a_client_s_rows_keep_their_order():
    frame = pd.DataFrame(
        {"age": np.tile(np.arange(10), 50), "ill": "no", "id": np.repeat(["b", "a"] * 25, 10)}
    )
    clients = encode_clients(clients_from(frame, client_column="id"), SCHEMA)
    assert clients.x[:, -1].tolist() == pytest.approx(np.tile(np.arange(10) / 10 + 0.05, 50).tolist())


def test_the_client_column_is_taken_out_of_the_table():
    assert "patient id" not in clients_from(FRAME, client_column="patient id").data


def test_a_client_column_that_would_be_synthesised_is_refused():
    patients = Column("patient id", "categorical", categories=("p", "q", "r"))
    schema = Schema(columns=(*SCHEMA.columns, patients), label="ill")
    raw = clients_from(FRAME, client_column="patient id")
    with pytest.raises(BadInput, match="cannot be synthesized"):
        encode_clients(raw, schema)
    assert len(encode_clients(raw, schema.with_client("patient id"))) == 3


def test_simulated_clients_share_out_all_rows():
    frame = pd.concat([FRAME.drop(columns="patient id")] * 25)
    for split in ("uniform", "dirichlet:1", "label", "kmeans", "geometric:0.9"):
        raw = clients_from(frame, clients=4, split=split, label="ill", rng=Rng(3))
        clients = encode_clients(raw, SCHEMA)
        assert clients.sizes.sum() == clients.rows == 100 and len(clients) == 4
        assert sorted(clients.x[:, -1].tolist()) == pytest.approx(sorted([0.15, 0.25, 0.35, 0.45] * 25))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "neither was given"),
        ({"client_column": "patient id", "clients": 3}, "both were given"),
        ({"client_column": "patient_id"}, "did you mean 'patient id'"),
        ({"clients": 3, "split": "label", "label": "il"}, "did you mean 'ill'"),
        ({"clients": 3, "split": "label"}, "needs a label"),
    ],
)
def test_clients_that_cannot_be_made_are_refused(arguments, told):
    with pytest.raises(BadInput, match=told):
        clients_from(FRAME, **arguments)


def test_gathered_rows_are_padded_with_zeros_and_masked():
    padded = ragged([2, 0, 3]).gather([2, 1, 0])
    assert padded.x[..., 0].tolist() == [[3, 4, 5], [0, 0, 0], [1, 2, 0]]
    assert padded.y.tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert padded.mask.tolist() == [[True] * 3, [False] * 3, [True, True, False]]
    assert (padded.x.dtype, padded.y.dtype, padded.mask.dtype) == (torch.float32, torch.int64, torch.bool)


def test_a_client_is_gathered_the_same_alone_and_in_a_cohort():
    clients = ragged([2, 0, 3])
    together, alone = clients.gather([0, 2]), clients.gather([0])
    assert torch.equal(together.x[0, :2], alone.x[0])


@pytest.mark.parametrize("ids", [[], [1]])
def test_an_empty_cohort_or_client_has_one_masked_row(ids):
    padded = ragged([2, 0, 3]).gather(ids)
    assert padded.x.shape == (len(ids), 1, 1) and not padded.mask.any()


def test_clients_without_any_rows_can_be_gathered():
    padded = Clients(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), np.zeros(3, np.int64)).gather(
        [0, 1]
    )
    assert padded.x.shape == (2, 1, 4) and not padded.mask.any()


def test_pooled_rows_are_one_client():
    pooled = ragged([2, 0, 3]).pooled()
    assert (len(pooled), pooled.sizes.tolist()) == (1, [5])


def test_image_bytes_become_numbers_up_to_one():
    images = np.full((4, 2, 2), 255, np.uint8)
    schema = Schema(kind="image", height=2, width=2, channels=1)
    clients = encode_clients(image_clients_from(images, owners=["a", "b", "a", "a"]), schema)
    assert clients.x.dtype == torch.uint8
    padded = clients.gather([0, 1])
    assert padded.x.shape == (2, 3, 1, 2, 2)
    assert padded.x.sum((2, 3, 4)).tolist() == [[4, 4, 4], [4, 0, 0]]


def test_images_need_an_owner_each():
    with pytest.raises(BadInput, match="1 owners for 4 images"):
        image_clients_from(np.zeros((4, 2, 2), np.uint8), owners=["a"])


def test_a_federation_needs_two_clients_with_rows():
    require_several(ragged([1, 1]))
    with pytest.raises(BadInput, match="clients=1"):
        require_several(ragged([2]))
    with pytest.raises(BadInput, match="rows=0"):
        require_several(ragged([0, 0]))


def test_gathering_a_cohort_takes_no_memory_for_the_other_clients():
    count = 1_000_000
    x = torch.zeros(1, 8).expand(2 * count, 8)  # a view: all rows share one
    clients = Clients(x, torch.zeros(1, dtype=torch.int64).expand(2 * count), np.arange(0, 2 * count + 1, 2))
    tracemalloc.start()
    clients.gather([5, 999_999])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < count  # one number a client would be 8 bytes each


def test_a_table_is_kept_without_its_zeros_and_comes_back_whole():
    codes = tuple(f"c{number}" for number in range(900))
    schema = Schema(
        columns=(
            Column("code", "categorical", categories=codes, missing=True),
            Column("age", "integer", min=0, max=99),
        )
    )
    frame = pd.DataFrame({"code": ["c7", None, "c899"], "age": [5, 99, 40], "who": ["b", "a", "a"]})
    clients = encode_clients(clients_from(frame, client_column="who"), schema)
    assert clients.encoded.ones.numel() + clients.encoded.positions.numel() < clients.width
    whole, _ = modality_of(schema).encode(frame.drop(columns="who"))
    order = [0, 1, 2] if clients.sizes.tolist() == [1, 2] else [1, 2, 0]
    assert torch.equal(clients.x, whole[order])
    digest = hashlib.sha256(clients.offsets.tobytes())
    digest.update(clients.x.numpy().tobytes() + clients.y.numpy().tobytes())
    assert clients.fingerprint() == digest.hexdigest()


@pytest.mark.parametrize("kind", ["table", "image", "text", "linked"])
def test_blank_clients_have_as_many_rows_and_nothing_in_them(ten, kind):
    blank = ten[kind].blank()
    assert blank.sizes.tolist() == ten[kind].sizes.tolist() and blank.width == ten[kind].width
    assert not blank.gather([0, 3]).x.any() and not blank.y.any()
