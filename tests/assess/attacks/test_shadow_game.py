"""Membership inference against a run's own recipe, within a time limit."""

from dataclasses import replace

import numpy as np
import pytest

from fedsynth.assess.attacks import shadow_game
from fedsynth.assess.attacks.shadow_game import ShadowGame
from fedsynth.assess.attacks.table_attacks import Claim
from fedsynth.assess.suite import evaluate
from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import TABLE, make_frame

SCHEMA = Schema.from_dict(TABLE)
SMALL = {"latent": 2, "hidden": (8,), "rounds": 4}
PRIVATE = Request(
    recipe="dpd_fvae",
    epsilon=1.0,
    delta=1e-3,
    clients=40,
    arguments={**SMALL, "rate": 0.5, "noise_multiplier": 3.0},
)
POOLED = Request(
    recipe="central_vae",
    epsilon=1.0,
    delta=1e-3,
    arguments={**SMALL, "records": 400, "batch_size": 100, "noise_multiplier": 3.0},
)


@pytest.fixture(scope="module")
def rows():
    return make_frame(np.arange(400), seed=1).drop(columns="owner")


@pytest.fixture
def swift(monkeypatch):
    """Time is what the test says, in seconds for a shadow of this width."""

    def set_pace(each):
        monkeypatch.setattr(
            shadow_game, "seconds_each", lambda shadows, *_: each(max(shadows.values["hidden"]))
        )

    return set_pace


def test_cohorts_and_batches_keep_their_share_of_the_rows(rows):
    game = ShadowGame(PRIVATE)
    assert game.shadows(SCHEMA, 400, 200).clients == 20
    assert game.shadows(SCHEMA, 400, 10).clients == 10  # no fewer, or nobody hides anybody
    assert game.shadows(SCHEMA, 40, 400).clients == 50  # no more, for time
    pooled = ShadowGame(POOLED).shadows(SCHEMA, 400, 200)
    assert (pooled.clients, pooled.values["records"], pooled.values["batch_size"]) == (1, 200, 50)
    whole = ShadowGame(replace(PRIVATE, arguments={**PRIVATE.arguments, "cohort": 10}))
    assert whole.shadows(SCHEMA, 400, 200).values["cohort"] == 5


def test_noise_rate_and_rounds_are_those_of_the_run(rows):
    made = ShadowGame(PRIVATE).shadows(SCHEMA, 400, 200).values
    assert (made["noise_multiplier"], made["rate"], made["rounds"]) == (3.0, 0.5, 4)


def test_a_private_run_stays_under_its_ceiling_and_says_what_was_done(rows):
    told = []
    game = ShadowGame(PRIVATE, runs=24, size=100, targets=6)
    area, found = game.play(rows, SCHEMA, tell=told.append)
    assert area.value < area.detail["ceiling"]["auc"] < 0.95
    assert not area.detail["above_ceiling"] and not found.detail["above_ceiling"]
    assert (area.detail["runs"], area.detail["clients"], area.detail["narrowed"]) == (24, 10, None)
    assert told[0] == "timing shadow generators" and told[-1] == "shadow generators, 24 of 24"


def test_too_slow_a_model_is_narrowed_and_then_trained_less_often(swift):
    wide = replace(PRIVATE, arguments={**PRIVATE.arguments, "hidden": (64,)})
    game = ShadowGame(wide, minutes=1.0)
    full = game.shadows(SCHEMA, 400, 100)
    swift(lambda width: width / 100)
    assert game._within_limit(full, None, 100)[0].values["hidden"] == (32,)
    swift(lambda width: 1.0)
    shadows, runs, seconds = game._within_limit(full, None, 100)
    assert (shadows.values["hidden"], runs, seconds) == ((8,), 60, 60.0)


def test_what_cannot_be_done_in_time_fails_with_the_minutes_it_would_take(swift, rows):
    swift(lambda width: 30.0)
    scores = ShadowGame(PRIVATE, minutes=1.0).play(rows, SCHEMA)
    assert all("about 16 minutes" in score.failed and "fedsynth audit" in score.failed for score in scores)


def test_a_game_is_read_from_a_run(tmp_path, frame):
    made = Synthesizer("dpd_fvae", SCHEMA, private=False, rounds=2, latent=2, hidden=(8,), batch_size=4)
    made.fit(clients_from(frame, client_column="owner"), folder=tmp_path / "run")
    game = ShadowGame.of_run(tmp_path / "run", frame, minutes=3.0)
    assert game.clients == frame["owner"].nunique() and game.minutes == 3.0
    shadows = game.shadows(SCHEMA, len(frame), len(frame))
    assert shadows.values["rounds"] == 2 and not shadows.private and shadows.ceiling is None


def test_deep_evaluation_plays_the_game_and_adds_its_curve(rows):
    game = ShadowGame(PRIVATE, runs=16, size=60, targets=4)
    plain = SCHEMA.with_label(None)
    test = make_frame(np.arange(200), seed=2).drop(columns="owner")
    found = evaluate(rows, rows, plain, test=test, deep=True, shadows=game, claim=Claim(1.0, 1e-3))
    assert 0 <= found["membership inference: AUC"].value <= 1
    names = [curve["name"] for curve in found.details["attacks"]]
    assert names == ["closest record", "density ratio", "attribute inference", "membership inference"]


def test_without_the_run_the_score_says_what_is_missing(rows):
    found = evaluate(rows[:60], rows[60:120], SCHEMA.with_label(None), deep=True)
    assert "--run RUN" in found["membership inference: AUC"].failed


def test_half_the_rows_are_enough_for_a_small_table(rows):
    game = ShadowGame(PRIVATE, runs=16, targets=4)
    assert game.play(rows[:80], SCHEMA, seed=1)[0].detail["size"] == 40
    assert "need at least" in game.play(rows[:6], SCHEMA)[0].failed
