"""Train a language recipe on encoded clients whose noise is calibrated for several models together.

As `fedsynth run` does, but for many trainings in one process: stacks have one shape, so that a GPU records a step once.
"""

import time
from collections import deque
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F

from fedsynth.data.clients import Clients, Padded
from fedsynth.data.text import Text
from fedsynth.federation.link import Arrival
from fedsynth.federation.loop import run
from fedsynth.privacy import account
from fedsynth.recipes.budget import cost
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.generator import Generator

RECIPE = recipe_named("dp_fedavg_lm")
MOST_ROWS = 128  # of a client, drawn at random: a public bound that keeps stacks small


class OneShape(InProcess):
    """Stacks of `chunk` clients with `MOST_ROWS` rows each; clients that fill a stack up hold nothing."""

    def next(self):
        job, ids, state = self._queue.popleft()
        stacked = np.concatenate([ids, np.repeat(ids[:1], self._chunk - len(ids))])
        data = self.clients.gather(stacked, self._device)
        data.mask[len(ids) :] = False
        more = MOST_ROWS - data.x.shape[1]
        wide = Padded(F.pad(data.x, (0, 0, 0, more)), F.pad(data.y, (0, more)), F.pad(data.mask, (0, more)))
        messages, _ = job.client_round(state, {}, wide, stacked, self._rng.at("client", state.version))
        return Arrival(ids, messages[: len(ids)], state.version)


@dataclass(frozen=True)
class Trained:
    """A released model, and what it took."""

    generator: Generator
    noise: float
    seconds: float
    losses: tuple[float, ...]
    ends: tuple[torch.Tensor, ...]  # the parameters after each of the last rounds


@cache
def noise_for(schema, clients, settings, epsilon, delta, models):
    """The noise at which so many models together cost epsilon; 0 for none."""
    if epsilon is None:
        return 0.0
    return account.calibrate(lambda noise: cost_of(schema, clients, settings, noise, models), epsilon, delta)


def cost_of(schema, clients, settings, noise, models):
    """What so many models cost, as an event."""
    values = {**RECIPE.values(dict(settings)), "noise_multiplier": noise}
    return account.repeat(cost(RECIPE.build(Task(schema, clients), values)), models)


def train(
    schema,
    clients,
    settings,
    *,
    epsilon,
    delta=1e-5,
    models=1,
    noise=None,
    seed=0,
    device="cpu",
    chunk=512,
    last=1,
):
    """One of `models` models that cost epsilon together, or one with this noise.

    It is the mean of the models after so many of the `last` rounds: each of them is released already, so this is free.
    """
    if noise is None:
        noise = noise_for(schema, len(clients), tuple(sorted(settings.items())), epsilon, delta, models)
    values = {**RECIPE.values(settings), "noise_multiplier": noise}
    algorithm = RECIPE.build(Task(schema, len(clients), private=epsilon is not None), values)
    rng = Rng(seed)
    on_gpu = torch.device(device).type == "cuda"
    link = (
        OneShape(clients, rng, device=device, chunk=min(chunk, len(clients)))
        if on_gpu
        else InProcess(clients, rng)
    )
    losses = []
    ends = deque(maxlen=last)

    def after(state, done):
        losses.append(done.loss)
        ends.append(state.parts["model"].cpu())

    began = time.perf_counter()
    run(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None, after, algorithm.rounds)
    seconds = time.perf_counter() - began
    generator = Generator(schema, RECIPE.name, values, {"model": torch.stack(list(ends)).mean(0)})
    return Trained(generator, noise, seconds, tuple(losses), tuple(ends))


def clients_of(rows_by_user, encode):
    """Encoded clients out of lists of rows, at most `MOST_ROWS` of each drawn at random."""
    draw = np.random.default_rng(1)
    few = [
        [rows[place] for place in np.sort(draw.permutation(len(rows))[:MOST_ROWS])] for rows in rows_by_user
    ]
    x = encode([row for rows in few for row in rows])
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in few])]).astype(np.int64)
    return Clients(x, torch.zeros(len(x), dtype=torch.int64), offsets)


def pieces_by_user(frame, schema):
    """Each user's texts, cut as the schema says."""
    encoding = Text(schema)
    found = {}
    for user, text in zip(frame["user"], frame["text"], strict=True):
        found.setdefault(user, []).extend(piece for piece in encoding.pieces(text) if piece)
    return list(found.values())
