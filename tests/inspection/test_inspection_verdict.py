import numpy as np
import pytest
from bars import SCHEMA, asked, bars
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.errors import BadInput
from fedsynth.inspection.auxiliary import Trainer
from fedsynth.inspection.contrast import INTENSITY, PICTURE, column_distances, differences, pair_distances
from fedsynth.inspection.sample import Sample, made_up_clients, pooled
from fedsynth.inspection.selection import Share
from fedsynth.inspection.verdict import Simulation, answered, judge, needed
from fedsynth.rng import Rng


def flat(level, count=4):
    return Sample(SCHEMA, (np.full((count, 8, 8), level, dtype=np.uint8), np.array(["left"] * count)))


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
    sides = [Sample(SCHEMA, (both.data[0][at], both.data[1][at])) for at in (slice(0, 240), slice(240, 480))]
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
    one, other = Sample(schema, frame), Sample(schema, shuffled)
    assert column_distances(one, other)["ill"] == 0
    beyond = pair_distances(one, other)
    assert max(beyond, key=lambda pair: beyond[pair]) in {(a, "ill") for a in ("age", "bmi", "sex", "grade")}


def test_a_threshold_beyond_what_matters_is_no_no():
    null = [{"gap": value} for value in (0.1, 0.5, 0.9, 0.2, 0.7, 0.3)]
    (found,) = judge({"gap": 0.4}, null, 4)
    assert found.threshold > 1 and found.answer is None and answered([found]) is None
    (seen,) = judge({"gap": 0.9}, [{"gap": value} for value in (0.1, 0.11, 0.12)], 4)
    assert seen.answer is True and answered([found, seen]) is True
    (close,) = judge({"gap": 0.1}, [{"gap": value} for value in (0.1, 0.11, 0.12)], 4)
    assert close.answer is False and answered([close, found]) is None and answered([close]) is False


def test_what_would_be_needed_is_told():
    wild = [{"gap": value} for value in (0.1, 0.5, 0.9, 0.2, 0.7, 0.3)]
    assert "more clients" in needed(judge({"gap": 0.4}, wild, 4), wild, 4)
    close = [{"gap": value} for value in (0.1, 0.2, 0.15)]
    assert needed(judge({"gap": 0.1}, close, 8), close, 8) == ""
    assert "models = 8" in needed(judge({"gap": 0.1}, [], 0), [], 0)


@pytest.mark.parametrize("models", [1, 2, 3])
def test_too_few_simulated_models_are_refused(models):
    with pytest.raises(BadInput, match=f"models={models}: .* set 8, or 0"):
        Simulation(models=models)
