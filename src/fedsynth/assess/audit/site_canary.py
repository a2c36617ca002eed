"""Canaries in masked sums over sites: units whose clipped gradients point along coordinates of their own.

The recipe's own mechanism draws the units by their coins, clips and rounds what they contribute and adds each party's
share of the noise; the recipe's own loop and transport open the sum. Only the model is another: its gradient for a row
is the row, so that a canary sends the most that it may.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fedsynth.assess.audit.canary import LOUD, CanaryGame, CanaryObservations, log_likelihood
from fedsynth.assess.audit.record_canary import Pointer
from fedsynth.assess.audit.table_canary import watch_sums
from fedsynth.data.clients import Clients
from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.schedule import Everyone
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.training.optimizer import SGD
from fedsynth.training.plan import Phase
from fedsynth.training.record_sums import RecordSums
from fedsynth.training.rule import Epochs
from fedsynth.transport.ring import Parties


def watch_sites(game: CanaryGame) -> CanaryObservations:
    """One whole training with canary units, dealt to the sites; each is in or out by a coin.

    Where a unit is a client, each canary is a party of its own. All parties arrive, and the noise of all of them
    together is just what the claim needs.
    """
    inside = game.rng.at("coins").uniforms(game.canaries) > 0.5
    played = pointing(game.algorithm, game.canaries)
    mechanism = played.mechanism
    assert isinstance(mechanism, DistributedGaussian)
    bound, by_client = mechanism.clip.bound, mechanism.unit == "client"
    sent = watch_sums(
        game, played, _dealt(inside, played.schedule.clients, LOUD * bound, by_client=by_client)
    )
    own = (
        -one[: game.canaries] / bound for one in sent
    )  # the model steps downhill: the opposite of the row is sent
    return CanaryObservations(
        inside, np.sum([log_likelihood(one, game.event, swapped=False) for one in own], axis=0)
    )


def pointing(algorithm: Algorithm, canaries: int) -> Algorithm:
    """The algorithm with its own noise, coin, clip and rounds, over a model with a coordinate for each canary."""
    sums = algorithm.record_sums
    if not isinstance(sums, RecordSums):
        raise Incompatible(f"{algorithm.name}: its clients train by themselves and send no sums of gradients")
    inner, schedule = sums.mechanism, algorithm.schedule
    assert isinstance(schedule, Everyone)
    clients = canaries if inner.unit == "client" else schedule.clients
    (_, update), (_, loss_bound) = inner.clip.blocks
    mechanism = replace(
        inner,
        dim=canaries + 1,
        clip=Clip(inner.clip.bound, ((canaries, update), (1, loss_bound))),
        parties=Parties(clients, clients, largest=0),
    )
    return replace(
        algorithm,
        model=Pointer(canaries),
        homes={"pointer": Home.SHARED},
        plan=(Phase("pointing", {"pointer": SGD(0.0)}, Epochs(1, 1)),),
        mechanism=mechanism,
        schedule=replace(schedule, clients=clients),
        transport=algorithm.transport.fitted(mechanism.wire(canaries + 1), clients),
        record_sums=replace(sums, objective="pointing", parts=("pointer",), mechanism=mechanism),
        opening=None,
        server_phase=None,
        warm_start=None,
    )


def _dealt(inside: np.ndarray, clients: int, height: float, *, by_client: bool) -> Clients:
    """The rows of the canaries that are in: each at its own client, or dealt to the sites in turn."""
    numbers = np.flatnonzero(inside)
    owners = numbers if by_client else np.arange(len(numbers)) % clients
    order = np.argsort(owners, kind="stable")
    rows = torch.zeros(len(numbers), len(inside))
    rows[torch.arange(len(numbers)), torch.from_numpy(numbers[order])] = height
    sizes = np.bincount(owners, minlength=clients)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Clients(rows, torch.zeros(len(numbers), dtype=torch.int64), offsets)
