"""Few sites, many records: DP-SGD for each record over sites that pool nothing and trust no server.

Client-level privacy needs thousands of clients; a consortium has five hospitals. Here the unit is a record, each site
draws, clips and sums its records' gradients and adds its share of the noise, and only the sum over the sites opens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.schedule import Everyone
from fedsynth.federation.server import ServerAdam
from fedsynth.models.model import total_size
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian, Parties
from fedsynth.recipes.settings import Architecture, RecordPrivacy, check_ranges, setting
from fedsynth.recipes.sharing import Sharing, most_drawn, shared_query
from fedsynth.recipes.task import Task
from fedsynth.recipes.vae import ALL_SHARED, BOTH, autoencoder, balance_query
from fedsynth.training.optimizer import SGD
from fedsynth.training.plan import Phase
from fedsynth.training.rule import Epochs
from fedsynth.training.summed import RecordSums
from fedsynth.transport.registry import transport_named


@dataclass(frozen=True)
class Steps:
    """How long and how fast the server trains: a round is one step."""

    rounds: int = setting(600, "steps of training; each is one masked sum over the sites", 1)
    batch_size: int = setting(1024, "expected records in a step, over all sites together", 1)
    learning_rate: float = setting(0.01, "step size of the server's Adam", 1e-12)

    def __post_init__(self) -> None:
        check_ranges(self)


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
    a whole site's size, and the server is not trusted.
    """
    model = autoencoder(task, architecture)
    records = privacy.records or (task.public_records() if task.private else steps.batch_size)
    rate = min(1.0, steps.batch_size / records)
    parties = sharing.parties(task.clients) if task.private else Parties(task.clients, task.clients)
    size = total_size(model, BOTH)
    clip = Clip(privacy.clip, ((size, math.sqrt(1 - privacy.report**2)), (1, privacy.report)))
    mechanism = DistributedGaussian(
        clip,
        privacy.noise_multiplier if task.private else 0.0,
        size + 1,
        parties,
        contributions=most_drawn(rate * records),
        bits=sharing.bits or 24,
        coin=rate,
        rotate=False,
        unit="record",
    )
    report = privacy.report * privacy.clip
    balance = balance_query(
        task, "record", privacy.noise_multiplier, rate, steps.rounds, privacy.balance_share
    )
    transport = transport_named(task.transport if task.private else "secagg")
    return Algorithm(
        name="site_vae",
        model=model,
        homes=ALL_SHARED,
        plan=(Phase("elbo", {part: SGD(0.0) for part in BOTH}, Epochs(1, 1)),),
        mechanism=mechanism,
        schedule=Everyone(task.clients, "poisson", units=records),
        server=ServerAdam(steps.learning_rate, 0.9, 0.999, 1e-8),
        rounds=steps.rounds,
        transport=transport.fitted(mechanism.wire(size + 1), task.clients),
        balance=None if balance is None else shared_query(balance, task, parties, records, "record"),
        report=report,
        sums=RecordSums("elbo", BOTH, mechanism, report),
    )
