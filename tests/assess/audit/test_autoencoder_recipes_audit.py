"""The recipes fed_vae and dp_fed_wae under worst-case clients: claims hold, and planted bugs are found."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent
from worst_case import SOUND, TWICE, claim, proven

from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.privacy.clip import Clip, clip_l2
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from samples import TABLE

SCHEMA = Schema.from_dict(TABLE)
CLIENTS = 300  # worst-case ones at once: each along coordinates of its own
REPEATS = 110


class WholeBlocks(Clip):
    """A planted bug: each class's decoder is clipped to S, not to S / sqrt(C)."""

    def apply(self, x):
        parts = torch.split(x, [size for size, _ in self.blocks], dim=1)
        return torch.cat([clip_l2(part, self.bound) for part in parts], dim=1)


def fed_vae():
    recipe = recipe_named("fed_vae")
    task = recipe.task(SCHEMA, 10, private=True, unit=None, trust=None, transport=None)
    small = {
        "hidden": (16,),
        "latent": 4,
        "rounds": 1,
        "rate": 1.0,
        "noise_multiplier": 1.0,
        "report": 0.01,
    }
    return recipe.build(task, recipe.values(small)).mechanism


def attempts(mechanism):
    """Clients that try to send ten times the bound in every decoder at once [clients, dim], and how to find them."""
    decoders = mechanism.clip.blocks[:-1]  # the last block is the loss
    starts = np.cumsum([0, *(size for size, _ in decoders)])[:-1]
    assert len(decoders) == 2 and min(size for size, _ in decoders) > CLIENTS
    vectors = torch.zeros(CLIENTS, sum(size for size, _ in mechanism.clip.blocks))
    places = torch.from_numpy(starts) + torch.arange(CLIENTS)[:, None]  # [clients, decoders]
    vectors[torch.arange(CLIENTS)[:, None], places] = 10.0 * mechanism.clip.bound
    return vectors, places, torch.tensor([share for _, share in decoders], dtype=torch.float64)


def central_scores(mechanism, present, bug):
    """A matched filter on the noisy sum, for each client in each of many releases."""
    vectors, places, shares = attempts(mechanism)
    sent = mechanism.privatize(vectors, mechanism.init(), Rng(), np.arange(CLIENTS)).double().sum(0)
    total = sent * bug.copies * present
    means = [mechanism.estimate(total, 1.0, mechanism.init(), Rng())[0] for _ in range(REPEATS)]
    return torch.cat([(mean.double()[places] * shares).sum(1) for mean in means]).numpy()


def central_bound(mechanism, bug=SOUND):
    return proven(*(central_scores(mechanism, present, bug) for present in (1, 0)))


def test_fed_vae_with_central_noise_keeps_its_claim():
    mechanism = fed_vae()
    claimed = claim(mechanism.release.event)
    assert mechanism.release.event == GaussianDpEvent(1.0)
    assert 0.5 * claimed < central_bound(mechanism) < claimed


@pytest.mark.parametrize(
    ("broken", "bug"),
    [
        (lambda sound: replace(sound, noise_multiplier=0.5), SOUND),
        (lambda sound: replace(sound, clip=WholeBlocks(sound.clip.bound, sound.clip.blocks)), SOUND),
        (lambda sound: sound, TWICE),
    ],
    ids=["noise halved", "each class clipped to S", "client counted twice"],
)
def test_a_bug_in_fed_vae_is_found(broken, bug):
    sound = fed_vae()
    assert central_bound(broken(sound), bug) > claim(sound.release.event)


EPSILON, COPIES = 2.0, 40_000


def dp_fed_wae(**settings):
    recipe = recipe_named("dp_fed_wae")
    small = {"latent": 2, "hidden": (8,), "pretraining": 0, "group": 5, "epsilon": EPSILON, "alpha": 0.2}
    return recipe.build(recipe.task(SCHEMA, 40), recipe.values({**small, **settings}))


def one_client(width, value):
    """A client with one row, all of whose entries are `value`: its gradients turn with the sign."""
    return Clients(torch.full((1, width), value), torch.tensor([int(value > 0)]), np.array([0, 1]))


def sent_in_turns(algorithm, mechanism, value, turns):
    """What many copies of a client send in each of its turns, [copies, turns]."""
    state = algorithm.init(Rng(3))
    data = one_client(algorithm.model.width, value).gather(np.zeros(1, dtype=np.int64))
    clear = replace(algorithm, mechanism=NoPrivacy())
    change, _ = clear.client_round(state, {}, data, np.zeros(1, dtype=np.int64), Rng(1))
    copies = change[:, : algorithm.dim].expand(COPIES, -1)
    ids = np.arange(COPIES)
    return torch.stack([mechanism.privatize(copies, {}, Rng(), ids)[:, 0] for _ in range(turns)], 1).numpy()


def turns_bound(algorithm, mechanism, turns):
    """The attacker counts messages that the first half of the copies shows to be likelier with one data set."""
    first, second = (sent_in_turns(algorithm, mechanism, value, turns) for value in (1.0, -1.0))
    half = COPIES // 2
    room = algorithm.dim + 1
    seen = [np.bincount((sent[:half] + room).ravel(), minlength=2 * room + 1) for sent in (first, second)]
    telling = seen[0] > seen[1]
    scores = [telling[sent[half:] + room].sum(1).astype(float) for sent in (first, second)]
    return proven(*scores, delta=0.0)


@pytest.mark.parametrize("turns", [1, 2])
def test_dp_fed_wae_keeps_its_claim_over_all_turns_of_a_client(turns):
    algorithm = dp_fed_wae(participations=turns)
    assert algorithm.mechanism.epsilon == EPSILON / turns
    found = turns_bound(algorithm, algorithm.mechanism, turns)
    assert 0.25 * EPSILON < found < EPSILON


def test_a_client_that_spends_its_whole_budget_in_each_turn_is_found():
    algorithm = dp_fed_wae(participations=2)
    spendthrift = replace(algorithm.mechanism, epsilon=EPSILON)
    assert turns_bound(algorithm, spendthrift, 2) > EPSILON
