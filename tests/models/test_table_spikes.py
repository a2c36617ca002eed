"""Numbers that many rows have exactly become values of their own: found above noise, asked for, released and drawn."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth import Synthesizer, clients_from
from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.errors import BadInput
from fedsynth.models.distribution import Distribution
from fedsynth.models.graphical import JunctionTree, Measured
from fedsynth.models.table_answer import Answer
from fedsynth.models.table_domain import FINEST, Grid, TableDomain, open_spikes
from fedsynth.models.table_plan import Plan
from fedsynth.models.table_question import Question, QuestionForm, unmerged
from fedsynth.models.table_rules import possible_cells
from fedsynth.models.table_spikes import SpikedColumn
from fedsynth.models.table_survey import Survey
from fedsynth.recipes.marginals import CountPrivacy, marginals
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng

SCHEMA = Schema(
    columns=(
        Column("score", "continuous", min=-5.0, max=95.0, decimals=1, missing=True),
        Column("gain", "integer", min=0, max=50_000, scale="log"),
        Column("weight", "integer", min=1, max=5000),
        Column("amount", "continuous", min=0.0, max=100.0),
        Column("age", "integer", min=0, max=99),
        Column("ill", "binary", categories=("no", "yes")),
    ),
    label="ill",
)
SPIKES = ((187, 50, -1), (7688, -1), (999, 0), (), ())
DOMAIN = TableDomain(SCHEMA, spikes=SPIKES)
FORM = QuestionForm(DOMAIN.sizes, 8, 200_000, grids=DOMAIN.grids, spikes=tuple(map(len, SPIKES)))


def test_columns_that_name_their_numbers_have_room_for_spikes_the_smaller_grids_first():
    assert [len(own) for own in open_spikes(SCHEMA, 10**6)] == [32, 32, 32, 0, 0]
    assert [len(own) for own in open_spikes(SCHEMA, 10_000)] == [32, 0, 32, 0, 0]
    assert open_spikes(SCHEMA, 100) == () and TableDomain(SCHEMA).grids == ()
    assert DOMAIN.grids == (1002, 50_002, 5001, 0, 0, 0)
    assert DOMAIN.sizes == (FINEST + 1 + 3 + 1, FINEST + 1 + 2, FINEST + 2, FINEST + 1, 100, 2)


@pytest.mark.parametrize("name", ["score", "gain", "weight"])
def test_a_number_lies_where_the_grid_says(name):
    column = SCHEMA.column(name)
    grid = Grid.of(column)
    numbers = grid.at(np.arange(grid.numbers))
    frame = pd.DataFrame(
        {"score": 1.0, "gain": 1, "weight": 1, "amount": 1.0, "age": 1, "ill": "no"},
        index=range(len(numbers)),
    )
    frame[name] = numbers if name == "score" else numbers.astype(int)
    x, y = Table(SCHEMA).encode(frame)
    place = [one.name for one in SCHEMA.columns].index(name)
    places, codes = DOMAIN.grid_places(x)[place].numpy(), DOMAIN.codes(x, y)[:, place].numpy()
    zero = numbers == 0 if DOMAIN.axes[place].zero is not None else np.zeros(len(numbers), bool)
    assert (places == np.where(zero, grid.numbers, np.arange(grid.numbers))).all()
    cells = DOMAIN.axes[place].grid_cells()[:-1]
    own = np.isin(np.arange(grid.numbers), SPIKES[place])
    assert (cells[zero] == -1).all() and (codes[zero] == FINEST).all()
    assert (codes[~zero & ~own] == cells[~zero & ~own]).all() and (codes[own] >= FINEST).all()


def test_rows_on_another_device_are_read_there():
    x, y = (
        torch.zeros(2, DOMAIN.encoding.width, device="meta"),
        torch.zeros(2, dtype=torch.int64, device="meta"),
    )
    assert DOMAIN.codes(x, y).device == x.device
    assert {places.device for places in DOMAIN.grid_places(x).values()} == {x.device}


def test_spikes_written_into_rows_are_these_numbers_and_are_read_again():
    codes = torch.tensor(
        [[FINEST + 1, FINEST + 1, FINEST], [FINEST + 2, FINEST, FINEST + 1], [FINEST + 4, 3, 5]]
    )
    codes = torch.cat([codes, torch.zeros(3, 3, dtype=torch.int64)], 1)
    x = DOMAIN.rows(codes, Rng(0))
    back = Table(SCHEMA).decode(x, codes[:, -1])
    assert back["score"].tolist()[:2] == [13.7, 0.0] and back["score"].isna().tolist() == [False, False, True]
    assert back["gain"].tolist()[:2] == [7688, 0] and back["weight"].tolist()[:2] == [1000, 1]
    numbers = DOMAIN.numbers(codes.numpy(), Rng(0))
    assert numbers["score"][0] == 13.7 and numbers["gain"][0] == 7688
    again = DOMAIN.codes(x, codes[:, -1])
    assert again[:, :3].tolist() == [
        [FINEST + 1, FINEST + 1, FINEST],
        [FINEST, FINEST, FINEST + 1],
        [FINEST + 4, 3, 5],
    ]


def test_no_spike_comes_of_noise_and_every_large_one_is_found():
    draw, cells = np.random.default_rng(0), np.append(np.repeat(np.arange(128), 100), -1)
    column = Measured((0,), np.full(129 + 8, 1 / 128), 1e6)
    of = SpikedColumn(cells, 129, 8)
    for _ in range(20):
        noise = draw.normal(0, 1e-3, len(cells))
        assert of.spikes(Measured((0,), 1 / 12_800 + noise, 1e6), column) == (-1,) * 8
        heavy = noise.copy()
        heavy[[5, 77]] += 0.02, 0.01
        assert of.spikes(Measured((0,), 1 / 12_800 + heavy, 1e6), column)[:2] == (5, 77)


def test_spikes_travel_with_a_question_and_are_released_with_the_rest():
    question = Question(unmerged(DOMAIN.sizes), ((0,), (12,)), (1.0, 1.0), 0.0, DOMAIN.grids, SPIKES)
    read = FORM.read(FORM.write(question))
    assert read.spikes == SPIKES and read.cells == DOMAIN.sizes[0] + DOMAIN.grids[0]
    tree = JunctionTree.over([(0, 1)], (2, 2))
    fitted = Distribution(
        tree, [np.full((2, 2), 0.25)], [np.arange(2)] * 2, [np.full(2, 0.5)] * 2, (), (0.5, 0.5), ((7, -1),)
    )
    again = Distribution.unpack(fitted.pack())
    assert again.spikes[0] == (7, -1) and again.row_counts == (0.5, 0.5) and again.tree == tree


@pytest.mark.parametrize("spike", [50_001, 2**30])
def test_a_spike_that_is_no_number_of_the_column_is_refused(spike):
    question = Question(
        unmerged(DOMAIN.sizes), ((0,),), (1.0,), 0.0, DOMAIN.grids, (SPIKES[0], (spike, -1), *SPIKES[2:])
    )
    with pytest.raises(BadInput):
        FORM.read(FORM.write(question))


def test_rules_allow_what_a_spike_may_be_as_long_as_it_is_not_known():
    schema = Schema.from_dict({**SCHEMA.to_dict(), "constraints": ["gain <= weight"]})
    unknown = possible_cells(TableDomain(schema, spikes=tuple((-1,) * len(own) for own in SPIKES)), 1, 2)
    known = possible_cells(TableDomain(schema, spikes=SPIKES), 1, 2)
    assert unknown[FINEST + 1].all() and not known[FINEST + 1].any()


@pytest.mark.parametrize(("noise", "asked"), [(0.0, (0, 1, 2)), (5.0, (0, 1, 2)), (10.0, (0, 2)), (20.0, ())])
def test_numbers_are_asked_for_one_by_one_where_public_noise_lets_one_be_seen(noise, asked):
    task = Task(SCHEMA, 5000)
    algorithm = marginals(task, privacy=CountPrivacy(noise_multiplier=noise))
    first = algorithm.learn.form.read(algorithm.learn.first({}, Rng(0))["question"])
    many = len(SCHEMA.columns)
    assert tuple(table[0] - 2 * many for table in first.tables if table[0] >= 2 * many) == asked


def test_a_survey_that_was_not_told_single_numbers_has_no_spikes():
    spiked = tuple((place, SpikedColumn(np.append(np.repeat([0, 1], 500), -1), 2, 3)) for place in (0, 1))
    plan = Plan((5, 5, 2), (2, 2, 0), 2, 3, 1, 32, 10_000, 8, 10_000, 1.0, 1e-4, spiked=spiked)
    plan = replace(plan, blurred=frozenset({1}))
    question = Survey(plan, ()).following()
    assert question.tables == ((0,), (1,), (2,), (6,))
    counts = [np.array([0.5, 0.5, 0, 0, 0])] * 2 + [np.array([0.5, 0.5]), np.full(1001, 1e-3)]
    counts[3][7] = 0.3
    values = np.concatenate([table * scale for table, scale in zip(counts, question.scale, strict=True)])
    survey = Survey(plan, (Answer(question, values, 1e-4, question.scale),))
    assert survey.spikes == ((7, -1, -1), (-1, -1, -1))


@pytest.mark.parametrize("unit", ["client", "record"])
def test_exact_numbers_that_many_rows_have_come_back(unit):
    draw, people = np.random.default_rng(1), 20_000
    ill = draw.random(people) < 0.3
    usual = draw.uniform(0, 95, people).round(1)
    score = np.where(draw.random(people) < 0.4, np.where(ill, 13.7, 42.3), usual)
    frame = pd.DataFrame(
        {
            "score": score,
            "ill": np.where(ill, "yes", "no"),
            "owner": np.arange(people) % 4 if unit == "record" else np.arange(people),
        }
    )
    schema = Schema(columns=(SCHEMA.columns[0], SCHEMA.columns[-1]), label="ill", client="owner")
    clients = clients_from(frame, client_column="owner")
    rows = (
        Synthesizer("marginals", schema, unit=unit, epsilon=1.0, delta=1e-6, seed=0, rounds=4)
        .fit(clients)
        .sample(10_000, seed=0)
    )
    for number, label in ((13.7, "yes"), (42.3, "no")):
        exactly = rows["score"] == number
        assert abs(exactly.mean() - (score == number).mean()) < 0.02
        assert (rows["ill"][exactly] == label).mean() > 0.95
    assert (rows["score"].round(1) == 13.8).mean() < 0.01


def test_noise_draws_no_numbers_that_do_not_stand_out():
    schema = Schema(columns=(Column("weight", "integer", min=1, max=5000), SCHEMA.column("ill")))
    rows = pd.DataFrame({"weight": np.arange(2000, 3000), "ill": ["no", "yes"] * 500})
    synthesizer = Synthesizer("marginals", schema, epsilon=0.3, delta=1e-5, seed=0, most_values=200).fit(rows)
    assert synthesizer.sample(20_000, seed=1)["weight"].value_counts(normalize=True).max() < 0.01
