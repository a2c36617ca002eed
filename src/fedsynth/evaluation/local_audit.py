"""The audit of local privacy: all that one client sends, with two data sets that differ in everything.

Nobody is trusted, so the attacker reads each message. Many copies of a client take all of its turns; half of them try
to send one extreme vector and half its opposite, through the recipe's own mechanism, and the attacker tells them apart
by how well the messages fit. The opening question of a recipe is another release, by clients that do not train.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput, Incompatible
from fedsynth.evaluation.audit import LEAST_CANARIES, Audit, Bound
from fedsynth.evaluation.audit_bound import bound_from_scores
from fedsynth.evaluation.canary import LOUD
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy import account
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.recipes.budget import adjacency_of
from fedsynth.rng import Rng

MANY_COPIES = "many copies of one client"
_STACK = 512  # copies that send at once


def is_local(algorithm: Algorithm) -> bool:
    """Whether each client hides its own messages."""
    charges = algorithm.charges()
    return bool(charges) and all(charge.release.trust == "local" for charge in charges)


def audit_local(
    algorithm: Algorithm,
    delta: float,
    *,
    copies: int = 8000,
    confidence: float = 0.99,
    claimed: Algorithm | None = None,
    rng: Rng | None = None,
) -> Audit:
    """Bound a client's epsilon from below; `claimed` is the algorithm whose cost is claimed, if it is another."""
    if copies < LEAST_CANARIES:
        raise BadInput(f"canaries={copies}: fewer than {LEAST_CANARIES} prove nothing; use more")
    if not 0.5 <= confidence < 1:
        raise BadInput(f"confidence={confidence}: expected a number from 0.5 to below 1, such as 0.99")
    told = claimed or algorithm
    (charge,) = told.charges()
    turns = told.schedule.participations(told.rounds)
    adjacency = adjacency_of(told)
    spent = account.epsilon(account.repeat(charge.event, turns), delta, adjacency=adjacency)
    stream = rng or Rng()
    scores = [
        sent_scores(algorithm, sign, copies // 2, stream.at("side", place))
        for place, sign in enumerate((1.0, -1.0))
    ]
    found = bound_from_scores(scores[0], scores[1], delta, confidence)
    bound = Bound(MANY_COPIES, found, {"turns": turns})
    return Audit(algorithm.name, charge.release.unit, adjacency, spent, delta, confidence, copies, (bound,))


def sent_scores(algorithm: Algorithm, sign: float, copies: int, rng: Rng) -> np.ndarray:
    """How well all messages of each copy fit the extreme vector, which it has with this sign [copies]."""
    mechanism, dim = algorithm.mechanism, algorithm.dim
    extreme = torch.linspace(1.0, -1.0, dim)
    pattern = expected(mechanism, extreme)
    scores = np.zeros(copies)
    for first in range(0, copies, _STACK):
        ids = np.arange(first, min(copies, first + _STACK))
        attempt = (sign * LOUD * _reach(mechanism) * extreme).expand(len(ids), -1)
        for turn in range(algorithm.schedule.participations(algorithm.rounds)):
            sent = mechanism.privatize(attempt, mechanism.init(), rng.at("turn", turn), ids)
            scores[ids] += _fit(sent, pattern, algorithm.wire.kind)
    return scores


def expected(mechanism: Mechanism, extreme: Tensor) -> Tensor:
    """What a message looks like on average, up to a factor: the attacker's matched filter [dim]."""
    clip, favored = (getattr(mechanism, name, None) for name in ("clip", "favored"))
    if clip is not None:
        return torch.as_tensor(clip.apply((LOUD * clip.bound * extreme)[None])[0]).double()
    if favored is None:
        raise Incompatible(
            f"{type(mechanism).__name__}: neither clips nor favors coordinates, so no message is the worst there is"
        )
    pattern = torch.zeros(len(extreme), dtype=torch.float64)
    count = favored(len(extreme))
    pattern[torch.topk(extreme, count).indices] += 1.0
    pattern[torch.topk(-extreme, count).indices] -= 1.0
    return pattern


def _reach(mechanism: Mechanism) -> float:
    clip = getattr(mechanism, "clip", None)
    return 1.0 if clip is None else float(clip.bound)


def _fit(sent: Tensor, pattern: Tensor, kind: str) -> np.ndarray:
    if kind == "signed-index":
        return np.asarray((sent.sign() * pattern[sent.abs() - 1]).sum(1).numpy())
    return np.asarray((sent.double() @ pattern).numpy())
