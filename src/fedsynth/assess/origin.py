"""What is known of how synthetic data were made, beyond the data: the claim, the generator and the recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedsynth.assess.attacks.shadow_game import MINUTES, ShadowGame
from fedsynth.assess.attacks.table_attacks import Claim
from fedsynth.assess.scores.augmentation import Sampler
from fedsynth.assess.scores.reader import Reader
from fedsynth.synthesis.synthesizer import Synthesizer


@dataclass(frozen=True)
class Origin:
    """Each is None where it is not known or not asked for; see `evaluate` for what each is good for."""

    claim: Claim | None = None
    sampler: Sampler | None = None
    shadows: ShadowGame | None = None
    reader: Reader | None = None

    @classmethod
    def of_run(cls, folder: Path | str, real: object, *, seed: int = 0, minutes: float = MINUTES) -> Origin:
        """All that a finished run tells; `real` are its training data, which tell how many clients it had."""
        made = Synthesizer.load(folder)
        claim = Claim.of(made.privacy)
        if made.schema.kind == "text":
            return cls(claim, reader=Reader(made.generator))
        if not isinstance(real, pd.DataFrame):
            return cls(claim)
        label = made.schema.label

        def sample(name: str, rows: int) -> pd.DataFrame:
            drawn = made.sample(rows, condition={str(label): name}, seed=seed)
            assert isinstance(drawn, pd.DataFrame)
            return drawn

        game = ShadowGame.of_run(folder, real, minutes=minutes)
        return cls(claim, sample if label else None, game)
