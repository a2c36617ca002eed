"""Where a GAN starts: from one noisy answer of all clients, bought with part of the budget.

For images the answer is each class's mean and covariance, of which the generator draws its pictures before it retouches
them. For tables it is the distribution of every two columns; the server fits a latent class model to them, simulates
rows with it and pre-trains the generator on those, as the decoder of an autoencoder whose encoder is thrown away. Both
are post-processing of what was released, so they cost nothing more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedsynth.federation.pair_shares import ClientPairs
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Schedule
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import as_probabilities
from fedsynth.models.gan import TableGAN
from fedsynth.models.latent_classes import fit_latent_classes
from fedsynth.models.model import initialise
from fedsynth.models.moment_vae import MomentVAE
from fedsynth.models.vae import TableVAE
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalGaussian
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.moment_vae import moments_query
from fedsynth.recipes.opening import RowsByClass, pretrain
from fedsynth.recipes.settings import check_ranges, setting
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng

_FITTING = 600  # steps of fitting latent classes


@dataclass(frozen=True)
class Opening:
    """What clients are asked once before the rounds, and how much of the budget that takes."""

    start_share: float = setting(
        0.7, "share of the budget for the opening question (0: none is asked, as in the paper)", 0.0, 0.999
    )
    frequencies: int = setting(100, "lowest frequencies of an image's channel that moments are taken of", 4)
    directions: int = setting(60, "main directions of the classes' covariances, for images", 1)
    latent_classes: int = setting(16, "latent classes that rows are simulated with, for tables", 1)
    pretraining: int = setting(1500, "steps on simulated rows before the first round, for tables", 0)

    def __post_init__(self) -> None:
        check_ranges(self)


def moments_of(task: Task, opening: Opening) -> MomentVAE:
    """The class Gaussians that a generator of images starts from."""
    channels, side = task.image
    frequencies = min(opening.frequencies, side**2)
    rank = min(opening.directions, channels * frequencies)
    return MomentVAE(channels, side, task.classes, frequencies, rank)


def answer_noise(task: Task, share: float, noise_multiplier: float, schedule: Schedule, rounds: int) -> float:
    """The noise of the opening answer that leaves the rounds together worth the rest of the budget."""
    drawn = 1.0 if task.trust == "local" else schedule.expected / task.clients
    together = noise_multiplier / (drawn * math.sqrt(schedule.participations(rounds)))
    return max(0.3, together * math.sqrt((1 - share) / share))


@dataclass(frozen=True)
class PretrainedRows:
    """Turns the noisy shares of pairs into the class balance and a generator that makes such rows."""

    model: TableGAN
    statistic: ClientPairs
    noise: float
    latent_classes: int
    steps: int

    def __call__(self, state: ServerState, answer: Tensor, rng: Rng) -> ServerState:
        """The state that the rounds start from."""
        model, known = self.model, self.statistic.read(answer, self.noise)
        learned = fit_latent_classes(
            self.statistic.sizes,
            known.single,
            known.pairs,
            known.precision,
            self.latent_classes,
            bool(model.classes),
            _FITTING,
            rng.at("classes").torch_generator(),
        )
        simulate = RowsByClass(model.width, model.blocks, learned)
        around = TableVAE(model.width, model.blocks, model.classes, model.latent, model.generator_hidden, 1.0)
        parts = initialise(around, rng.at("around"))
        trained = pretrain(around, parts, simulate, self.steps, rng, "elbo")
        started = replace(state, parts={**state.parts, "generator": trained["decoder"]})
        return started.with_balance(
            as_probabilities(known.single[-model.classes :]) if model.classes else torch.ones(1)
        )


def pairs_query(task: Task, model: TableGAN, opening: Opening, noise_multiplier: float) -> Query:
    """Ask for the shares of every two values."""
    statistic = ClientPairs(task.blocks, task.classes)
    mechanism: Mechanism = NoPrivacy()
    noise = 0.0
    if task.private:
        local = task.trust == "local"
        mechanism = (LocalGaussian if local else CentralGaussian)(Clip(1.0), noise_multiplier)
        noise = noise_multiplier * (math.sqrt(task.clients) if local else 1.0)
    learn = PretrainedRows(model, statistic, noise, opening.latent_classes, opening.pretraining)
    return Query(
        "shares of pairs of values",
        statistic,
        statistic.width,
        mechanism,
        task.clients,
        "client",
        learn=learn,
    )


def opening_query(task: Task, model: object, opening: Opening, noise_multiplier: float) -> Query:
    """The question for the task's kind of data."""
    if isinstance(model, TableGAN):
        return pairs_query(task, model, opening, noise_multiplier)
    return moments_query(task, moments_of(task, opening), noise_multiplier)
