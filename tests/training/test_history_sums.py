"""A person's answer never has more than the norm of the clip, however many rows they have and whatever is asked."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsynth.data.clients import Clients
from fedsynth.data.histories import Histories
from fedsynth.data.linked import LinkedSchema, link
from fedsynth.models.table_question import Question
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.local import LocalGaussian
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.histories import HistoryLearning, form_of, plans
from fedsynth.recipes.marginals import Asking, Fitting
from fedsynth.research.hospital_records import records, schema
from fedsynth.rng import Rng
from fedsynth.training.history_sums import HistorySums
from fedsynth.transport.ring import Parties
from noise_scale import fits

PERSONS = 80


@pytest.fixture(scope="module")
def people():
    linked = LinkedSchema.from_dict(schema()["tables"])
    histories = Histories(linked)
    x, y, person = histories.encode(link(linked, records(PERSONS, seed=2)))
    order = np.argsort(person, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(person, minlength=PERSONS))])
    of_views = plans(histories, Asking(rounds=3, pair_rounds=1), Fitting(), PERSONS)
    sums = HistorySums(tuple(map(form_of, of_views)), CentralGaussian(Clip(1.0), 1.0))
    return Clients(x[order], y[order], offsets), sums, HistoryLearning(of_views, sums, 0.0)


def alone(sums, clients, question, person):
    return sums.messages(
        None, {"question": question}, clients.gather([person]), np.array([person]), {}, Rng(0)
    )[0]


def questions(sums, learning, rng):
    """The first question, and some that ask for other tables with other weights."""
    yield learning.first({}, Rng(0))["question"]
    for _ in range(3):
        written = []
        for form in sums.forms:
            maps = tuple(rng.integers(0, max(1, min(size, 6)), size) for size in form.sizes)
            tables, cells = [], 0
            for _ in range(min(form.most_tables, 12)):
                table = tuple(int(c) for c in rng.permutation(len(form.sizes))[: rng.integers(1, 3)])
                cells += Question(maps, (table,), (1.0,)).cells
                if cells > form.most_cells:
                    break
                tables.append(table)
            weights = tuple(float(w) for w in rng.random(len(tables)) + 0.01)
            written.append(form.write(Question(maps, tuple(tables), weights)))
        yield torch.cat(written)


def test_no_person_weighs_more_than_the_clip(people):
    clients, sums, learning = people
    busiest = int(np.argmax(clients.sizes))
    assert clients.sizes[busiest] > 40
    for question in questions(sums, learning, np.random.default_rng(1)):
        for person in (busiest, *range(10)):
            message = alone(sums, clients, question, person)
            assert float(message.square().sum()) <= 1.0
            assert (message / sums.step).frac().abs().max() == 0  # on the grid of the noise


def test_a_person_with_all_views_has_nearly_the_whole_norm_in_tables_of_one_row(people):
    """What a view's rows share is handed out to them to the last step: each table sums to its scale."""
    clients, sums, learning = people
    question = learning.first({}, Rng(0))["question"]
    asked = sums.read(question)
    message = alone(sums, clients, question, int(np.argmax(clients.sizes))).numpy()
    for start, one, scale in zip(sums.starts, asked, sums.scales(asked), strict=True):
        totals = [table.sum() for table in one.split(message[start : start + one.cells])]
        assert np.allclose(totals, scale, atol=2 * sums.step)


def test_the_sum_is_that_of_single_persons(people):
    clients, sums, learning = people
    question = learning.first({}, Rng(0))["question"]
    ids = np.arange(PERSONS)
    whole = sums.messages(None, {"question": question}, clients.gather(ids), ids, {}, Rng(0))[0]
    assert torch.equal(whole, sum(alone(sums, clients, question, person) for person in ids))


def shared_out(people, noise):
    """The sums with noise in shares, one for each person."""
    mechanism = DistributedGaussian(
        Clip(1.0), noise, people[1].cells, Parties(PERSONS, PERSONS), PERSONS, 31, rotate=False, whole=True
    )
    return replace(people[1], mechanism=mechanism)


def steps_of(sums, clients, question, ids, rng):
    """The sum of persons' messages, in grid steps."""
    sent = sums.messages(None, {"question": question}, clients.gather(ids), ids, {}, rng)
    return sums.mechanism.wire(sums.cells).centered(sent.long().sum(0) % 2**31)


def test_a_site_draws_the_noise_of_all_its_persons_at_once_and_no_less_of_it(people):
    sums, ids = shared_out(people, 2.0), np.arange(PERSONS)
    question = people[2].first({}, Rng(0))["question"]
    site = sums.at_site()
    assert site.together and not sums.together
    one, other = (steps_of(site, people[0], question, ids, Rng()) for _ in range(2))
    noise = ((one - other) * sums.mechanism.grid).numpy()[:2000]
    scale = sums.mechanism.share * math.sqrt(2 * PERSONS)
    assert fits(noise, scale)
    assert not fits(noise, scale / math.sqrt(2)) and not fits(
        noise, scale * math.sqrt((PERSONS - 20) / PERSONS)
    )


def test_without_noise_a_site_s_sum_is_that_of_its_persons_one_by_one(people):
    sums, ids = shared_out(people, 0.0), np.arange(PERSONS)
    question = people[2].first({}, Rng(0))["question"]
    each = [steps_of(sums, people[0], question, ids[[person]], Rng(0)) for person in ids]
    assert torch.equal(steps_of(sums.at_site(), people[0], question, ids, Rng(0)), sum(each))


def test_no_person_has_more_grid_steps_than_the_noise_counts_on(people):
    sums, busiest = shared_out(people, 0.0), int(np.argmax(people[0].sizes))
    for question in questions(sums, people[2], np.random.default_rng(2)):
        for person in (busiest, 0, 1):
            steps = steps_of(sums, people[0], question, np.array([person]), Rng(0))
            assert float(steps.square().sum()) <= sums.mechanism.limit


def test_a_persons_steps_use_nearly_all_that_the_noise_counts_on(people):
    """The bound is no bound if nothing is sent: a person with one row in each table has it nearly whole."""
    for sums in (people[1], shared_out(people, 0.0)):
        scales = sums.scales(sums.read(people[2].first({}, Rng(0))["question"]))
        assert 0.999 < sum(float(np.square(scale).sum()) for scale in scales) <= 1.0
        assert all((np.round(scale / sums.step) >= 1).all() for scale in scales)
    assert shared_out(people, 0.0).step == shared_out(people, 0.0).mechanism.grid != people[1].step


def test_persons_who_trust_nobody_send_a_noisy_message_each(people):
    clients, sums, learning = people
    local = replace(sums, mechanism=LocalGaussian(Clip(1.0), 0.0))
    question, ids = learning.first({}, Rng(0))["question"], np.array([3, 4, 9])
    assert not local.together and replace(sums, mechanism=NoPrivacy()).together
    sent = local.messages(None, {"question": question}, clients.gather(ids), ids, {}, Rng(0))
    assert sent.shape == (3, sums.cells) and float(sent.norm(dim=1).max()) <= 1.0
    for row, person in zip(sent, ids, strict=True):
        assert float((row - alone(sums, clients, question, person)).abs().max()) <= 2 * sums.step
    noisy = replace(sums, mechanism=LocalGaussian(Clip(1.0), 2.0))
    one, other = (
        noisy.messages(None, {"question": question}, clients.gather(ids), ids, {}, Rng()) for _ in range(2)
    )
    assert fits(((one - other) / math.sqrt(2)).numpy().ravel()[:3000], 2.0)


def moved(people, rows, rng):
    """How far a person with so many rows, in all views, moves the sum of the others: the largest distance found."""
    clients, sums, learning = people
    sizes = [form.sizes for form in sums.forms]
    views = rng.integers(0, len(sizes), rows)
    codes = np.zeros((rows, clients.x.shape[1]), dtype=np.float32)
    for view, of in enumerate(sizes):
        mine = np.flatnonzero(views == view)
        codes[mine, : len(of)] = np.stack([rng.integers(0, size, len(mine)) for size in of], axis=1)
    x, y = torch.cat([clients.x, torch.from_numpy(codes)]), torch.cat([clients.y, torch.from_numpy(views)])
    more = Clients(x, y, np.append(clients.offsets, len(y)))
    distances = []
    for question in questions(sums, learning, rng):
        with_them, without = (
            sums.messages(None, {"question": question}, more.gather(ids), ids, {}, Rng(0))[0]
            for ids in (np.arange(PERSONS + 1), np.arange(PERSONS))
        )
        distances.append(float((with_them - without).square().sum()))
    return max(distances)


@pytest.mark.parametrize("rows", [0, 1, 2, 3000, 100_000])
def test_a_neighbor_with_any_number_of_rows_moves_the_sum_by_at_most_the_clip(people, rows):
    distance = moved(people, rows, np.random.default_rng(3))
    assert distance <= 1.0 and (distance == 0) == (rows == 0)


@pytest.mark.parametrize("rows", [2, 100])
def test_the_search_finds_a_person_that_weighs_once_a_row(people, rows, monkeypatch):
    monkeypatch.setattr(
        "fedsynth.training.history_sums._up_to", lambda number, rows, steps: number[:, None] * steps
    )
    assert moved(people, rows=10 * rows, rng=np.random.default_rng(3)) > 1.0
