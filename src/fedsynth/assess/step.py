"""One piece of an evaluation: it promises scores by name, and keeps the promise even when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedsynth.assess.scores.score import Score, failure
from fedsynth.data.modality import Data
from fedsynth.data.schema import Schema
from fedsynth.errors import FedsynthError

if TYPE_CHECKING:
    from fedsynth.assess.attacks.shadow_game import ShadowGame, Tell
    from fedsynth.assess.attacks.table_attacks import Claim
    from fedsynth.assess.scores.augmentation import Sampler
    from fedsynth.assess.scores.features import FeatureNetwork
    from fedsynth.assess.scores.reader import LanguageReader


@dataclass(frozen=True)
class Found:
    """The result of a step: scores, and plain data for plots by topic."""

    scores: tuple[Score, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """The data sets that are compared, and how.

    `real` are the rows that the generator was trained on, `test` are real rows that it never saw. `deep` uses
    more rows, more seeds and more classifiers. `sampler(class, rows)` makes synthetic rows of a class for a table whose
    rare class is balanced; without it they are taken out of `synthetic`. `network` gives the features that images are
    compared on; without it, a LeNet is trained on the real ones. `claim` is the privacy that attacks on a table, which
    need `test`, are set beside. `shadows` is the recipe of the run, which `deep` trains many times over to see whether
    that tells who was in. `reader` is the model that wrote texts, which is tested on unseen ones. `classifiers` by
    name, or "all", are used instead of the usual ones. Where the schema names a client column and the tables have it,
    nobody is held out in part and nobody is asked about twice. `tell` hears from long pieces.
    """

    real: Data
    synthetic: Data
    schema: Schema
    test: Data | None = None
    deep: bool = False
    seed: int = 0
    sampler: Sampler | None = None
    network: FeatureNetwork | None = None
    claim: Claim | None = None
    shadows: ShadowGame | None = None
    classifiers: Sequence[str] = ()
    reader: LanguageReader | None = None
    tell: Tell | None = None

    @property
    def data_sets(self) -> dict[str, Data | None]:
        """The data by name."""
        return {"real": self.real, "synthetic": self.synthetic, "test": self.test}


@dataclass(frozen=True)
class Step:
    """A piece of work with a title for the progress bar, and the names of the scores it promises."""

    title: str
    promises: tuple[str, ...]
    compute: Callable[[], Found]

    def run(self) -> Found:
        """Compute the step; if it stops, each promised score fails with the reason."""
        began = time.perf_counter()
        try:
            result = self.compute()
        except FedsynthError as error:
            return self._failed(str(error))
        except Exception as error:  # one broken score must not take the others with it
            return self._failed(f"unexpected {type(error).__name__}: {error}")
        seconds = {"seconds": {self.title: round(time.perf_counter() - began, 2)}}
        return Found(result.scores, {**result.details, **seconds})

    def _failed(self, reason: str) -> Found:
        names = self.promises or (self.title,)
        return Found(tuple(failure(name, reason) for name in names), {"failed": {self.title: reason}})
