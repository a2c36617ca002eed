"""The adversarial recipes: who trains which side of the game, and who is protected."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Schedule
from fedsynth.models.gan import ImageGAN, LossName, TableGAN
from fedsynth.models.model import Model, total_size
from fedsynth.models.moment_gan import MomentGAN
from fedsynth.models.per_class import PerClass, of_class
from fedsynth.recipes.answer import answer_noise
from fedsynth.recipes.buffering import Buffering, buffered
from fedsynth.recipes.gan_opening import GeneratorOpening, opening_query, start_of
from fedsynth.recipes.settings import ClientPrivacy, Local, Rounds, checked, setting
from fedsynth.recipes.sharing import Sharing, shared_out
from fedsynth.recipes.task import Task
from fedsynth.recipes.vae import client_balance, client_mechanism, schedule_of
from fedsynth.training.optimizer import Adam
from fedsynth.training.plan import Phase
from fedsynth.training.rowless import Free
from fedsynth.transport.registry import transport_named

_USUAL_STEP = {"table": 1.0, "image": 20.0}  # long enough for most clients to reach the clip
CRITIC = "discriminator"
ARRANGEMENTS = ("conditional", "none", "separate")


@dataclass(frozen=True)
@checked
class Adversaries:
    """The sizes of the two networks and what they play for."""

    classes: str = setting(
        "conditional",
        "conditional: one GAN that is told the label; none: one that is not; separate: one for each class",
        choices=ARRANGEMENTS,
    )
    latent: int = setting(64, "numbers in the generator's input", 1)
    hidden: tuple[int, ...] = setting((64,), "hidden layers of the critic of rows", 1)
    width: int = setting(8, "channels of the critic's first convolution, for images", 1)
    critic: str = setting(
        "patches", "patches or whole: what the critic of images looks at", choices=("patches", "whole")
    )
    painter: int = setting(
        8, "channels of the generator's first convolution, where it starts from moments", 4
    )
    game: str = setting(
        "logistic", "logistic or wasserstein: the loss of both sides", choices=("wasserstein", "logistic")
    )
    anchor: float = setting(0.003, "weight of the squared change of a picture that starts from moments", 0.0)
    penalty: float = setting(10.0, "weight of the gradient penalty of the wasserstein loss", 0.0)

    @property
    def loss_name(self) -> LossName:
        """The game's name in the models' type."""
        return "logistic" if self.game == "logistic" else "wasserstein"


@dataclass(frozen=True)
@checked
class Generation:
    """How the server trains the generator after each round."""

    generator_steps: int = setting(10, "steps of the generator after each round", 1)
    generator_batch: int = setting(128, "rows that the generator makes a step", 1)
    generator_learning_rate: float = setting(0.0001, "step size of the generator", 1e-12)

    def rule(self, generators: int) -> Free:
        """The server's steps; a batch is dealt out to the generators, if there are several."""
        return Free(self.generator_steps, self.generator_batch * generators)


def adversaries(task: Task, settings: Adversaries, opening: GeneratorOpening) -> Model:
    """The GAN for the task's kind of data, or one for each class."""
    if settings.classes != "separate":
        return _one(task, settings, opening, task.classes if settings.classes == "conditional" else 0)
    if task.classes < 2:
        raise Incompatible(
            "classes=separate: one GAN a class needs a label with two classes or more; give --label, or set "
            "classes=none"
        )
    return PerClass(_one(task, settings, opening, 0), task.classes)


def _one(task: Task, settings: Adversaries, opening: GeneratorOpening, classes: int) -> Model:
    """One GAN that is told so many classes."""
    if task.blocks:
        return _of_rows(task, settings, classes)
    game, penalty = settings.loss_name, settings.penalty
    if not opening.start_share:
        return ImageGAN(*task.image, classes, settings.latent, settings.width, game, penalty)
    start = start_of(task, opening, classes)
    patches = settings.critic == "patches"
    return MomentGAN(start, settings.width, patches, settings.painter, game, penalty, settings.anchor)


def _of_rows(task: Task, settings: Adversaries, classes: int) -> TableGAN:
    sizes = settings.latent, settings.hidden
    return TableGAN(task.width, task.blocks, classes, *sizes, settings.loss_name, settings.penalty)


def starting_query(
    task: Task, networks: Adversaries, opening: GeneratorOpening, noise_multiplier: float
) -> Query:
    """Ask for what the generators of these networks start from."""
    classes = task.classes if networks.classes == "conditional" else 0
    rows = _of_rows(task, networks, classes) if task.blocks else None
    return opening_query(task, opening, networks.classes, noise_multiplier, rows)


def _question(
    task: Task,
    networks: Adversaries,
    opening: GeneratorOpening,
    privacy: ClientPrivacy,
    schedule: Schedule,
    rounds: int,
) -> Query | None:
    """The question before the rounds: for what a generator starts from, or for the class balance alone."""
    if not opening.start_share:
        return client_balance(task, privacy, schedule, rounds)
    rate = 1.0 if task.trust == "local" else schedule.expected / task.clients
    turns = schedule.participations(rounds)
    noise = answer_noise(opening.start_share, privacy.noise_multiplier, rate, turns)
    return starting_query(task, networks, opening, noise)


def _plan(task: Task, networks: Adversaries, local: Local) -> tuple[Phase, ...]:
    """A pass over the rows: class by class where each has a critic of its own."""
    step = replace(local, learning_rate=local.learning_rate or _USUAL_STEP[task.kind]).build(task.kind)
    if networks.classes != "separate":
        return (Phase("discriminate", {CRITIC: step}, local.rule),)
    return tuple(
        Phase(of_class("discriminate", number), {of_class(CRITIC, number): step}, local.rule, label=number)
        for number in range(task.classes)
    )


def dp_fedavg_gan(
    task: Task,
    networks: Adversaries = Adversaries(),
    local: Local = Local(most_batches=1),
    rounds: Rounds = Rounds(rounds=16, rate=1.0, momentum=0.0),
    privacy: ClientPrivacy = ClientPrivacy(),
    generation: Generation = Generation(),
    opening: GeneratorOpening = GeneratorOpening(),
    sharing: Sharing = Sharing(),
    buffering: Buffering = Buffering(),
) -> Algorithm:
    """DP-FedAvg-GAN (Augenstein et al. 2020, Algorithm 1): clients train the critic, the server the generator.

    Only the critic sees real rows and only its noisy average leaves; the generator is trained at the server against
    it, which costs no more. By default an opening question buys what the generator starts from (see gan_opening.py);
    `start_share=0` is the paper's algorithm, and `--preset paper` has its settings.

    What was tried, on writers held out of MNIST's training split (479 clients, epsilon 10) and on rows held out of
    Adult's (1,000 clients, epsilon 8). All clients, few rounds and one step each: a sum over all of them has the most
    signal for its noise, and a step that reaches the clip is nearly the same for all (their mean is .9 of the clip).
    A generator that takes 100 steps of 5e-4 a round runs away with the noise of the critic: after 30 rounds a CNN's
    accuracy was .10 to .66. Slow ones (10 steps of 1e-4) keep what the opening bought and add little: .768 after 16
    rounds, .766 before (from 4,000 images); three times as fast and with momentum .5, .774, but a Frechet distance of
    13.2 in place of 11.4, and 23 without the anchor. A critic of the whole image, told the label (10,835 parameters),
    draws a texture into the background where one of patches (2,345) does not. On Adult the logistic game beat the
    wasserstein one (column shapes .92 and .85 after the same rounds), and rounds after the opening raised a
    classifier's AUC from .891 to .895 at some cost in column shapes (.955 to .915; .935 with the default step). Soft
    choices of a table's generator let the critic win by their softness: they are made for good.

    Without noise to speak of (S = .1, z = .01) and without an opening, Adam at the clients (step .001) and a generator
    of step .0005 reach .938 on MNIST's test digits in 1,000 rounds of 10 clients.
    """
    model = adversaries(task, networks, opening)
    critics = [part for part in model.parts if part.startswith(CRITIC)]
    schedule = schedule_of(task, rounds)
    painter = Adam(generation.generator_learning_rate, beta1=0.5, beta2=0.9)
    painters = {part: painter for part in model.parts if part.startswith("generator")}
    algorithm = Algorithm(
        name="dp_fedavg_gan",
        model=model,
        homes={part: Home.SHARED if part in critics else Home.SERVER for part in model.parts},
        plan=_plan(task, networks, local),
        server_phase=Phase("generate", painters, generation.rule(len(painters))),
        mechanism=client_mechanism(task, privacy, total_size(model, critics)),
        schedule=schedule,
        server=rounds.build(),
        rounds=rounds.rounds,
        transport=transport_named("clear" if task.trust == "distributed" else task.transport),
        opening=_question(task, networks, opening, privacy, schedule, rounds.rounds),
        loss_share=privacy.report * privacy.clip,
    )
    return buffered(shared_out(algorithm, task, sharing), task, buffering)
