"""Canaries in noisy sums over the components of a mixture: each record is alone in a class of its own.

The recipe's own sums place and scale the record, its own mechanism, loop and transport do the rest. Only the pictures
and the question are others: all centers are black, the canaries' pictures white, and spread is asked for in each round.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fedsynth.assess.audit.canary import CanaryGame, CanaryObservations, log_likelihood
from fedsynth.assess.audit.table_canary import asked_again, watch_sums
from fedsynth.data.clients import Clients
from fedsynth.federation.algorithm import Algorithm
from fedsynth.models.mixture import Components, MixtureForm, MixtureModel
from fedsynth.training.mixture_sums import MixtureSums

_SIDE = 4


def watch_mixture(game: CanaryGame) -> CanaryObservations:
    """Run all rounds with canary records, each in or out by a coin. All sites arrive."""
    inside = game.rng.at("coins").uniforms(game.canaries) > 0.5
    played, sums = alone(game.algorithm, game.canaries)
    form, clients = sums.form, played.schedule.clients
    numbers = np.flatnonzero(inside)
    owners = np.sort(np.arange(len(numbers)) % clients)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=clients))])
    data = Clients(torch.ones(len(numbers), 1, _SIDE, _SIDE), torch.from_numpy(numbers), offsets)
    scale = np.asarray(sums.scale(_question(form)))
    scores = np.zeros(game.canaries)
    for one in watch_sums(game, played, data):
        cells = np.concatenate([one[: form.places].reshape(-1, 2), one[form.places :, None]], axis=1)
        length = np.linalg.norm(scale)
        scores += log_likelihood(cells @ scale / length**2, game.event, swapped=False)
    return CanaryObservations(inside, scores)


def alone(algorithm: Algorithm, canaries: int) -> tuple[Algorithm, MixtureSums]:
    """The algorithm with its own noise, clip and rounds, over pictures of one number and a class for each canary."""
    sums = algorithm.record_sums
    assert isinstance(sums, MixtureSums)
    form = MixtureForm(1, _SIDE, canaries, 1, 1, 1)
    question = form.write(_question(form))
    game = asked_again(algorithm, canaries, MixtureModel(form), question, form.answer, "record")
    counted = replace(sums, form=form, mechanism=game.mechanism)
    return replace(game, record_sums=counted), counted


def _question(form: MixtureForm) -> Components:
    centers = torch.zeros(form.groups, form.components, form.numbers)
    return Components(centers, True, form.radius, form.radius)
