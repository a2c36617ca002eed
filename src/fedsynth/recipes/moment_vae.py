"""A decoder that starts from noisy class moments and is corrected by federated rounds, for one client or one record.

Most of the budget goes into one answer (the class moments, and how bright pixels are), the rest into rounds that train
a small decoder on what Gaussians cannot say. There is no encoder: a latent code follows from its image and what was
released alone, so the record-level variant needs no trust in anything but each client's own noise (the sound
alternative to the local DPD-fVAE of Pfitzner and Arnrich 2022, whose encoder breaks the guarantee).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.moments import (
    ClientMoments,
    RecordMoments,
    Weights,
    class_weights,
    gaussians,
    levels_of,
)
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Everyone, Schedule
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import as_probabilities
from fedsynth.models.levels import curve, level_shares
from fedsynth.models.model import layouts, total_size
from fedsynth.models.moment_vae import MomentVAE, inverse
from fedsynth.models.spectrum import cosine_basis, middle
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.answer import answer_noise, noised_once
from fedsynth.recipes.settings import ClientPrivacy, Local, Rounds, checked, noise_setting, setting
from fedsynth.recipes.task import Task
from fedsynth.recipes.vae import client_mechanism, schedule_of
from fedsynth.rng import Rng
from fedsynth.training.plan import Phase
from fedsynth.training.rule import DPSGD, Rule
from fedsynth.transport.registry import transport_named

_USUAL_DISTANCE = 0.2  # squared distance of an image's features from the reference, for each pixel
_WEIGHTS = {"client": Weights(count=0.15, level=0.1), "record": Weights()}
_USUAL_CLIP = {"client": 0.1, "record": 1.0}
HOMES = {"prior": Home.SERVER, "levels": Home.SERVER, "decoder": Home.SHARED}


@dataclass(frozen=True)
@checked
class MomentStart:
    """The question before training, and its share of the budget."""

    frequencies: int = setting(100, "lowest frequencies of a channel that the moments are taken of", 4)
    latent: int = setting(60, "numbers in the latent code: main directions of the classes' covariances", 1)
    width: int = setting(4, "channels of the correcting decoder", 1)
    levels: int = setting(
        17, "levels of brightness that pixels are asked for (0: draw Gaussians as they are)", 0
    )
    wobble: float = setting(
        0.0,
        "how far drawn pictures are turned, sheared and shifted at random (1: as handwriting varies)",
        0.0,
        3.0,
    )
    bend: float = setting(
        0.0, "how far drawn pictures are bent at random, smoothly (1: as handwriting varies)", 0.0, 3.0
    )
    start_share: float = setting(0.9, "share of the budget for the class moments", 0.01, 0.999)


@dataclass(frozen=True)
@checked
class MomentPrivacy:
    """Protection of one client or one record, as the run asks for."""

    noise_multiplier: float = noise_setting()
    clip: float = setting(
        0.0,
        "largest L2 norm of a client's update or a record's gradient (0: 0.1 for clients, 1 for records)",
        0.0,
        role="clip",
    )
    report: float = setting(0.1, "share of the clip that carries the training loss", 0.001, 0.7)
    batch_rate: float = setting(
        0.5, "chance of each record to be in a round's batch (unit record)", 1e-6, 1.0
    )
    usual_records: int = setting(
        100, "about how many records a client has; scales a step (unit record)", 1, role="records_each"
    )


def refuse_absent(classes: tuple[str, ...], weights: Tensor, noise: float) -> None:
    """Refuse a class that nobody has, where the noise is low enough to tell."""
    if classes and 16 * noise * len(classes) <= float(weights.sum()):
        least = int(weights.argmin())
        if weights[least] <= 2 * noise:
            raise BadInput(
                f"class {classes[least]!r}: its noisy weight over all clients is {weights[least]:.1f} (noise of "
                f"{noise:.1f}): nobody, or hardly anybody, has images of it to learn from; leave the class out of "
                "the schema"
            )


@dataclass(frozen=True)
class Fill:
    """Turns the noisy answer into the class balance and the model's prior."""

    model: MomentVAE
    statistic: RecordMoments | ClientMoments
    noise: float
    classes: tuple[str, ...] = ()

    def __call__(self, state: ServerState, answer: Tensor, rng: Rng) -> ServerState:
        """The state that knows the moments."""
        refuse_absent(self.classes, *class_weights(self.statistic, answer, self.noise))
        moments = gaussians(self.statistic, answer, self.noise, self.model.latent)
        scale = self.model.scale()
        factor = moments.factor / scale[:, None]
        named = {"mean": moments.mean / scale, "factor": factor, "inverse": inverse(factor)}
        parts = {**state.parts, "prior": layouts(self.model)["prior"].join(named)}
        if self.model.levels:
            pixels = cosine_basis(self.model.side, self.model.frequencies)
            apart = (self.model.channels, -1)
            mean = (named["mean"].unflatten(1, apart) @ pixels.T).flatten(1)
            axes = torch.einsum("ckfl,pf->ckpl", factor.unflatten(1, apart), pixels).flatten(1, 2)
            shares = levels_of(self.statistic, answer)
            parts["levels"] = curve(shares, mean, axes.norm(dim=-1), moments.shares)
        return replace(state, parts=parts).with_balance(as_probabilities(moments.shares))


def moments_query(
    task: Task, model: MomentVAE, noise_multiplier: float, weights: Weights = Weights()
) -> Query:
    """Ask for each class's share, mean and covariance at once."""
    radius = math.sqrt(_USUAL_DISTANCE * model.channels * model.side**2)
    reference = middle(model.channels, model.side, model.frequencies) * model.scale()
    kind = RecordMoments if task.unit == "record" else ClientMoments
    levels = partial(level_shares, count=model.levels) if model.levels else None
    statistic = kind(
        model.features, model.numbers, model.groups, reference, radius, levels=levels, weights=weights
    )
    mechanism, noise = noised_once(task, noise_multiplier)
    return Query(
        "class moments",
        statistic,
        model.groups * statistic.width + model.levels,
        mechanism,
        task.clients,
        task.unit,
        learn=Fill(model, statistic, noise, task.schema.classes),
    )


def moment_vae(
    task: Task,
    start: MomentStart = MomentStart(),
    local: Local = Local(learning_rate=0.03),
    rounds: Rounds = Rounds(rounds=20, rate=0.5, momentum=0.5),
    privacy: MomentPrivacy = MomentPrivacy(),
) -> Algorithm:
    """Class Gaussians from one noisy answer, then a shared decoder that corrects them; no encoder anywhere.

    For unit record each client runs DP-SGD on the decoder alone and pays for it in its own ledger; all clients take
    part in every round, since nothing is gained by leaving some out.
    """
    if task.unit == "record" and task.trust != "local":
        raise Incompatible(f"trust={task.trust}: moment_vae protects records at each client; use trust=local")
    channels, side = task.image
    frequencies = min(start.frequencies, side**2)
    latent = min(start.latent, channels * frequencies)
    model = MomentVAE(
        channels,
        side,
        task.classes,
        frequencies,
        latent,
        start.width,
        start.levels,
        start.wobble,
        start.bend,
    )
    size = total_size(model, ["decoder"])
    clip = privacy.clip or _USUAL_CLIP[task.unit]
    mechanism: Mechanism = NoPrivacy()
    schedule: Schedule = schedule_of(task, rounds)
    rule: Rule = local.rule
    drawn = schedule.expected / task.clients if task.trust == "central" else 1.0
    if task.private and task.unit == "record":
        schedule, drawn = Everyone(task.clients), privacy.batch_rate
        rule = DPSGD(
            clip,
            privacy.noise_multiplier,
            privacy.batch_rate,
            steps=1,
            expected_batch=privacy.batch_rate * privacy.usual_records,
            trust="local",
            loss_bound=model.objectives["error"].bound,
            report=privacy.report,
        )
    elif task.private:
        client_privacy = ClientPrivacy(privacy.noise_multiplier, clip, report=privacy.report)
        mechanism = client_mechanism(task, client_privacy, size)
    turns = schedule.participations(rounds.rounds)
    answer = answer_noise(start.start_share, privacy.noise_multiplier, drawn, turns)
    return Algorithm(
        name="moment_vae",
        model=model,
        homes={part: HOMES[part] for part in model.parts},
        plan=(Phase("error", {"decoder": local.build(task.kind)}, rule),),
        mechanism=mechanism,
        schedule=schedule,
        server=rounds.build(),
        rounds=rounds.rounds,
        transport=transport_named(task.transport),
        opening=moments_query(task, model, answer, _WEIGHTS[task.unit]),
        loss_share=privacy.report * clip,
    )
