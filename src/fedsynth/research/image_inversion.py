"""An attack by the server on a client's update: images rebuilt by a search for those that would send the same.

For a table the update of one row is read off in closed form (inversion.py). For an image the attacker looks for one
whose gradient points where the update does (Zhu, Liu and Han 2019), by the angle between them, and smooth (Geiping et
al. 2020). They know the start of the first round, its one step and the client's label; what noise an
autoencoder added to the latent code they do not know, and search for it too. A first step of Adam is the sign of each
number of the gradient, so there they compare softened signs. A clip changes the length alone and hides nothing. What a
transport that opens sums alone shows, and what is released, is the noisy sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fedsynth.assess.scores.score import Goal, Score, failure
from fedsynth.data.clients import Clients
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.models.model import Params
from fedsynth.research.inversion import first_round
from fedsynth.rng import Rng
from fedsynth.training.optimizer import Adam
from fedsynth.training.rule import Epochs

NAMES = ("image inversion: single updates", "image inversion: noisy sum")
MOST_CLIENTS = 50
STEPS, _RATE = 400, 0.05  # of the search
_SMOOTH = 0.02  # weight of the differences between neighboring pixels
_GOAL: Goal = "min"


def image_inversion(algorithm: Algorithm, rows: Clients, rng: Rng, steps: int = STEPS) -> list[Score]:
    """How much of a client's only image the server rebuilds from its update, and from the noisy sum.

    Each of `rows` (at most 50) is the only image of a client that takes part in the first round. Scores are mean
    correlations over the pixels of an image; the detail's `baseline` is that of the mean image, which needs no update.
    """
    try:
        check(algorithm, rows)
        attacked = first_round(algorithm, rows, MOST_CLIENTS, rng)
    except (BadInput, Incompatible) as error:
        return [failure(name, str(error), goal=_GOAL) for name in NAMES]
    images, labels, count = attacked.rows.x, attacked.rows.y, len(attacked.messages)
    sides = attacked.messages, attacked.noisy[None].expand(count, -1)
    images_again = [rebuilt(algorithm, attacked.start.parts, each, labels, rng, steps) for each in sides]
    usual = likeness(images.float().mean(0, keepdim=True).expand_as(images), images)
    detail: dict[str, Any] = {
        "baseline": usual,
        "clients": count,
        "visible": attacked.visible,
        "steps": steps,
    }
    return [
        Score(NAMES[0], likeness(images_again[0], images), _GOAL, (-1.0, 1.0), detail=detail),
        Score(
            NAMES[1],
            likeness(images_again[1], images),
            _GOAL,
            (-1.0, 1.0),
            detail={**detail, "visible": True},
        ),
    ]


def check(algorithm: Algorithm, rows: Clients) -> None:
    """Refuse what the search does not know."""
    if rows.x.dim() != 4:
        raise Incompatible(
            "the search is for images: rows of a table are read off in closed form (inversion.py)"
        )
    if len(algorithm.plan) != 1 or not isinstance(algorithm.plan[0].rule, Epochs):
        raise Incompatible(
            f"{algorithm.name}: the search needs clients that train all parts in one plain step"
        )
    if not algorithm.shared or algorithm.wire.kind != "real":
        raise Incompatible(f"{algorithm.name}: the search needs an update that is sent as numbers")
    if rows.rows < 2:
        raise BadInput(f"{rows.rows} images: expected at least 2")


def rebuilt(
    algorithm: Algorithm, start: dict[str, Tensor], updates: Tensor, labels: Tensor, rng: Rng, steps: int
) -> Tensor:
    """Images in [0, 1] whose gradients point where updates [clients, dim] do."""
    objective, device = algorithm.plan[0].objective, updates.device
    shared, signs = algorithm.shared, isinstance(next(iter(algorithm.plan[0].optimizers.values())), Adam)
    sizes = [algorithm.layouts[part].size for part in shared]
    aimed = -updates[:, : sum(sizes)]
    rest = {part: flat for part, flat in start.items() if part not in shared}
    moving = torch.cat([start[part] for part in shared])

    def loss(flat: Tensor, image: Tensor, label: Tensor, noise: Tensor) -> Tensor:
        pieces = dict(zip(shared, flat.split(sizes), strict=True)) | rest
        named: dict[str, Params] = {
            part: algorithm.layouts[part].split(pieces[part]) for part in algorithm.layouts if part in pieces
        }
        batch = {"x": image[None], "y": label[None], "weight": torch.ones(1, device=device)}
        return algorithm.model.loss(objective, named, batch, noise[None])

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))
    draw = rng.at("search").torch_generator()
    shape = algorithm.model.objectives[objective].noise
    count, side = len(updates), algorithm.model.side  # type: ignore[attr-defined]  # images have one
    logits = 0.1 * torch.randn(count, algorithm.model.channels, side, side, generator=draw)  # type: ignore[attr-defined]
    noise = 0.1 * torch.randn(count, *shape, generator=draw)
    searched = [logits.to(device).requires_grad_(), noise.to(device).requires_grad_()]
    optimizer = torch.optim.Adam(searched, lr=_RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        images = searched[0].sigmoid()
        directions = gradients(moving, images, labels, searched[1])
        if signs:
            directions = directions / (
                directions.abs() + directions.detach().abs().mean(dim=1, keepdim=True) + 1e-12
            )
        apart = 1 - F.cosine_similarity(directions, aimed, dim=1)
        rough = images.diff(dim=2).abs().mean() + images.diff(dim=3).abs().mean()
        (apart.sum() + _SMOOTH * count * rough).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return searched[0].detach().sigmoid()


def likeness(made: Tensor, images: Tensor) -> float:
    """The mean over images of the correlation between their pixels; a flat one has none."""
    first, second = (each.float().flatten(1) for each in (made, images))
    first, second = (each - each.mean(1, keepdim=True) for each in (first, second))
    return float(F.cosine_similarity(first, second, dim=1).mean())
