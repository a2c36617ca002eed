"""From a recipe with noise at a trusted server to the same recipe with the noise shared out over its parties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Everyone
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.mechanism import Unit
from fedsynth.privacy.quantize import LARGEST
from fedsynth.privacy.sampling import most_drawn
from fedsynth.recipes.settings import checked, setting
from fedsynth.recipes.task import Task
from fedsynth.transport.registry import transport_named
from fedsynth.transport.ring import Parties

_QUERY_BITS = (31, 29, 27)  # a query is short: it takes the finest grid on which norms can be checked
_MOST_RECORDS = 5_000_000  # that can be counted: more would leave the ring, or a grid too coarse


@dataclass(frozen=True)
@checked
class Sharing:
    """How noise and masks are shared out over the parties of a sum, under trust=distributed."""

    threshold: int = setting(
        0,
        "parties that a sum needs to open (0: all but a tenth; all if one participant has more than a tenth)",
        0,
    )
    colluders: int = setting(0, "parties that may help the server, whose noise does not count", 0)
    bits: int = setting(
        0, "bits of a number on the wire (0: 20 for clients, 24 for records, 31 for counts)", 0, 31
    )

    def parties(self, task: Task) -> Parties:
        """Who shares out the noise: the clients of the task, of which the largest participant knows its own shares."""
        return Parties.among(task.clients, task.largest, self.threshold, self.colluders)


def shared_out(algorithm: Algorithm, task: Task, sharing: Sharing) -> Algorithm:
    """The algorithm with its central noise shared out over all clients, under trust=distributed; else as it is.

    The server knows whom it asks, so it asks everybody, and each client decides by its own coin whether to contribute:
    that is worth the same as the server's sampling would be to outsiders, and holds against the server too. That a
    client is there is not hidden from it, so neighbors differ in what a client contributes (zero-out).
    """
    if task.trust != "distributed":
        return algorithm
    if not task.private:
        raise Incompatible(
            f"{algorithm.name}: trust=distributed shares out noise, and --no-privacy has none; leave one of them out"
        )
    if algorithm.schedule.sampling == "fixed":
        raise Incompatible(
            f"{algorithm.name}: under trust=distributed each client draws by its own coin; set rate instead of cohort"
        )
    central = cast(CentralGaussian, algorithm.mechanism)
    coin = algorithm.schedule.expected / task.clients
    parties = sharing.parties(task)
    mechanism = DistributedGaussian(
        central.clip,
        central.noise_multiplier,
        algorithm.dim,
        parties,
        contributions=min(task.clients, most_drawn(coin * task.clients)),
        bits=sharing.bits or 20,
        coin=coin,
    )
    opening = algorithm.opening
    return replace(
        algorithm,
        mechanism=mechanism,
        schedule=Everyone(task.clients, "poisson" if coin < 1 else "none", "zero-out"),
        transport=transport_named(task.transport).fitted(mechanism.wire(algorithm.dim), task.clients),
        opening=None if opening is None else shared_query(opening, task, parties, task.clients),
    )


def shared_count(query: Query, task: Task, values: Mapping[str, Any]) -> Query:
    """The question for the number of records as a masked sum over all parties, with the recipe's own threshold."""
    settings = {name: int(values.get(name, 0)) for name in ("threshold", "colluders")}
    return shared_query(query, task, Sharing(**settings).parties(task), _MOST_RECORDS, "record")


def shared_query(query: Query, task: Task, parties: Parties, units: int, unit: Unit = "client") -> Query:
    """A query with central noise as a masked sum over all parties, of at most so many `units`."""
    if query.release is None:
        return query
    central = cast(CentralGaussian, query.mechanism)
    grids = (
        DistributedGaussian(
            central.clip,
            central.noise_multiplier,
            query.dim,
            parties,
            contributions=units,
            bits=bits,
            rotate=False,
            unit=unit,
        )
        for bits in _QUERY_BITS
    )
    mechanism = next(grid for grid in grids if grid.limit < LARGEST**2)
    transport = transport_named(task.transport).fitted(mechanism.wire(query.dim), task.clients)
    return replace(query, mechanism=mechanism, transport=transport)
