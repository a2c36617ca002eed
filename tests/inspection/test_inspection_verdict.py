import numpy as np
import pytest
from bars import SCHEMA, asked, bars
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.inspection.auxiliary import Trainer
from fedsynth.inspection.contrast import INTENSITY, PICTURE, column_distances, differences, pair_distances
from fedsynth.inspection.sample import Sample, made_up_clients, pooled
from fedsynth.inspection.selection import Share
from fedsynth.inspection.verdict import Simulation, judge
from fedsynth.rng import Rng


def flat(level, count=4):
    return Sample(
        SCHEMA, images=np.full((count, 8, 8), level, dtype=np.uint8), labels=np.array(["left"] * count)
    )


def test_black_and_white_are_as_far_apart_as_can_be():
    assert differences(flat(0), flat(255)) == {INTENSITY: 1.0, PICTURE: 1.0}
    assert differences(flat(9), flat(9)) == {INTENSITY: 0.0, PICTURE: 0.0}


@given(st.lists(st.floats(0, 0.2), min_size=3, max_size=28), st.floats(0.001, 0.2))
def test_a_threshold_lies_above_what_noise_gives_and_the_tolerance(seen, tolerance):
    null = [{"gap": value} for value in seen]
    (found,) = judge({"gap": 0.5}, null, 8, tolerance)
    assert found.threshold >= np.mean(seen) + tolerance
    assert found.threshold >= found.expected + 3 * found.deviation + tolerance - 1e-12


def test_fewer_simulations_and_more_statistics_ask_for_more():
    null = [{"a": 0.1, "b": 0.1}, {"a": 0.2, "b": 0.2}, {"a": 0.15, "b": 0.15}]
    few = judge({"a": 0.3}, null, 3)[0].threshold
    assert few > judge({"a": 0.3}, null, 9)[0].threshold
    assert judge({"a": 0.3, "b": 0.3}, null, 3)[0].threshold > few


def test_without_a_simulation_nothing_fires():
    (found,) = judge({"gap": 0.9}, [], 0)
    assert found.threshold is None and not found.fires and found.to_dict()["fires"] is False


def test_noise_alone_seldom_passes():
    """Differences of as many normal numbers as there are models, without tolerance: about 4% fire, at most 6%."""
    draw = np.random.default_rng(0)
    fired = 0
    for _ in range(600):
        *null, one, other = draw.normal(0, 0.05, 10)
        pairs = [{"gap": abs(a - b)} for place, a in enumerate(null) for b in null[place + 1 :]]
        fired += judge({"gap": abs(one - other)}, pairs, 8, tolerance=0.0)[0].fires
    assert 6 <= fired <= 36


def test_made_up_clients_are_as_many_as_the_real_and_a_share_holds_rows():
    clients = made_up_clients(flat(7, 20), 200, 0.25, 6, Rng(1))
    assert len(clients) == 200 and set(clients.sizes.tolist()) == {0, 6}
    assert 30 <= (clients.sizes > 0).sum() <= 70


@pytest.mark.recipe
def test_a_simulation_without_a_difference_shows_less_than_a_real_one():
    inspection = asked()
    trainer = Trainer.of(inspection.request, SCHEMA, 60).calibrated(inspection.request.target, 2, [])
    both = bars(0.5)
    sides = [
        Sample(SCHEMA, images=both.images[at], labels=both.labels[at])
        for at in (slice(0, 240), slice(240, 480))
    ]
    null = Simulation(models=4, rows=8, shown=200).no_difference(
        trainer, sides, [Share(0.5, 0.02)] * 2, Rng(4)
    )
    assert len(null) == 6
    assert max(entry[INTENSITY] for entry in null) < 0.3 < differences(*sides)[INTENSITY]
    assert len(pooled(sides)) == 480


def test_a_pair_is_far_apart_where_its_columns_are_not(schema):
    from samples import make_frame

    frame = make_frame(np.arange(400)).drop(columns="owner")
    shuffled = frame.assign(ill=frame["ill"].sample(frac=1, random_state=1).to_numpy())
    one, other = Sample(schema, frame=frame), Sample(schema, frame=shuffled)
    assert column_distances(one, other)["ill"] == 0
    beyond = pair_distances(one, other)
    assert max(beyond, key=lambda pair: beyond[pair]) in {(a, "ill") for a in ("age", "bmi", "sex", "grade")}
