"""What a client sends of its rows: never longer than the clip, a client weighs as one, records are counted exactly."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.data.clients import Padded
from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.models.marginals import MarginalModel
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_question import ClientCells, Question, QuestionForm, unmerged
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip, clip_l2, to_grid
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.local import LocalGaussian
from fedsynth.rng import Rng
from fedsynth.training import table_sums
from fedsynth.training.table_sums import TableSums
from fedsynth.transport.ring import Parties
from noise_scale import fits

DOMAIN = TableDomain(
    Schema(
        columns=(
            Column("first", "categorical", categories=tuple("abc")),
            Column("second", "integer", min=0, max=3, missing=True),
            Column("label", "binary"),
        ),
        label="label",
    )
)
FORM = QuestionForm(DOMAIN.sizes, 8, 100)
MODEL = MarginalModel(DOMAIN, FORM)
PAIRS = Question(unmerged(DOMAIN.sizes), ((0, 1), (0, 2), (1, 2)), (1.0, 2.0, 2.0))
CENTRAL = TableSums(DOMAIN, FORM, CentralGaussian(Clip(1.0), 1.0))
QUIET = DistributedGaussian(
    Clip(1.0), 0.0, FORM.most_cells, Parties(2, 2), contributions=1000, bits=31, rotate=False,
    unit="record", whole=True,
)  # fmt: skip
RECORDS = TableSums(DOMAIN, FORM, QUIET, "record")
TABLES = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), (2, 1))


def padded(codes: list[list[list[int]]]) -> Padded:
    """Clients with rows of these values."""
    most = max(1, *map(len, codes))
    rows = torch.zeros(len(codes), most, 3, dtype=torch.int64)
    mask = torch.zeros(len(codes), most, dtype=torch.bool)
    for client, values in enumerate(codes):
        for place, row in enumerate(values):
            rows[client, place], mask[client, place] = torch.tensor(row), True
    x = DOMAIN.rows(rows.reshape(-1, 3), Rng(0)).reshape(len(codes), most, -1)
    return Padded(x, rows[..., 2], mask)


def sent(sums: TableSums, codes: list[list[list[int]]], question: Question = PAIRS) -> torch.Tensor:
    ids = np.arange(len(codes))
    return sums.messages(MODEL, {"question": FORM.write(question)}, padded(codes), ids, {}, Rng(1))


def a_client(draw: np.random.Generator) -> list[list[int]]:
    return [[int(draw.integers(size)) for size in DOMAIN.sizes] for _ in range(draw.integers(0, 6))]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(TABLES), st.floats(2.0**-20, 2.0**20, width=32)), min_size=1, max_size=4
    ),
    st.integers(0, 2**32 - 1),
)
def test_no_unit_moves_any_answer_by_more_than_the_clip(tables, seed):
    """By search over questions and rows, with an empty neighbour: for clients and for single records."""
    draw = np.random.default_rng(seed)
    question = Question(unmerged(DOMAIN.sizes), *zip(*tables, strict=True))
    client = a_client(draw)
    alone = sent(CENTRAL, [client], question)
    assert float(alone.norm()) <= 1.0
    record = [[int(draw.integers(size)) for size in DOMAIN.sizes]]
    with_it, without = (sent(RECORDS, [rows], question).double() for rows in (client + record, client))
    moved = QUIET.wire(FORM.most_cells).centered((with_it - without)[0].long())
    assert float(moved.square().sum()) <= QUIET.limit <= QUIET.steps**2


def test_a_table_left_out_of_the_scale_is_found(monkeypatch):
    """The planted bug: as if the last table cost nothing. A record's answer is then longer than the clip."""
    short = property(lambda question: np.asarray(question.weights) / np.linalg.norm(question.weights[:-1]))
    monkeypatch.setattr(Question, "scale", short)
    moved = sent(RECORDS, [[[0, 0, 0]]])[0].double()
    assert float(moved.square().sum()) > QUIET.limit
    assert float(sent(CENTRAL, [[[0, 0, 0]]]).norm()) <= 1.0  # of a client the clip holds whatever the scale


def test_a_client_with_many_rows_weighs_as_one():
    once, often = sent(CENTRAL, [[[0, 1, 1]]]), sent(CENTRAL, [[[0, 1, 1]] * 7])
    assert torch.equal(once, often) and float(once.norm()) > 0.999
    half = sent(CENTRAL, [[[0, 1, 1], [2, 3, 0]]])
    other = sent(CENTRAL, [[[2, 3, 0]]])
    assert torch.allclose(half, (once + other) / 2, atol=1e-5)


ABOUT = ClientCells()
WITH_ABOUT = QuestionForm(DOMAIN.sizes, 8, 100 + ABOUT.size, ABOUT)


def told(codes: list[list[list[int]]], row_weight: float, form: QuestionForm = WITH_ABOUT) -> torch.Tensor:
    sums = replace(CENTRAL, form=form)
    vector = form.write(replace(PAIRS, row_weight=row_weight))
    return sums.messages(
        MODEL, {"question": vector}, padded(codes), np.arange(len(codes)), {}, Rng(1)
    ).double()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 2.0**20, width=32))
def test_no_client_moves_a_sum_over_rows_by_more_than_the_clip(seed, row_weight):
    """Whatever a server lets a row add, and however many rows a client has."""
    client = a_client(np.random.default_rng(seed))
    assert float(told([client * 5], row_weight).norm()) <= 1.0
    assert float(told([client * 5], row_weight, FORM).norm()) <= 1.0


def test_a_client_counted_by_rows_is_found(monkeypatch):
    """The planted bug: each row adds its whole share, and nothing cuts the sum. It is longer than the clip."""
    monkeypatch.setattr(CentralGaussian, "privatize", lambda self, x, *rest: x)
    honest = told([[[0, 1, 1]] * 40], 0.1, FORM)
    assert float(honest.norm()) < 1.0 + 1e-6
    monkeypatch.setattr(table_sums, "_lengths", lambda counts, scale: counts.new_zeros(len(counts)))
    assert float(torch.linalg.vector_norm(told([[[0, 1, 1]] * 40], 0.1, FORM))) > 3.9


SHARED = DistributedGaussian(
    Clip(1.0), 0.0, WITH_ABOUT.most_cells, Parties(300, 300), contributions=300, bits=31, rotate=False
)
MESSAGES = {
    "local": replace(CENTRAL, form=WITH_ABOUT, mechanism=LocalGaussian(Clip(1.0), 2.0)),
    "distributed": replace(CENTRAL, form=WITH_ABOUT, mechanism=replace(SHARED, noise_multiplier=2.0)),
    "distributed, pooled": replace(CENTRAL, form=WITH_ABOUT, mechanism=SHARED).at_site(),
    "central": replace(CENTRAL, form=WITH_ABOUT),
}


WEIGHED = st.tuples(st.sampled_from(TABLES), st.floats(2.0**-9, 2.0**9, width=32))


def of_company(
    sums: TableSums, codes: list[list[list[int]]], ids: np.ndarray, question: Question
) -> torch.Tensor:
    """What clients with these numbers send."""
    vector = WITH_ABOUT.write(question)
    return sums.messages(MODEL, {"question": vector}, padded(codes), ids, {}, Rng(1))


@pytest.mark.parametrize("way", MESSAGES)
@settings(max_examples=40, deadline=None)
@given(
    st.lists(WEIGHED, min_size=1, max_size=6, unique_by=lambda weighed: weighed[0]),
    st.sampled_from([0.0, 2.0**-10, 0.03, 0.1, 0.37, 2.0]),
    st.integers(0, 2**32 - 1),
)
def test_a_client_s_message_is_the_same_to_the_bit_in_any_company(way, tables, row_weight, seed):
    """Alone or beside clients with few rows or many: so one client moves a sum by its own message and nothing else."""
    draw, sums = np.random.default_rng(seed), MESSAGES[way]
    question = Question(unmerged(DOMAIN.sizes), *zip(*tables, strict=True), row_weight=row_weight)
    clients = [a_client(draw) * int(draw.choice([1, 1, 3, 40])) for _ in range(draw.integers(2, 30))]
    ids = draw.permutation(1000)[: len(clients)]
    alone = [of_company(sums, [one], ids[[place]], question) for place, one in enumerate(clients)]
    for company in (np.arange(len(clients)), draw.permutation(len(clients))[: len(clients) // 2 + 1]):
        sent = of_company(sums, [clients[place] for place in company], ids[company], question)
        if sums.together:  # sums on a grid are exact
            apart = sent.double() - sum(alone[place].double() for place in company)
            assert float((apart % (2.0**31 if "pooled" in way else 2.0**40)).abs().max()) == 0
        else:
            assert all(torch.equal(row, alone[place][0]) for row, place in zip(sent, company, strict=True))


def test_a_length_that_depends_on_padding_is_found(monkeypatch):
    """The planted bug: lengths as one sum over padded rows in float32, whose order depends on the company."""
    question = Question(unmerged(DOMAIN.sizes), TABLES[:6], (1.0, 3.0, 5.0, 7.0, 11.0, 13.0), row_weight=2.0)

    def differ() -> int:
        draw, different = np.random.default_rng(6), 0
        for _ in range(20):
            clients = [a_client(draw) * int(draw.integers(1, 40)) for _ in range(20)]
            together = of_company(MESSAGES["local"], clients, np.arange(20), question)
            for place, one in enumerate(clients):
                alone = of_company(MESSAGES["local"], [one], np.array([place]), question)
                different += not torch.equal(alone[0], together[place])
        return different

    assert differ() == 0
    monkeypatch.setattr(
        table_sums,
        "_lengths",
        lambda counts, scale: (counts * scale[:, None]).float().flatten(1).norm(dim=1).double(),
    )
    assert differ() > 0


def test_nothing_is_left_for_the_clip_to_cut(monkeypatch):
    """Before it is clipped no message is so long that clipping changes it; and none is much shorter than it may be."""
    longest = []

    def clipped(self, x):
        longest.append(max(sum(Fraction(number) ** 2 for number in row) for row in x.tolist()))
        assert float(longest[-1]) ** 0.5 <= 1 - 2.0**-21 and torch.equal(clip_l2(x, 1.0), x)
        return to_grid(x, self.step)

    monkeypatch.setattr(Clip, "apply_on_grid", clipped)
    draw = np.random.default_rng(5)
    for row_weight in (0.0, 0.01, 0.3, 7.0):
        for _ in range(30):
            tables = tuple(TABLES[place] for place in draw.permutation(len(TABLES))[: draw.integers(1, 8)])
            weights = tuple(float(np.float32(weight)) for weight in 2 ** draw.uniform(-9, 9, len(tables)))
            question = Question(unmerged(DOMAIN.sizes), tables, weights, row_weight)
            codes = [a_client(draw) * 7 for _ in range(5)]
            of_company(MESSAGES["central"], codes, np.arange(5), question)
    assert max(longest) > (1 - 2.0**-19) ** 2


def test_a_site_draws_the_noise_of_all_its_clients_at_once_and_no_less_of_it():
    noisy = replace(SHARED, noise_multiplier=2.0)
    site, codes = replace(CENTRAL, form=WITH_ABOUT, mechanism=noisy).at_site(), [[[0, 1, 1]]] * 200
    assert site.together
    one, other = (
        noisy.wire(WITH_ABOUT.most_cells).centered(
            site.messages(
                MODEL, {"question": WITH_ABOUT.write(PAIRS)}, padded(codes), np.arange(200), {}, Rng()
            )
            .long()
            .sum(0)
        )
        for _ in range(2)
    )
    noise, scale = ((one - other) * noisy.grid).numpy(), noisy.share * np.sqrt(2 * 200)
    assert fits(noise, scale) and not fits(noise, scale / 2) and not fits(noise, scale * 1.5)


def test_a_site_s_sum_is_that_of_its_clients_messages_one_by_one():
    """Without noise: only what is not zero is rounded at a site, to the same bits."""
    each = replace(CENTRAL, form=WITH_ABOUT, mechanism=SHARED)
    draw, ids = np.random.default_rng(8), np.arange(60)
    codes = [a_client(draw) * int(draw.integers(1, 9)) for _ in ids]
    for row_weight in (0.0, 0.02):
        question = replace(PAIRS, row_weight=row_weight)
        messages, total = (of_company(sums, codes, ids, question) for sums in (each, each.at_site()))
        assert messages.shape[0] == 60 and total.shape[0] == 1
        assert torch.equal(messages.long().sum(0) % 2**31, total[0].long())


def test_only_shares_of_noise_without_a_coin_are_drawn_as_one():
    coin = replace(SHARED, noise_multiplier=2.0, coin=0.5)
    assert not replace(CENTRAL, form=WITH_ABOUT, mechanism=coin).at_site().together
    assert not MESSAGES["local"].at_site().together and not RECORDS.at_site().together


def test_rows_weigh_alike_until_the_clip_is_reached():
    tables = PAIRS.cells
    once, thrice = (told([[[0, 1, 1]] * count], 0.25)[0, :tables] for count in (1, 3))
    assert torch.allclose(thrice, 3 * once, atol=1e-5)
    many, more = (told([[[0, 1, 1]] * count], 0.25)[0, :tables] for count in (10, 20))
    assert torch.allclose(many, more, atol=1e-5)
    assert float(many.norm()) == pytest.approx(ABOUT.rest, abs=1e-4)


def test_a_client_says_how_many_rows_it_has_and_how_long_their_sum_is():
    about = told([[[0, 1, 1]] * 4, [[0, 1, 1], [2, 3, 0]], []], 0.0)[0, WITH_ABOUT.table_cells :]
    rows, lengths = ABOUT.split(about.numpy())
    assert rows[:5].round(3).tolist() == [0, 1, 0, 1, 0]
    long, short = 4.0, float(np.sqrt(2))  # rows that are alike, and rows that have nothing in common
    ends = ABOUT.lengths
    assert np.flatnonzero(lengths > 0.5).tolist() == [
        int(np.searchsorted(ends, end)) for end in (short, long)
    ]


def test_an_answer_holds_the_shares_of_rows_in_each_cell():
    answer = sent(CENTRAL, [[[0, 1, 1], [0, 2, 1]], [[2, 4, 0]]])[0, : PAIRS.cells].numpy()
    first, second, third = (
        values / scale for values, scale in zip(PAIRS.split(answer), PAIRS.scale, strict=True)
    )
    assert np.allclose([first[0, 1], first[0, 2], first[2, 4]], [0.5, 0.5, 1.0], atol=1e-5)
    assert np.allclose([second[0, 1], second[2, 0], third.sum()], [1.0, 1.0, 2.0], atol=1e-5)
    assert first.sum() == pytest.approx(2, abs=1e-4)


def test_clients_added_up_at_once_are_the_sum_of_their_messages():
    draw = np.random.default_rng(3)
    clients = [a_client(draw) for _ in range(9)]
    each = sum(sent(CENTRAL, [client]) for client in clients)
    assert torch.equal(sent(CENTRAL, clients), each)


@pytest.mark.parametrize("sums", [CENTRAL, RECORDS], ids=["client", "record"])
@pytest.mark.parametrize("at_once", [1, 7, 24])
def test_rows_are_counted_once_however_many_are_counted_at_a_time(sums, at_once, monkeypatch):
    draw = np.random.default_rng(4)
    clients = [a_client(draw) for _ in range(9)]
    whole = sent(sums, clients)
    monkeypatch.setattr(table_sums, "_AT_ONCE", at_once)
    assert torch.equal(sent(sums, clients), whole)


def test_all_rows_count_in_a_question_of_one_table():
    single = Question(unmerged(DOMAIN.sizes), ((0,),), (1.0,))
    assert sent(CENTRAL, [[[0, 0, 0], [1, 0, 0]]], single)[0, :3].numpy() == pytest.approx(
        [0.5, 0.5, 0], abs=1e-5
    )


def test_a_row_alone_has_the_whole_norm_that_tables_have():
    assert float(told([[[0, 1, 1]]], 1.0)[0, : PAIRS.cells].norm()) == pytest.approx(ABOUT.rest, abs=1e-4)
    assert CENTRAL.steps == float("inf") and RECORDS.steps == QUIET.steps


def test_an_empty_client_sends_nothing():
    assert float(sent(CENTRAL, [[]]).abs().max()) == 0.0
    assert int(sent(RECORDS, [[]]).abs().max()) == 0


def test_who_adds_noise_sends_a_message_each():
    local = replace(CENTRAL, mechanism=LocalGaussian(Clip(1.0), 1.0))
    assert not local.together and CENTRAL.together and not RECORDS.together
    messages = sent(local, [[[0, 0, 0]], [[1, 1, 1]]])
    assert messages.shape == (2, 100) and 0.7 < float(messages.std()) < 1.3


def test_records_are_counted_exactly_on_the_grid():
    rows = [[0, 1, 1]] * 5 + [[2, 4, 0]] * 3
    integers = sent(RECORDS, [rows, [[0, 1, 1]]])
    steps = np.floor(PAIRS.scale * QUIET.steps)
    assert integers.dtype == torch.int32
    counts = [
        values / step
        for values, step in zip(PAIRS.split(integers[0, : PAIRS.cells].numpy()), steps, strict=True)
    ]
    assert counts[0][0, 1] == counts[1][0, 1] == 5 and counts[2][4, 0] == 3
    assert all(table.sum() == 8 for table in counts)
    mean, _ = QUIET.estimate(integers.long().sum(0), 1.0, {}, Rng(0))
    scale = RECORDS.scale(PAIRS)
    assert PAIRS.split(mean[: PAIRS.cells].numpy())[0][0, 1] / scale[0] == pytest.approx(6, rel=1e-12)


def test_a_site_adds_its_share_of_the_noise():
    noisy = replace(RECORDS, mechanism=replace(QUIET, noise_multiplier=2.0))
    mechanism = noisy.mechanism
    integers = sent(noisy, [[[0, 0, 0]]])
    noise = mechanism.wire(100).centered(integers[0].long()).std() * mechanism.grid
    assert 0.7 * mechanism.share < float(noise) < 1.3 * mechanism.share


@pytest.mark.parametrize("sums", [CENTRAL, RECORDS], ids=["client", "record"])
def test_a_question_that_does_not_fit_is_not_answered(sums):
    vector = FORM.write(PAIRS)
    vector[0] = 99
    with pytest.raises(BadInput, match="99 tables"):
        sums.messages(MODEL, {"question": vector}, padded([[[0, 0, 0]]]), np.arange(1), {}, Rng(1))
