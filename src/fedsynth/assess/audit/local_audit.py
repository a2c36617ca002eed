"""The audit of local privacy: all that one client sends, with two data sets that differ in everything.

Nobody is trusted, so the attacker reads each message. Canary clients take all of their turns; each tries to send one
extreme vector or its opposite, by a coin, through the recipe's own mechanism, and the attacker tells them apart
by how well the messages fit. The opening question of a recipe is another release, by clients that do not train.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedsynth.assess.audit.canary import LOUD, CanaryGame, CanaryObservations
from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.mechanism import Mechanism

Contrast = Callable[[Tensor], np.ndarray]
_STACK = 512  # canaries that send at once


def is_local(algorithm: Algorithm) -> bool:
    """Whether each client hides its own messages."""
    charges = algorithm.charges()
    return bool(charges) and all(charge.release.trust == "local" for charge in charges)


def watch_local(game: CanaryGame) -> CanaryObservations:
    """All messages of canary clients in all their turns; each has one extreme vector or its opposite, by a coin."""
    algorithm, canaries, rng = game.algorithm, game.canaries, game.rng
    mechanism, dim = algorithm.mechanism, algorithm.dim
    pair, contrast = _extremes(mechanism, dim, algorithm.wire.kind)
    inside = rng.at("coins").uniforms(canaries) > 0.5
    scores, turns = np.zeros(canaries), algorithm.schedule.participations(algorithm.rounds)
    for first in range(0, canaries, _STACK):
        ids = np.arange(first, min(canaries, first + _STACK))
        attempt = pair[torch.from_numpy(inside[ids].astype(np.int64))]
        for turn in range(turns):
            sent = mechanism.privatize(attempt, mechanism.init(), rng.at("turn", turn), ids)
            scores[ids] += contrast(sent)
        if game.tell:
            game.tell(int(ids[-1]) + 1, canaries)
    return CanaryObservations(inside, scores)


def _extremes(mechanism: Mechanism, dim: int, kind: str) -> tuple[Tensor, Contrast]:
    """Two contributions [2, dim] that differ as much as any, and how much more a message speaks for the second.

    A mechanism for rows of codes knows both itself; for vectors it is a loud one and its opposite.
    """
    if hasattr(mechanism, "extremes") and hasattr(mechanism, "contrast"):
        return torch.from_numpy(mechanism.extremes).float(), mechanism.contrast
    extreme = torch.linspace(1.0, -1.0, dim)
    pattern = expected(mechanism, extreme)
    loud = LOUD * _reach(mechanism) * extreme
    return torch.stack([-loud, loud]), partial(_fit, pattern=pattern, kind=kind)


def expected(mechanism: Mechanism, extreme: Tensor) -> Tensor:
    """The average message, up to a factor: the attacker's matched filter [dim]."""
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
