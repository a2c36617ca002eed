"""GANs that protect records where they are: PP-FedGAN and the two systems that it is compared with.

A client trains the discriminator by DP-SGD on its own records and the generator against it from noise alone, so the
generator costs no more; both are averaged. The schedule tells the systems apart: a buffer of whoever comes first
(PP-FedGAN, Ghavamipour et al. 2023), one client after another (Priv-FedGAN, Xin et al. 2022), all together, or
all rows in one place (DP-GAN, Xie et al. 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Everyone, Schedule, Sequential
from fedsynth.federation.server import Momentum
from fedsynth.models.gan import ImageGAN, TableGAN
from fedsynth.models.model import Model
from fedsynth.models.moment_gan import MomentGAN
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.answer import answer_noise
from fedsynth.recipes.buffering import Buffering
from fedsynth.recipes.gan_opening import GeneratorOpening, opening_query, start_of
from fedsynth.recipes.record_vae import LocalRecordPrivacy, local_balance
from fedsynth.recipes.settings import Passes, RecordPrivacy, checked, setting
from fedsynth.recipes.task import Task
from fedsynth.recipes.vae import balance_query
from fedsynth.training.optimizer import Adam
from fedsynth.training.plan import Phase
from fedsynth.training.rowless import Free
from fedsynth.training.rule import Epochs, Rule
from fedsynth.transport.registry import transport_named

BOTH = ("discriminator", "generator")
_LAYERS = ("auto", "published", "small")
_ORDERS = ("buffered", "together", "in turn")


@dataclass(frozen=True)
@checked
class Players:
    """The two networks."""

    latent: int = setting(100, "numbers in the generator's input", 1)
    layers: str = setting(
        "auto",
        "published (PP-FedGAN's, for 28x28), small, or auto: published where they fit; without an opening",
        choices=_LAYERS,
    )
    width: int = setting(8, "channels of the small critic's first convolution, for images", 1)
    hidden: tuple[int, ...] = setting((64,), "hidden layers of the critic of rows", 1)
    critic: str = setting(
        "patches",
        "patches or whole: what the critic of images after an opening looks at",
        choices=("patches", "whole"),
    )
    painter: int = setting(8, "channels of the generator's first convolution, after an opening", 4)
    anchor: float = setting(0.003, "weight of the squared change of a picture, after an opening", 0.0)

    def rows(self, task: Task) -> TableGAN:
        """The GAN of a table's rows."""
        return TableGAN(task.width, task.blocks, task.classes, self.latent, self.hidden, "logistic")

    def build(self, task: Task, opening: GeneratorOpening) -> Model:
        """The logistic GAN for the task's kind of data, conditional where there are labels."""
        if task.blocks:
            return self.rows(task)
        if opening.start_share:
            if self.layers != "auto":
                raise Incompatible(
                    f"layers={self.layers}: a generator that starts from moments has layers of its own; set "
                    "start_share=0 as well, or leave layers out"
                )
            start = start_of(task, opening, task.classes)
            patches = self.critic == "patches"
            return MomentGAN(start, self.width, patches, self.painter, "logistic", anchor=self.anchor)
        channels, side = task.image
        published = self.layers == "published" or (self.layers == "auto" and side == 28)
        return ImageGAN(
            channels, side, task.classes, self.latent, self.width, "logistic", published=published
        )


@dataclass(frozen=True)
@checked
class Match:
    """How the two sides take turns in a client's round."""

    learning_rate: float = setting(0.0002, "step size of the discriminator (Adam)", 1e-12)
    generator_learning_rate: float = setting(0.0002, "step size of the generator (Adam)", 1e-12)
    generator_batch: int = setting(128, "rows that the generator makes a step", 1)
    generator_steps: int = setting(
        0, "steps of the generator in a round (0: as many as the discriminator)", 0
    )
    alternations: int = setting(
        0, "how often the two sides take turns in a round (0: at every step; 1: one, then the other)", 0
    )

    def plan(self, critic: Rule, steps: int) -> tuple[Phase, ...]:
        """The phases of a round of so many steps; `critic` has the discriminator's steps of one turn."""
        turns = self.alternations or steps
        first = Phase("discriminate", {"discriminator": Adam(self.learning_rate, 0.5)}, critic)
        free = Free(max(1, round((self.generator_steps or steps) / turns)), self.generator_batch)
        second = Phase("generate", {"generator": Adam(self.generator_learning_rate, 0.5)}, free)
        return (first, second) * turns

    def each(self, steps: int) -> int:
        """The discriminator's steps of one turn."""
        return max(1, round(steps / (self.alternations or steps)))


@dataclass(frozen=True)
@checked
class Arrivals:
    """How often the server steps, and in which order clients work."""

    rounds: int = setting(20, "versions of the server", 1, role="rounds")
    order: str = setting(
        "buffered", "buffered (who comes first), together (rounds of all), or in turn", choices=_ORDERS
    )

    def build(self, task: Task, buffering: Buffering) -> Schedule:
        """The schedule for the task's clients."""
        if self.order == "together":
            return Everyone(task.clients)
        if self.order == "in turn":
            return Sequential(task.clients)
        return buffering.build(task, self.rounds, weighted=True)


def _homes(model: Model) -> dict[str, Home]:
    """Both networks are averaged; what an opening fills in stays as it is and is sent down."""
    return {part: Home.SHARED if part in BOTH else Home.SERVER for part in model.parts}


def _plain(batch: float, rate: float, steps: int) -> Epochs:
    """About as many plain steps, for a baseline without privacy."""
    passes = max(1, math.ceil(steps * rate))
    return Epochs(passes, max(1, round(batch)), math.ceil(steps / passes))


def _opened(
    task: Task,
    networks: Players,
    opening: GeneratorOpening,
    noise_multiplier: float,
    rate: float,
    releases: int,
) -> Query:
    """The question to records before so many steps on batches of this rate."""
    noise = answer_noise(opening.start_share, noise_multiplier, rate, releases)
    rows = networks.rows(task) if task.blocks else None
    return opening_query(task, opening, "conditional", noise, rows)


def pp_fedgan(
    task: Task,
    networks: Players = Players(),
    match: Match = Match(),
    rounds: Arrivals = Arrivals(),
    buffering: Buffering = Buffering(),
    privacy: LocalRecordPrivacy = LocalRecordPrivacy(batch_rate=0.05, steps=3, usual_records=6000),
    opening: GeneratorOpening = GeneratorOpening(),
) -> Algorithm:
    """PP-FedGAN (Ghavamipour et al. 2023): DP-SGD on each client's discriminator, sealed averages, no waiting.

    By default an opening question buys what the generator starts from (gan_opening.py): each client adds up what its
    records say, clipped record by record, with noise of its own, and pays for that answer as for its steps. Answers are
    not sealed. `--preset paper` is the published algorithm (Algorithms 1 and 2).

    The batches are true Poisson samples and the budget composes over all that a client ever does: every use of a
    client in a version costs it all its steps, and one that has had its `turns` is not asked again. Buffers hold half
    of the clients, at most 10, unless `buffer` says otherwise. The paper's epsilons are otherwise: noise .5, .7 and 1.0
    over its 20 epochs cost 21.6, 8.0 and 3.4 at delta 1e-4, not 8.49, 2.47 and 1.39. Its tables of layers do not give
    its numbers of parameters; models/dcgan.py has those that do. Its sealed messages are safe from the server alone:
    all clients hold one key. `batch_rate` is for clients of about `usual_records` records; set both for smaller ones.

    What was tried, on MNIST at epsilon 8. As published, 94 steps of one side and then 94 of the other give noise; sides
    that take turns at every step begin to draw strokes (experiments/pp_fedgan). The opening was chosen on 10,000 images
    held out of the training split, ten clients and ten rounds, by Frechet distance in a LeNet's features: 2.8 after an
    answer with .9 of the budget and 2.5 after the rounds; with .5 of it 4.0 and 3.4. Steps five times as long were no
    better (2.8 after five rounds). Batches twice as large, over four clients: 3.2 and 2.4; a CNN then learned .932 from
    the answer alone and .935 after the rounds. Most is bought by the answer. On the test digits, in three trainings:
    .941.

    Color images open with patterns (models/pattern.py). What was tried, on 1,000 house numbers held out of SVHN's
    training split, 4,000 at ten clients, epsilon 8, judged by what a LeNet learns from the opening's pictures, one
    training each: patterns with all of the spread that was asked for .52, with .4 of it, moved and grainy, .66; the
    real images .71. The distance in features fell from 34 to 7.5. A CNN with dropout learned .06 to .15 from either,
    and .59 where no noise was added: it learns what noise leaves in the mean of a class. With means drawn together by
    4 times the noise's variance it learned .56, .37 and .47 from the opening in three trainings (by 12, 16 and 24 times
    .19, .17, .08), but on the test digits .45 and .07 after the rounds, at a larger distance: not the default.
    """
    model = networks.build(task, opening)
    each = match.each(privacy.steps)
    turn = replace(privacy, steps=each)
    rule: Rule = turn.rule(model.objectives["discriminate"].bound)
    if not task.private:
        rule = _plain(privacy.batch_rate * privacy.usual_records, privacy.batch_rate, each)
    schedule = rounds.build(task, buffering)
    turns = schedule.participations(rounds.rounds)
    question = local_balance(task, privacy, turns)
    if opening.start_share:
        releases = privacy.steps * turns
        question = _opened(task, networks, opening, privacy.noise_multiplier, privacy.batch_rate, releases)
    return Algorithm(
        name="pp_fedgan",
        model=model,
        homes=_homes(model),
        plan=match.plan(rule, privacy.steps),
        mechanism=NoPrivacy(),
        schedule=schedule,
        server=Momentum(),
        rounds=rounds.rounds,
        transport=transport_named(task.transport),
        opening=question,
    )


def dp_gan(
    task: Task,
    networks: Players = Players(),
    match: Match = Match(),
    rounds: Passes = Passes(),
    privacy: RecordPrivacy = RecordPrivacy(),
    opening: GeneratorOpening = GeneratorOpening(),
) -> Algorithm:
    """A GAN on pooled rows with DP-SGD on its discriminator (DP-GAN, Xie et al. 2018): who holds the rows is trusted.

    A round is about one pass over the rows in batches of `generator_batch`; without privacy, say how many `records`
    there are, or how many `generator_steps` go with a pass. An opening buys what the generator starts from, as in
    pp_fedgan; `start_share=0` is DP-GAN as published.
    """
    model = networks.build(task, opening)
    batch = match.generator_batch
    records = privacy.records or (task.public_records() if task.private else 50 * batch)
    rate = min(1.0, batch / records)
    steps = max(1, round(1 / rate))
    rule: Rule = Epochs(1, batch, match.each(steps))
    if task.private:
        rule = privacy.rule(rate, match.each(steps), records, model.objectives["discriminate"].bound)
    noise, releases = privacy.noise_multiplier, steps * rounds.rounds
    question = balance_query(task, "record", noise, rate, releases, privacy.balance_share)
    if opening.start_share:
        question = _opened(task, networks, opening, noise, rate, releases)
    return Algorithm(
        name="dp_gan",
        model=model,
        homes=_homes(model),
        plan=match.plan(rule, steps),
        mechanism=NoPrivacy(),
        schedule=Everyone(1),
        server=Momentum(),
        rounds=rounds.rounds,
        transport=transport_named(task.transport),
        keep=BOTH,
        opening=question,
    )
