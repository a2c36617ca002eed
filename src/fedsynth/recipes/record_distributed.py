"""Few sites, many records: DP-SGD for each record over sites that pool nothing and trust no server.

Client-level privacy needs thousands of clients; a consortium has five hospitals. Here the unit is a record, each site
draws, clips and sums its records' gradients and adds its share of the noise, and only the sum over the sites opens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Everyone
from fedsynth.federation.server import ServerAdam
from fedsynth.models.model import Model, total_size
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.sampling import most_drawn
from fedsynth.recipes.answer import answer_noise
from fedsynth.recipes.gan import CRITIC, Adversaries, Generation, adversaries, starting_query
from fedsynth.recipes.gan_opening import GeneratorOpening
from fedsynth.recipes.settings import Architecture, RecordPrivacy, checked, setting
from fedsynth.recipes.sharing import Sharing, shared_query
from fedsynth.recipes.task import Task
from fedsynth.recipes.vae import ALL_SHARED, BOTH, autoencoder, balance_query
from fedsynth.training.optimizer import SGD, Adam
from fedsynth.training.plan import Phase
from fedsynth.training.record_sums import RecordSums
from fedsynth.training.rule import Epochs
from fedsynth.transport.registry import transport_named


@dataclass(frozen=True)
@checked
class Steps:
    """How long and how fast the server trains: a round is one step."""

    rounds: int = setting(600, "steps of training; each is one masked sum over the sites", 1, role="rounds")
    batch_size: int = setting(1024, "expected records in a step, over all sites together", 1)
    learning_rate: float = setting(0.01, "step size of the server's Adam", 1e-12)


def site_vae(
    task: Task,
    architecture: Architecture = Architecture(hidden=(128,), beta=1.0),
    steps: Steps = Steps(),
    privacy: RecordPrivacy = RecordPrivacy(),
    sharing: Sharing = Sharing(),
) -> Algorithm:
    """A VAE trained over a few sites by DP-SGD for each record: the guarantee and the utility of pooled data.

    At each step every site draws its records by Poisson, clips each record's gradient, sums them and adds its share of
    discrete noise; the masked sum opens and the server takes one step of Adam. Nobody pools rows, nobody adds noise of
    a whole site's size, and the server is not trusted. With `unit=client` one draw and one clip is for all records of a
    client, such as a patient that a site knows by a column.
    """
    model = autoencoder(task, architecture)
    plan = Phase("elbo", {part: SGD(0.0) for part in BOTH}, Epochs(1, 1))
    return _summed("site_vae", task, model, ALL_SHARED, plan, steps, privacy, sharing)


def site_gan(
    task: Task,
    networks: Adversaries = Adversaries(),
    steps: Steps = Steps(learning_rate=0.001),
    privacy: RecordPrivacy = RecordPrivacy(),
    generation: Generation = Generation(),
    opening: GeneratorOpening = GeneratorOpening(),
    sharing: Sharing = Sharing(),
) -> Algorithm:
    """A GAN over a few sites: the critic by DP-SGD for each record, the generator at the server.

    Sites send masked sums of the critic's clipped record gradients, as in site_vae; the server steps the critic and
    then trains the generator against it, which costs no more. An opening question, one masked sum as well, buys what
    the generator starts from (see gan_opening.py); with `start_share=0` it starts from nothing. The defaults are not
    tuned.
    """
    model = adversaries(task, networks, opening)
    homes = {part: Home.SHARED if part == CRITIC else Home.SERVER for part in model.parts}
    if CRITIC not in homes:
        raise Incompatible(
            "classes=separate: site_gan sums the gradients of one critic; set classes=conditional"
        )
    plan = Phase("discriminate", {CRITIC: SGD(0.0)}, Epochs(1, 1))
    painter = Adam(generation.generator_learning_rate, beta1=0.5, beta2=0.9)
    after = Phase("generate", {"generator": painter}, generation.rule(1))

    def ask(rate: float) -> Query:
        noise = answer_noise(opening.start_share, privacy.noise_multiplier, rate, steps.rounds)
        return starting_query(task, networks, opening, noise)

    question = ask if opening.start_share else None
    return _summed("site_gan", task, model, homes, plan, steps, privacy, sharing, after, question)


def _summed(
    name: str,
    task: Task,
    model: Model,
    homes: Mapping[str, Home],
    plan: Phase,
    steps: Steps,
    privacy: RecordPrivacy,
    sharing: Sharing,
    after: Phase | None = None,
    ask: Callable[[float], Query] | None = None,
) -> Algorithm:
    """One step of the server's Adam a round, along the noisy sum of the clipped gradients of the plan's parts.

    `ask` makes the question before the first round from the rate at which units are drawn; else it is the balance.
    """
    shared = tuple(plan.parts)
    units = task.clients
    if task.unit == "record":
        units = privacy.records or (task.public_records() if task.private else steps.batch_size)
    rate = min(1.0, steps.batch_size / units)
    parties = (sharing if task.private else Sharing(threshold=task.clients)).parties(task)
    size = total_size(model, shared)
    clip = Clip(privacy.clip, ((size, math.sqrt(1 - privacy.report**2)), (1, privacy.report)))
    mechanism = DistributedGaussian(
        clip,
        privacy.noise_multiplier if task.private else 0.0,
        size + 1,
        parties,
        contributions=most_drawn(rate * units),
        bits=sharing.bits or 24,
        coin=rate,
        rotate=False,
        unit=task.unit,
    )
    report = privacy.report * privacy.clip
    balance = balance_query(
        task, task.unit, privacy.noise_multiplier, rate, steps.rounds, privacy.balance_share
    )
    balance = balance if ask is None else ask(rate)
    transport = transport_named(task.transport if task.private else "secagg")
    adjacency = (
        "add-remove" if task.unit == "record" else "zero-out"
    )  # that a client is there the server knows
    return Algorithm(
        name=name,
        model=model,
        homes=homes,
        plan=(plan,),
        server_phase=after,
        mechanism=mechanism,
        schedule=Everyone(task.clients, "poisson", adjacency, units=units),
        server=ServerAdam(steps.learning_rate, 0.9, 0.999, 1e-8),
        rounds=steps.rounds,
        transport=transport.fitted(mechanism.wire(size + 1), task.clients),
        opening=None if balance is None else shared_query(balance, task, parties, units, task.unit),
        loss_share=report,
        record_sums=RecordSums(plan.objective, shared, mechanism, report),
    )
