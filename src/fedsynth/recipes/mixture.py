"""Images from noisy sums of records: a mixture of Gaussians in each class, its components learned in a few rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.state import ServerState
from fedsynth.models.mixture import Components, Mixture, MixtureForm, MixtureModel, low_first
from fedsynth.models.mixture_fit import (
    MixtureAnswer,
    first_centers,
    reaches,
    read_answer,
    shrunk_shift,
    split_large,
    spread_factor,
)
from fedsynth.models.spectrum import middle
from fedsynth.recipes.marginals import CountPrivacy, count_mechanism, counted
from fedsynth.recipes.settings import checked, setting
from fedsynth.recipes.sharing import Sharing
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.training.mixture_sums import MixtureSums

_LEAST_ROOM = 0.5  # of a record's norm that rounding to grid steps must leave
_CAVEAT = "Which component a record is nearest to is decided at its site, and components are moved by noisy sums alone."


@dataclass(frozen=True)
@checked
class Mixing:
    """How the pictures of a class are told apart, and how they are drawn."""

    rounds: int = setting(
        6, "rounds; each is one noisy sum and has the same share of the budget", 2, role="rounds"
    )
    components: int = setting(20, "Gaussians in each class; fewer have less noise", 1, 1000)
    frequencies: int = setting(0, "lowest frequencies of a channel that centers have (0: all)", 0)
    moments: int = setting(100, "lowest numbers of a picture whose spread is asked for", 1, 1000)
    wobble: float = setting(
        0.0,
        "how far drawn pictures are turned, sheared and shifted at random (1: as handwriting varies)",
        0.0,
        3.0,
    )
    bend: float = setting(
        0.0, "how far drawn pictures are bent at random, smoothly (1: as handwriting varies)", 0.0, 3.0
    )
    cut: float = setting(
        0.0, "brightness up to which a drawn pixel is black, and as near to white white", 0.0, 0.45
    )
    grain: float = setting(0.0, "standard deviation of noise in each drawn pixel, white being 1", 0.0, 1.0)


@dataclass(frozen=True)
class MixtureLearning:
    """Turns the rounds' sums into the next centers, and at the end into the mixture."""

    form: MixtureForm
    sums: MixtureSums
    noise: float  # standard deviation of each number of the sum over all sites
    sites: int
    rounds: int
    labelled: bool

    def first(self, parts: dict[str, Tensor], rng: Rng) -> dict[str, Tensor]:
        """The parts with the first question: all components of all groups are one grey spot."""
        spot = low_first(
            middle(self.form.channels, self.form.side, self.form.frequencies), self.form.channels
        )
        centers = spot.expand(self.form.groups, self.form.components, -1)
        components = Components(centers, True, self.form.radius, self.form.radius)
        return {**parts, "question": self.form.write(components)}

    def __call__(self, state: ServerState, mean: Tensor, rng: Rng) -> ServerState:
        """The state after this answer, with the next centers."""
        form, components = self.form, self.form.read(state.parts["question"])
        answer = read_answer(form, components, mean * self.sites, self.noise, self.sums.scale(components))
        shift = shrunk_shift(form, answer)
        centers, counts = components.centers.double() + shift, answer.counts
        factor = spread_factor(form, answer, shift) if components.spread else state.memory["factor"]
        if not state.version:  # all records of a group are in its first component
            centers = centers[:, :1].expand_as(centers)
            counts = counts[:, :1].expand_as(counts) / form.components
        memory = {"centers": centers, "counts": counts, "factor": factor}
        last = state.version + 2 >= self.rounds
        draw = rng.at("centers").torch_generator()
        following = self._following(state, answer, memory, draw)
        reach, low_reach = components.reach, components.low_reach
        if not state.version:
            reach, low_reach = reaches(form, factor)
        question = form.write(Components(following, last, reach, low_reach))
        return replace(state, memory=memory, parts={**state.parts, "question": question})

    def _following(
        self, state: ServerState, answer: MixtureAnswer, memory: dict[str, Tensor], draw: torch.Generator
    ) -> Tensor:
        """The centers that are asked about next."""
        if not state.version:
            return first_centers(memory["centers"][:, 0], memory["factor"], self.form.components, draw)
        return split_large(memory["centers"], memory["counts"], answer.few, memory["factor"], draw)

    def finish(self, state: ServerState) -> ServerState:
        """The state with the mixture that the answers so far say."""
        counts = state.memory["counts"].clamp(min=0) + 1e-9
        shares = counts / counts.sum(1, keepdim=True)
        mixture = Mixture(shares, state.memory["centers"], state.memory["factor"])
        state = replace(state, parts={**state.parts, "fitted": mixture.pack()})
        if not self.labelled:
            return state
        return state.with_balance((counts.sum(1) / counts.sum()).float())


def mixture(
    task: Task,
    mixing: Mixing = Mixing(),
    privacy: CountPrivacy = CountPrivacy(),
    sharing: Sharing = Sharing(),
) -> Algorithm:
    """Gaussians in each class, learned by private k-means over sums of records: for images, each record protected.

    A round sends the centers down. Each record is counted in the nearest one of its class, with its way from it, as one
    vector of bounded norm; only noisy sums over all sites are seen. The first and the last round also ask how records
    spread about the centers.
    """
    if task.kind != "image":
        raise Incompatible(f"kind={task.kind}: mixture makes images")
    channels, side = task.image
    frequencies = min(mixing.frequencies or side**2, side**2)
    moments = min(mixing.moments, channels * frequencies)
    form = MixtureForm(channels, side, max(1, task.classes), mixing.components, frequencies, moments)
    mechanism, noise = count_mechanism(task, privacy, form.answer, sharing)
    sums = MixtureSums(form, mechanism)
    if sums.room(spread=True) < _LEAST_ROOM:
        raise Incompatible(
            f"moments={moments}: rounding {form.products:,} products to grid steps takes more than half of a record's "
            "norm; set moments or most_records lower"
        )
    learning = MixtureLearning(form, sums, noise, task.clients, mixing.rounds, bool(task.classes))
    model = MixtureModel(form, mixing.wobble, mixing.grain, mixing.cut, mixing.bend)
    return counted("mixture", task, mixing.rounds, model, sums, learning, (_CAVEAT,))
