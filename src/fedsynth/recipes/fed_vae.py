"""FedVAE (Margaritis 2021, a thesis, Algorithms 4 to 7): one VAE a class or one for all, central or local noise.

Encoders stay with their clients and only decoders are averaged, each client's update clipped. `separate` is a VAE for
each class, trained on the rows of that class and clipped to S / sqrt(C) on its own (Algorithms 4 and 5); `unified` is
one VAE whose decoder is given the label (Algorithms 6 and 7). Noise is added to the sum by a trusted server, or by each
client to its own update (`--trust local`), as for every recipe that protects clients.

What differs from the thesis: cohorts are drawn independently unless `cohort` is given, local noise is accounted for
the client that takes part most often and between any two data sets of a client, never for an average client, and the
loss shown is part of the noisy sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dp_accounting import GaussianDpEvent
from torch import Tensor

from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Schedule
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import as_probabilities
from fedsynth.models.label_image import LabelImageVAE
from fedsynth.models.model import Layout, Model
from fedsynth.models.per_class import PerClass, of_class
from fedsynth.models.signal import is_signal, signal_vae
from fedsynth.models.smooth_image import SmoothImageVAE
from fedsynth.models.vae import TableVAE
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalGaussian
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.settings import (
    ClientPrivacy,
    Local,
    PrivateEncoder,
    Rounds,
    checked,
    setting,
)
from fedsynth.recipes.sharing import Sharing, shared_out
from fedsynth.recipes.task import Task
from fedsynth.recipes.vae import client_balance, schedule_of
from fedsynth.rng import Rng
from fedsynth.training.plan import Phase
from fedsynth.transport.registry import transport_named

DECODERS = ("auto", "histogram", "dense", "spectral", "convolution", "smooth")


@dataclass(frozen=True)
@checked
class Autoencoders:
    """How many autoencoders there are, and what each looks like."""

    vaes: str = setting(
        "separate",
        "separate: one VAE a class; unified: one, whose decoder is given the label",
        choices=("separate", "unified"),
    )
    decoder: str = setting(
        "auto",
        "histogram (tables), smooth or convolution (images), spectral or dense (signals); auto: the first that fits, "
        "where a table whose columns all have bins=1 is a signal",
        choices=DECODERS,
    )
    latent: int = setting(8, "numbers in the latent code", 1)
    hidden: tuple[int, ...] = setting((64,), "hidden layers of a dense network, from the row inwards", 1)
    width: int = setting(32, "channels of the first convolution, for images", 1)
    bands: int = setting(16, "frequency bands of a spectral decoder; of a smooth one, in each direction", 2)
    typical: float = setting(
        0.03, "typical amplitude of a signal, as a share of half its public range", 1e-6, 1.0
    )
    beta: float = setting(1.0, "weight of the KL term", 0.0)
    pixels: str = setting(
        "gray",
        "gray: as the decoder says; drawn: black or white by that chance, for images",
        choices=("gray", "drawn"),
    )

    def build(self, task: Task) -> Model:
        """The model for the task: one VAE, or one a class."""
        if self.vaes == "unified":
            return self._one(task, task.classes)
        if task.classes < 2:
            raise Incompatible(
                "vaes=separate: one VAE a class needs a label with two classes or more; give --label, or set "
                "vaes=unified"
            )
        return PerClass(self._one(task, 0), task.classes)

    def _one(self, task: Task, classes: int) -> Model:
        decoder, drawn = self.decoder if self.decoder != "auto" else _usual(task), self.pixels == "drawn"
        if (decoder in ("convolution", "smooth")) == bool(task.blocks):
            raise Incompatible(
                f"decoder={self.decoder}, kind={task.kind}: fed_vae makes tables by histogram, signals by spectral or "
                "dense, and images by convolution or smooth"
            )
        if decoder == "convolution":
            return LabelImageVAE(*task.image, classes, self.latent, self.width, self.beta, drawn)
        if decoder == "smooth":
            bands = min(self.bands, task.image[1]) if self.decoder == "auto" else self.bands
            return SmoothImageVAE(*task.image, classes, self.latent, bands, self.hidden, self.beta, drawn)
        if decoder == "histogram":
            return TableVAE(task.width, task.blocks, classes, self.latent, self.hidden, self.beta)
        return signal_vae(
            task.blocks,
            classes,
            decoder=decoder,
            latent=self.latent,
            hidden=self.hidden,
            beta=self.beta,
            bands=self.bands,
            typical=self.typical,
        )


def _usual(task: Task) -> str:
    """The decoder that fits the kind of data."""
    if not task.blocks:
        return "smooth"  # noise is spread over all that is shared: it hides what convolutions have to say
    return "spectral" if is_signal(task.blocks) else "histogram"


def fed_vae(
    task: Task,
    architecture: Autoencoders = Autoencoders(),
    local: Local = Local(),
    rounds: Rounds = Rounds(),
    privacy: ClientPrivacy = ClientPrivacy(),
    private_encoder: PrivateEncoder = PrivateEncoder(),
    sharing: Sharing = Sharing(),
) -> Algorithm:
    """FedVAE: decoders are averaged, one per class or one for all, under client-level DP."""
    model = architecture.build(task)
    homes = {part: Home.SHARED if part in model.generative else Home.CLIENT for part in model.parts}
    schedule = schedule_of(task, rounds)
    algorithm = Algorithm(
        name="fed_vae",
        model=model,
        homes=homes,
        plan=_plan(task, architecture.vaes == "separate", local, private_encoder),
        mechanism=_mechanism(task, privacy, model),
        schedule=schedule,
        server=rounds.build(),
        rounds=rounds.rounds,
        transport=transport_named("clear" if task.trust == "distributed" else task.transport),
        keep=tuple(part for part, home in homes.items() if home is Home.CLIENT),
        opening=_balance(task, privacy, schedule, rounds.rounds, architecture.vaes == "separate"),
        loss_share=privacy.report * privacy.clip,
    )
    return shared_out(algorithm, task, sharing)


@dataclass(frozen=True)
class EveryClass:
    """The server's use of the class balance for separate VAEs: its probabilities, or that a class cannot be trained.

    Only the noisy answer is looked at, which is in the budget. A class that nobody holds would keep a decoder at its
    random start, and make rows that look like data.
    """

    classes: tuple[str, ...]
    noise: float  # standard deviation of each class's sum over all clients
    telling: float  # noise above which even a class with a quarter of its even share might be missed

    def __call__(self, state: ServerState, answer: Tensor, rng: Rng) -> ServerState:
        """The state with the balance; refused if a class is not above the noise."""
        for name, weight in zip(self.classes, answer.tolist(), strict=True):
            if weight <= 2 * self.noise and self.noise <= self.telling:
                about = f" (noise of {self.noise:.1f})" if self.noise else ""
                raise BadInput(
                    f"class {name!r}: its noisy weight over all clients is {weight:.1f}{about}: no client, or too few, "
                    "hold records of it to train a VAE of its own; leave the class out of the schema, or set "
                    "vaes=unified"
                )
        return state.with_balance(as_probabilities(answer))


def _balance(
    task: Task, privacy: ClientPrivacy, schedule: Schedule, rounds: int, separate: bool
) -> Query | None:
    """The question for the class balance; with separate VAEs, each class must turn up in the answer."""
    query = client_balance(task, privacy, schedule, rounds)
    declared = task.schema.label_probabilities
    if separate and declared is not None and min(declared) <= 0:
        empty = task.schema.classes[declared.index(min(declared))]
        raise Incompatible(
            f"class {empty!r} has probability 0 in the schema: no records to train a VAE of its own; leave it out of "
            "the categories, or set vaes=unified"
        )
    if query is None or not separate:
        return query
    spread = query_noise(query, task)
    return replace(query, learn=EveryClass(task.schema.classes, spread, task.clients / (16 * task.classes)))


def query_noise(query: Query, task: Task) -> float:
    """The standard deviation of the answer to a query of clip 1: where each client has its own, they add up."""
    event = query.release.event if query.release else None
    noise = event.noise_multiplier if isinstance(event, GaussianDpEvent) else 0.0
    return float(noise) * (math.sqrt(task.clients) if task.trust == "local" else 1.0)


def _plan(task: Task, separate: bool, local: Local, private_encoder: PrivateEncoder) -> tuple[Phase, ...]:
    """A pass over the rows: class by class where each has a VAE of its own."""
    rule = local.rule
    if is_signal(task.blocks):  # a loss over many points has a steep slope
        local = replace(local, learning_rate=local.learning_rate or 0.003)
        private_encoder = replace(
            private_encoder, encoder_learning_rate=private_encoder.encoder_learning_rate or 0.003
        )
    encoder, decoder = private_encoder.build(task.kind), local.build(task.kind)
    if not separate:
        return (Phase("elbo", {"encoder": encoder, "decoder": decoder}, rule),)
    return tuple(
        Phase(
            of_class("elbo", number),
            {of_class("encoder", number): encoder, of_class("decoder", number): decoder},
            rule,
            label=number,
        )
        for number in range(task.classes)
    )


def _mechanism(task: Task, privacy: ClientPrivacy, model: Model) -> Mechanism:
    """Each decoder's update clipped by itself, to an equal share of the clip; the loss in a block of its own."""
    if not task.private:
        return NoPrivacy()
    sizes = [Layout.of(model.parts[part]).size for part in model.generative]
    share = math.sqrt((1 - privacy.report**2) / len(sizes))
    clip = Clip(privacy.clip, (*((size, share) for size in sizes), (1, privacy.report)))
    if task.trust == "local":
        return LocalGaussian(clip, privacy.noise_multiplier)
    return CentralGaussian(clip, privacy.noise_multiplier)
