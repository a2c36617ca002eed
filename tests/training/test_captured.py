"""What is laid out for recorded steps is what each step would have taken by itself."""

import numpy as np
import pytest
import torch

from fedsynth.models.model import initialise
from fedsynth.rng import Rng
from fedsynth.training.captured import BatchBuffer, Draws, Tapes, stacked, steps_at_once
from fedsynth.training.optimizer import Adam
from fedsynth.training.plan import Phase, drawn_ahead, take, train
from fedsynth.training.rule import Epochs

STEPS, CLIENTS, BATCH = 5, 2, 3
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def drawn(ten):
    data, ids, rng = ten["table"].gather([3, 9]), np.array([3, 9]), Rng(4)
    drawing = Epochs(2, BATCH).drawing(data.mask, ids, rng)
    return data, drawn_ahead(Tapes(), drawing, rng.at("train").keys(ids), (2,)), ids, rng


def test_a_short_batch_is_filled_up_with_empty_places():
    whole = stacked([torch.ones(CLIENTS, BATCH, 2), torch.ones(CLIENTS, 1, 2)], BATCH)
    assert whole.shape == (2, CLIENTS, BATCH, 2)
    assert whole[0].sum() == 12 and whole[1, :, 0].sum() == 4 and whole[1, :, 1:].sum() == 0


def test_steps_find_their_batches_in_turn(drawn):
    data, draws, ids, rng = drawn
    stage, done = BatchBuffer(data.x, 2, draws), 0
    rows = list(Epochs(2, BATCH).batches(data.mask, ids, rng))
    assert len(rows) == len(draws.index) > 2
    while done < len(rows):
        for step in range(done, done + stage.fill(data, draws, done)):
            batch, noise = stage.batch()
            plain = take(data, rows[step].index, rows[step].weight)
            width = plain["y"].shape[1]
            assert all(torch.equal(batch[name][:, :width], plain[name]) for name in plain)
            assert not batch["weight"][:, width:].any() and torch.equal(noise, draws.noise[step])
            done += 1


def test_room_for_steps_is_bounded_and_a_power_of_two(monkeypatch):
    index = torch.zeros(5, 2, 4, dtype=torch.int64)
    draws = Draws(index, index.bool(), torch.zeros(5, 2, 4, 1))
    x = torch.zeros(2, 9, 6)
    assert steps_at_once(x, draws) == 8
    monkeypatch.setattr("fedsynth.training.captured._STAGE_BYTES", 3 * 2 * 4 * 4 * (6 + 1 + 3))
    assert steps_at_once(x, draws) == 2


@on_gpu
@pytest.mark.parametrize("epochs", [1, 3])
def test_recorded_steps_are_those_of_a_cpu(build, ten, epochs):
    model, ids = build("fvae", private=False).model, np.array([3, 4, 9])
    phase = Phase("elbo", dict.fromkeys(model.parts, Adam(0.01, stability=1e-3)), Epochs(epochs, 4))
    start, results = initialise(model, Rng(0)), []
    for device in (
        "cpu",
        "cuda",
        "cuda",
        "cuda",
    ):  # draws are recorded the second time, and replayed the third
        params = {name: flat.to(device).expand(3, -1) for name, flat in start.items()}
        done = train(model, phase, params, {}, ten["table"].gather(ids, device), ids, Rng(1))
        results.append({name: flat.cpu() for name, flat in done.params.items()})
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=1e-4, atol=1e-5)
