"""The pieces of an evaluation of images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedsynth.assess.cache import fingerprint
from fedsynth.assess.scores.classifiers import chosen_classifiers
from fedsynth.assess.scores.features import FeatureNetwork, Features, extract, lenet
from fedsynth.assess.scores.image_fidelity import (
    frechet_distance,
    inception_score,
    kernel_distance,
    nearest_images,
    precision_and_recall,
    shown_neighbors,
)
from fedsynth.assess.scores.image_utility import IMAGE_CLASSIFIERS, Labelled, image_utility
from fedsynth.assess.scores.score import Score
from fedsynth.assess.scores.utility import MEASURES
from fedsynth.assess.step import Comparison, Found, Step
from fedsynth.data.image import Image
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

FRECHET, KERNEL = "Frechet distance of features (FID)", "kernel distance of features (KID)"
CLASSES, PRECISION, RECALL = "class score (IS)", "manifold precision", "manifold recall"
NEAREST = "distance to the nearest real image"
FEATURE_ROWS = {False: 5_000, True: 50_000}
MANIFOLD_ROWS = {False: 2_000, True: 10_000}
TRAIN_ROWS = {False: 3_000, True: 50_000}
TEST_ROWS = {False: 5_000, True: 10_000}
PASSES = {False: 4, True: 10}
_NEAREST_ROWS = {False: 500, True: 2_000}
_SHOWN, _SHOWN_NEAREST = 64, 16
_UNBOUNDED = (0.0, float(2**31))


def image_steps(compared: Comparison) -> Sequence[Step]:
    """Every piece for images; without a network, a LeNet is trained on the real images."""
    work = _Work(**vars(compared))
    steps = [
        Step("nearest images", (NEAREST,), work.nearest),
        Step("feature distances", (FRECHET, KERNEL), work.distances),
        Step("class score", (CLASSES,), work.class_score),
        Step("manifold", (PRECISION, RECALL), work.manifold),
    ]
    chosen = chosen_classifiers(compared.classifiers, IMAGE_CLASSIFIERS, IMAGE_CLASSIFIERS)
    return steps + ([work.usefulness(name) for name in chosen] if compared.schema.label else [])


class _Work(Comparison):
    """The images, encoded when the first piece needs them."""

    @cached_property
    def encoded(self) -> dict[str, Labelled]:
        """Each set as bytes and classes; without test images, a fifth of the real ones is held out."""
        encoded: dict[str, Labelled] = {}
        for what, data in self.data_sets.items():
            if data is None:
                continue
            if not len(data[0]):
                raise BadInput(f"there are no {what} images; expected at least one")
            try:
                encoded[what] = Image(self.schema).encode(data)
            except BadInput as error:
                raise BadInput(f"{what} {error}") from None
        return encoded

    @cached_property
    def split(self) -> tuple[Labelled, Labelled, str]:
        """Real images to train on, real images to test on, and where the latter come from."""
        images, classes = self.encoded["real"]
        if "test" in self.encoded:
            return (images, classes), self.encoded["test"], "test images"
        order = torch.randperm(len(images), generator=Rng(self.seed).at("held out").torch_generator())
        count = max(1, len(images) // 5)
        tested, kept = order[:count], order[count:]
        source = "a fifth of the real images, which the generator may have seen"
        return (images[kept], classes[kept]), (images[tested], classes[tested]), source

    @cached_property
    def features_by(self) -> FeatureNetwork:
        if self.network is not None:
            return self.network
        if not self.schema.label:
            raise BadInput(
                "without labels no LeNet can be trained; give a network such as efficientnet-lite0"
            )
        return lenet(*self.split[0], len(self.schema.classes), seed=self.seed)

    @cached_property
    def features(self) -> tuple[Features, Features, dict[str, Any]]:
        """Features of reference and synthetic images, and the setting that a score must name."""
        source = self.split[2]
        reference = self._some(self.split[1][0], FEATURE_ROWS[self.deep], "reference")
        synthetic = self._some(self.encoded["synthetic"][0], FEATURE_ROWS[self.deep], "synthetic")
        setting = {
            **self.features_by.setting(),
            "reference": source,
            "reference_hash": fingerprint(reference.numpy()),
            "reference_images": len(reference),
            "synthetic_images": len(synthetic),
        }
        return extract(self.features_by, reference), extract(self.features_by, synthetic), setting

    def distances(self) -> Found:
        real, synthetic, setting = self.features
        detail = {"setting": setting, "network": self.features_by.name}
        kernel, spread = kernel_distance(real.values, synthetic.values, self.seed)
        return Found(
            (
                Score(
                    FRECHET, frechet_distance(real.values, synthetic.values), "min", _UNBOUNDED, detail=detail
                ),
                Score(KERNEL, kernel, "min", _UNBOUNDED, spread, detail={**detail, "spread_of": "subsets"}),
            )
        )

    def class_score(self) -> Found:
        real, synthetic, setting = self.features
        value, spread = inception_score(synthetic.chances)
        detail = {
            "setting": setting,
            "network": self.features_by.name,
            "real": inception_score(real.chances)[0],
        }
        bounds = (1.0, float(synthetic.chances.shape[1]))
        return Found((Score(CLASSES, value, "max", bounds, spread, detail=detail),))

    def manifold(self) -> Found:
        real, synthetic, setting = self.features
        rows = MANIFOLD_ROWS[self.deep]
        values = precision_and_recall(real.values[:rows], synthetic.values[:rows])
        detail = {"setting": {**setting, "rows": rows}, "network": self.features_by.name, "neighbors": 3}
        return Found(
            tuple(
                Score(name, value, detail=detail)
                for name, value in zip((PRECISION, RECALL), values, strict=True)
            )
        )

    def nearest(self) -> Found:
        """How far synthetic images are from real training images, against unseen real images."""
        images = self.encoded["synthetic"][0][: _NEAREST_ROWS[self.deep]]
        known = self._some(self.split[0][0], 20_000, "known")
        rows, distances = nearest_images(images, known)
        unseen = nearest_images(self.split[1][0][: len(images)], known)[1]
        detail = {
            "unseen_real": float(unseen.median()),
            "copies": int((distances == 0).sum()),
            "images": len(images),
            "known": len(known),
        }
        near = shown_neighbors(rows, distances, _SHOWN_NEAREST)
        shown = {
            "synthetic": list(range(min(_SHOWN, len(images)))),
            "real": list(range(min(_SHOWN, len(self.real[0])))),
            "nearest": [{**each, "real": self._real_row(known, each["real"])} for each in near],
        }
        score = Score(NEAREST, float(distances.median()), "max", detail=detail)
        return Found((score,), {"images": shown})

    def _real_row(self, known: Tensor, row: int) -> int:
        """Where an image of the known ones stands among the real images that were given."""
        same = (self.encoded["real"][0] == known[row]).flatten(1).all(dim=1)
        return int(same.float().argmax())

    def usefulness(self, classifier: str) -> Step:
        def compute() -> Found:
            real, test, source = self.split
            rows = TRAIN_ROWS[self.deep]
            learned, synthetic, tested = (
                self._labelled(each, count, what)
                for each, count, what in (
                    (real, rows, "train"),
                    (self.encoded["synthetic"], rows, "made"),
                    (test, TEST_ROWS[self.deep], "judge"),
                )
            )
            seeds = (self.seed, self.seed + 1)
            count = len(self.schema.classes)
            scores = image_utility(
                learned, synthetic, tested, count, classifier, seeds=seeds, passes=PASSES[self.deep]
            )
            return Found(tuple(scores), {"test": source})

        return Step(classifier, tuple(f"{classifier}: {name}" for name in MEASURES), compute)

    def _some(self, images: Tensor, rows: int, what: str) -> Tensor:
        return self._labelled((images, images), rows, what)[0]

    def _labelled(self, each: Labelled, rows: int, what: str) -> Labelled:
        if len(each[0]) <= rows:
            return each
        generator = Rng(self.seed).at("images", what).torch_generator()
        kept = torch.randperm(len(each[0]), generator=generator)[:rows]
        return each[0][kept], each[1][kept]
