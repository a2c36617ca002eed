"""The autoencoder recipes: what each shares, where each part lives, and who is protected."""

from __future__ import annotations

import math

from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Everyone, FixedCohort, PoissonCohort, Rotation, Schedule
from fedsynth.federation.server import Momentum
from fedsynth.federation.statistics import LabelShares
from fedsynth.models.deep_image import LARGE
from fedsynth.models.model import Model, total_size
from fedsynth.models.signal import is_signal, signal_vae
from fedsynth.models.vae import ImageVAE, TableVAE
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalGaussian
from fedsynth.privacy.mechanism import Mechanism, Unit
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.buffering import Buffering, buffered
from fedsynth.recipes.settings import (
    Architecture,
    ClientPrivacy,
    Local,
    Passes,
    PrivateEncoder,
    RecordPrivacy,
    Rounds,
)
from fedsynth.recipes.sharing import Sharing, shared_out
from fedsynth.recipes.task import Task
from fedsynth.training.plan import Phase
from fedsynth.training.rule import Rule
from fedsynth.transport.registry import transport_named

SIZES: dict[str, tuple[int, int, tuple[int, ...]]] = {  # latent numbers, width, deeper network
    "small": (16, 25, ()),  # of Pfitzner and Arnrich's 185,000 variables
    "large": (112, 0, LARGE),  # and 3.85 million
}
BOTH = ("encoder", "decoder")
ALL_SHARED = {"encoder": Home.SHARED, "decoder": Home.SHARED}
DECODER_SHARED = {"encoder": Home.CLIENT, "decoder": Home.SHARED}


def autoencoder(task: Task, architecture: Architecture) -> Model:
    """The conditional VAE for the task's kind of data."""
    if not task.blocks:
        return _image_autoencoder(task, architecture)
    if architecture.size != "free":
        raise Incompatible(
            f"size={architecture.size}: a size of image networks; tables have hidden and latent"
        )
    latent, hidden, beta = architecture.latent, architecture.hidden, architecture.beta
    if is_signal(task.blocks):
        return signal_vae(
            task.blocks, task.classes, decoder=architecture.signal, latent=latent, hidden=hidden, beta=beta
        )
    return TableVAE(task.width, task.blocks, task.classes, latent, hidden, beta)


def _image_autoencoder(task: Task, architecture: Architecture) -> Model:
    """One of the two sizes of Pfitzner and Arnrich (2022), whose figures are lost, or what was asked for."""
    channels, side = task.image
    latent, width, deep = SIZES.get(architecture.size, (architecture.latent, architecture.width, ()))
    return ImageVAE(channels, side, task.classes, latent, width, architecture.beta, deep)


def schedule_of(task: Task, rounds: Rounds) -> Schedule:
    """Poisson cohorts, or fixed ones if a size was given; clients in turn where each pays for itself."""
    if task.trust == "local" and task.private:
        share = rounds.cohort / task.clients if rounds.cohort else rounds.rate
        return Rotation(task.clients, max(1, min(task.clients, round(1 / share))))
    if rounds.cohort:
        return FixedCohort(task.clients, rounds.cohort)
    return PoissonCohort(task.clients, rounds.rate)


def client_mechanism(task: Task, privacy: ClientPrivacy, dim: int) -> Mechanism:
    """Noise on clipped updates, each carrying its loss in a block of its own: at the server, or at each client."""
    if not task.private:
        return NoPrivacy()
    update = math.sqrt(1 - privacy.report**2)
    clip = Clip(privacy.clip, ((dim, update), (1, privacy.report)))
    if task.trust == "local":
        return LocalGaussian(clip, privacy.noise_multiplier)
    return CentralGaussian(clip, privacy.noise_multiplier)


def balance_query(
    task: Task, unit: Unit, noise_multiplier: float, rate: float, releases: int, share: float
) -> Query | None:
    """Ask for the class balance, at about `share` of what training costs; None where it is public."""
    if not task.classes or task.schema.label_probabilities is not None:
        return None
    what = "class balance"
    statistic = LabelShares(task.classes)
    if not task.private:
        return Query(what, statistic, task.classes, NoPrivacy(), task.clients, unit)
    noise = max(0.3, noise_multiplier / (rate * math.sqrt(share * releases)))
    mechanism = LocalGaussian if task.trust == "local" else CentralGaussian
    return Query(what, statistic, task.classes, mechanism(Clip(1.0), noise), task.clients, unit)


def client_balance(task: Task, privacy: ClientPrivacy, schedule: Schedule, rounds: int) -> Query | None:
    """Ask for the class balance in training that protects clients; under local trust each pays for its own turns."""
    rate = 1.0 if task.trust == "local" else schedule.expected / task.clients
    turns = schedule.participations(rounds)
    return balance_query(task, "client", privacy.noise_multiplier, rate, turns, privacy.balance_share)


def _federated(
    name: str,
    task: Task,
    architecture: Architecture,
    local: Local,
    rounds: Rounds,
    privacy: ClientPrivacy,
    sharing: Sharing,
    buffering: Buffering,
    private_encoder: PrivateEncoder | None = None,
) -> Algorithm:
    """Client-level federated training of an autoencoder; the homes of its parts tell the systems apart."""
    model = autoencoder(task, architecture)
    homes = ALL_SHARED if private_encoder is None else DECODER_SHARED
    schedule = schedule_of(task, rounds)
    shared = [part for part, home in homes.items() if home is Home.SHARED]
    rule = local.rule
    optimizers = {"encoder": (private_encoder or local).build(task.kind), "decoder": local.build(task.kind)}
    algorithm = Algorithm(
        name=name,
        model=model,
        homes=homes,
        plan=(Phase("elbo", optimizers, rule),),
        mechanism=client_mechanism(task, privacy, total_size(model, shared)),
        schedule=schedule,
        server=rounds.build(),
        rounds=rounds.rounds,
        transport=transport_named("clear" if task.trust == "distributed" else task.transport),
        keep=tuple(part for part, home in homes.items() if home is Home.CLIENT),
        opening=client_balance(task, privacy, schedule, rounds.rounds),
        loss_share=privacy.report * privacy.clip,
    )
    return buffered(shared_out(algorithm, task, sharing), task, buffering)


def fvae(
    task: Task,
    architecture: Architecture = Architecture(),
    local: Local = Local(optimizer="auto"),
    rounds: Rounds = Rounds(),
    privacy: ClientPrivacy = ClientPrivacy(),
    sharing: Sharing = Sharing(),
    buffering: Buffering = Buffering(),
) -> Algorithm:
    """Federated VAE: encoder and decoder are both averaged, under client-level DP."""
    return _federated("fvae", task, architecture, local, rounds, privacy, sharing, buffering)


def dpd_fvae(
    task: Task,
    architecture: Architecture = Architecture(),
    local: Local = Local(optimizer="auto"),
    rounds: Rounds = Rounds(),
    privacy: ClientPrivacy = ClientPrivacy(),
    private_encoder: PrivateEncoder = PrivateEncoder(),
    sharing: Sharing = Sharing(),
    buffering: Buffering = Buffering(),
) -> Algorithm:
    """DPD-fVAE, central (Pfitzner and Arnrich 2022, Algorithm 1): only the decoder leaves, under client-level DP.

    The defaults were chosen on a hold-out of Adult's training split, a public data set: many small server steps,
    one pass of plain SGD at the client (under a clip, Adam's even steps drown in noise), a weak prior so that the
    latent code is used. With few clients or epsilon 1, `clip=0.3` and fewer rounds do a little better.

    Each client keeps its encoder and that encoder's optimizer state; the decoder's optimizer starts fresh each
    round. All encoders start from one public initialisation, so that clients speak of the same latent space.
    The update is theta_n - theta (the paper's algorithm has the sign the other way round and then adds).
    """
    return _federated(
        "dpd_fvae", task, architecture, local, rounds, privacy, sharing, buffering, private_encoder
    )


def central_vae(
    task: Task,
    architecture: Architecture = Architecture(hidden=(128,), beta=1.0),
    local: Local = Local(batch_size=1024, learning_rate=0.01, optimizer="adam"),
    rounds: Passes = Passes(),
    privacy: RecordPrivacy = RecordPrivacy(),
) -> Algorithm:
    """A VAE on pooled data: the upper baseline, without DP or with DP-SGD for each record.

    All rows are in one place, so whoever holds them is trusted. A round is `epochs` passes over the data.
    """
    model = autoencoder(task, architecture)
    rule: Rule = local.rule
    rate, steps = 1.0, 1
    if task.private:
        records = privacy.records or task.public_records()
        rate = min(1.0, local.batch_size / records)
        steps = local.epochs * max(1, round(1 / rate))
        rule = privacy.rule(rate, steps, records, model.objectives["elbo"].bound)
    return Algorithm(
        name="central_vae",
        model=model,
        homes=ALL_SHARED,
        plan=(Phase("elbo", {part: local.build(task.kind) for part in BOTH}, rule),),
        mechanism=NoPrivacy(),
        schedule=Everyone(1),
        server=Momentum(0.0, 1.0),
        rounds=rounds.rounds,
        transport=transport_named(task.transport),
        keep=BOTH,
        opening=balance_query(
            task,
            "record",
            privacy.noise_multiplier,
            rate,
            steps * rounds.rounds,
            privacy.balance_share,
        ),
    )
