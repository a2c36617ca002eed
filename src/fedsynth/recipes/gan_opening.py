"""Where a GAN starts: from one noisy answer of all clients, or of all their records, bought with part of the budget.

For images the answer is each class's mean and covariance, of which the generator draws its pictures before it retouches
them; for photographs it is the mean pattern of each class (models/pattern.py). For tables it is the distribution of
every two columns; the server fits a latent class model to them, simulates rows with it and pre-trains the generator on
those, as the decoder of an autoencoder whose encoder is thrown away. All of it is post-processing of what was released,
so it costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedsynth.errors import Incompatible
from fedsynth.federation.class_means import ClientMeans, RecordMeans, class_counts, class_means
from fedsynth.federation.pair_shares import ClientPairs
from fedsynth.federation.query import Learn, Query
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import as_probabilities
from fedsynth.models.gan import TableGAN
from fedsynth.models.latent_classes import LatentClasses, fit_latent_classes
from fedsynth.models.model import Layout, Params, initialise, layouts
from fedsynth.models.moment_vae import MomentVAE, inverse
from fedsynth.models.pattern import PatternStart
from fedsynth.models.per_class import of_class
from fedsynth.models.vae import TableVAE
from fedsynth.recipes.answer import noised_once
from fedsynth.recipes.moment_vae import moments_query, refuse_absent
from fedsynth.recipes.opening import RowsByClass, pretrain
from fedsynth.recipes.settings import checked, setting
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng

_FITTING = 600  # steps of fitting latent classes


@dataclass(frozen=True)
@checked
class GeneratorOpening:
    """The question that clients are asked once before the rounds, and its share of the budget."""

    start_share: float = setting(
        0.9, "share of the budget for the opening question (0: none is asked, as in the paper)", 0.0, 0.999
    )
    frequencies: int = setting(100, "lowest frequencies of an image's channel that moments are taken of", 4)
    start_from: str = setting(
        "auto",
        "covariances (of each class), patterns (the mean shape of each, lighter or darker than its ground), or auto: "
        "patterns for color images",
        choices=("auto", "covariances", "patterns"),
    )
    levels: int = setting(
        17, "levels of brightness that pixels of images are asked for (0: Gaussians as they are)", 0
    )
    directions: int = setting(60, "main directions of the classes' covariances, for images", 1)
    latent_classes: int = setting(16, "latent classes that rows are simulated with, for tables", 1)
    pretraining: int = setting(1500, "steps on simulated rows before the first round, for tables", 0)


def start_of(task: Task, opening: GeneratorOpening, classes: int) -> MomentVAE | PatternStart:
    """The start of an image generator that is conditioned on so many classes."""
    return patterns_of(task, opening, classes) or moments_of(task, opening, classes)


def moments_of(task: Task, opening: GeneratorOpening, classes: int) -> MomentVAE:
    """The Gaussians that a generator of images starts from: one for each of so many classes, or one in all."""
    channels, side = task.image
    frequencies = min(opening.frequencies, side**2)
    rank = min(opening.directions, channels * frequencies)
    return MomentVAE(channels, side, classes, frequencies, rank, levels=opening.levels)


def patterns_of(task: Task, opening: GeneratorOpening, classes: int) -> PatternStart | None:
    """The patterns that a generator of photographs starts from; None where it starts from covariances."""
    channels, side = task.image
    by_class = classes == task.classes
    if opening.start_from == "patterns" and not by_class:
        raise Incompatible(
            "start_from=patterns: patterns are those of classes; set classes=conditional, or "
            "start_from=covariances"
        )
    wanted = {"patterns": True, "covariances": False, "auto": channels > 1 and by_class}
    if not wanted[opening.start_from]:
        return None
    return PatternStart(channels, side, classes, min(opening.frequencies, side**2))


def opening_query(
    task: Task, opening: GeneratorOpening, arrangement: str, noise_multiplier: float, rows: TableGAN | None
) -> Query:
    """Ask for what the generators start from; `rows` is one GAN of a table, None for images."""
    if rows is None:
        return images_query(task, opening, arrangement, noise_multiplier)
    return rows_query(task, rows, opening, arrangement, noise_multiplier)


def images_query(task: Task, opening: GeneratorOpening, arrangement: str, noise_multiplier: float) -> Query:
    """Ask for the class moments, and deal them out to the GANs that start from them."""
    whole = arrangement == "conditional" or not task.classes
    patterns = patterns_of(task, opening, task.classes if whole else 0)
    if patterns is not None:
        return patterns_query(task, patterns, noise_multiplier)
    query = moments_query(task, moments_of(task, opening, task.classes), noise_multiplier)
    if whole:
        return query
    assert query.learn is not None
    every, one = moments_of(task, opening, task.classes), moments_of(task, opening, 0)
    return replace(query, learn=DealtOut(query.learn, every, one, arrangement == "separate"))


def patterns_query(task: Task, start: PatternStart, noise_multiplier: float) -> Query:
    """Ask for the class means of patterns, and one spread for all."""
    kind = RecordMeans if task.unit == "record" else ClientMeans
    statistic = kind(start.features, start.numbers, start.groups)
    mechanism, noise = noised_once(task, noise_multiplier)
    learn = FillPatterns(start, statistic, noise, task.schema.classes)
    return Query(
        "class patterns", statistic, statistic.width, mechanism, task.clients, task.unit, learn=learn
    )


@dataclass(frozen=True)
class FillPatterns:
    """Turns the noisy class means into the class balance and what pictures are drawn from."""

    start: PatternStart
    statistic: RecordMeans | ClientMeans
    noise: float
    classes: tuple[str, ...] = ()

    def __call__(self, state: ServerState, answer: Tensor, rng: Rng) -> ServerState:
        """The state that knows the patterns."""
        refuse_absent(self.classes, *class_counts(self.statistic, answer, self.noise))
        means, scale = class_means(self.statistic, answer, self.noise), self.start.scale()
        spread = means.spread / scale
        named = {"mean": means.mean / scale, "spread": spread, "grain": self.start.grain(spread)}
        parts = {**state.parts, "prior": Layout.of(self.start.parts["prior"]).join(named)}
        return replace(state, parts=parts).with_balance(as_probabilities(means.shares))


@dataclass(frozen=True)
class DealtOut:
    """The Gaussians of all classes as one for each GAN of its own, or as one Gaussian for all."""

    learn: Learn
    whole: MomentVAE
    one: MomentVAE
    separate: bool

    def __call__(self, state: ServerState, answer: Tensor, rng: Rng) -> ServerState:
        """The state with the parts that the GANs have."""
        learned = self.learn(state, answer, rng)
        parts = dict(learned.parts)
        named = layouts(self.whole)["prior"].split(parts.pop("prior"))
        single = layouts(self.one)["prior"]
        if not self.separate:
            assert learned.balance is not None
            parts["prior"] = single.join(pooled(named["mean"], named["factor"], learned.balance))
            return replace(learned, parts=parts)
        curve = parts.pop("levels", None)
        for number in range(self.whole.classes):
            own = {name: value[number : number + 1] for name, value in named.items()}
            parts[of_class("prior", number)] = single.join(own)
            if curve is not None:
                parts[of_class("levels", number)] = curve.clone()  # a file cannot hold one tensor twice
        return replace(learned, parts=parts)


def pooled(mean: Tensor, factor: Tensor, shares: Tensor) -> Params:
    """The one Gaussian that has the mean and covariance of a mixture: mean [classes, n], factor [classes, n, rank]."""
    weight = shares / shares.sum()
    middle = weight @ mean
    apart = mean - middle
    spread = torch.einsum("c,cnl,cml->nm", weight, factor, factor)
    values, vectors = torch.linalg.eigh(spread + torch.einsum("c,cn,cm->nm", weight, apart, apart))
    rank = factor.shape[-1]
    main = (vectors[:, -rank:] * values[-rank:].clamp(min=0).sqrt())[None]
    return {"mean": middle[None], "factor": main, "inverse": inverse(main)}


def rows_query(
    task: Task, model: TableGAN, opening: GeneratorOpening, arrangement: str, noise_multiplier: float
) -> Query:
    """Ask for the shares of every two values, and pre-train the generator (`model` is one GAN) with them."""
    statistic = ClientPairs(task.blocks, task.classes)
    mechanism, noise = noised_once(task, noise_multiplier)
    separate = arrangement == "separate"
    learn = PretrainedRows(model, statistic, noise, opening.latent_classes, opening.pretraining, separate)
    what = "shares of pairs of values"
    return Query(what, statistic, statistic.width, mechanism, task.clients, task.unit, learn=learn)


@dataclass(frozen=True)
class PretrainedRows:
    """Turns the noisy shares of pairs into the class balance and generators that make such rows."""

    model: TableGAN
    statistic: ClientPairs
    noise: float
    latent_classes: int
    steps: int
    separate: bool

    def __call__(self, state: ServerState, answer: Tensor, rng: Rng) -> ServerState:
        """The state that the rounds start from."""
        known, classes = self.statistic.read(answer, self.noise), self.statistic.classes
        learned = fit_latent_classes(
            self.statistic.sizes,
            known.single,
            known.pairs,
            known.precision,
            self.latent_classes,
            bool(classes),
            _FITTING,
            rng.at("classes").torch_generator(),
        )
        if self.separate:
            trained = {
                of_class("generator", number): self._generator(_of_label(learned, number), rng.at(number))
                for number in range(classes)
            }
        else:
            trained = {"generator": self._generator(learned, rng)}
        balance = as_probabilities(known.single[-classes:]) if classes else torch.ones(1)
        return replace(state, parts={**state.parts, **trained}).with_balance(balance)

    def _generator(self, learned: LatentClasses, rng: Rng) -> Tensor:
        """The decoder of an autoencoder of simulated rows."""
        model = self.model
        around = TableVAE(model.width, model.blocks, model.classes, model.latent, model.generator_hidden, 1.0)
        simulate = RowsByClass(model.width, model.blocks, learned)
        return pretrain(around, initialise(around, rng), simulate, self.steps, rng, "elbo")["decoder"]


def _of_label(learned: LatentClasses, number: int) -> LatentClasses:
    """The latent classes of rows with this label."""
    return replace(learned, shares=learned.shares * learned.chances[-1][:, number])
