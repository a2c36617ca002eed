"""How synthetic data were made, as far as it is known: the claim, the generator and the recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedsynth.assess.attacks.shadow_game import MINUTES, ShadowGame
from fedsynth.assess.attacks.table_attacks import Claim
from fedsynth.assess.scores.augmentation import Sampler
from fedsynth.assess.scores.reader import LanguageReader
from fedsynth.errors import BadInput
from fedsynth.privacy.statement import Statement
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import checked_run
from fedsynth.synthesis.synthesizer import Synthesizer


@dataclass(frozen=True)
class Origin:
    """Each is None where it is not known or not asked for; see `evaluate` for what each is good for."""

    claim: Claim | None = None
    sampler: Sampler | None = None
    shadows: ShadowGame | None = None
    reader: LanguageReader | None = None

    @classmethod
    def of_run(cls, folder: Path | str, real: object, *, seed: int = 0, minutes: float = MINUTES) -> Origin:
        """All that a finished run tells; `real` are its training data, which tell how many clients it had."""
        run = Synthesizer.load(folder)
        claim = Claim.of(run.privacy)
        if run.schema.vocabulary:
            return cls(claim, reader=LanguageReader(run.generator))
        if not isinstance(real, pd.DataFrame):
            return cls(claim)
        label = run.schema.label

        def sample(name: str, rows: int) -> pd.DataFrame:
            return run.sample(rows, condition={str(label): name}, seed=seed)

        game = ShadowGame.of_run(folder, real, minutes=minutes)
        return cls(claim, sample if label else None, game)


def origin_of(
    run: Path | str | None,
    privacy: Path | str | None,
    epsilon: float | None,
    delta: float | None,
    real: object,
    seed: int,
    minutes: float,
) -> Origin:
    """Find the claim of synthetic data and how they were made, as far as the command line says."""
    claims = {"--run": run, "--privacy": privacy, "--epsilon": epsilon}
    named = [flag for flag, value in claims.items() if value]
    if len(named) > 1:
        raise BadInput(f"{' and '.join(named)}: each names a claim; give one of them")
    if (epsilon is None) != (delta is None):
        raise BadInput("--epsilon and --delta: a claim has both; give the other one as well")
    if run:
        return Origin.of_run(run, real, seed=seed, minutes=minutes)
    if privacy:
        run = Path(privacy).parent
        in_a_run = Path(privacy) == Folder(run).privacy and Folder(run).recipe.exists()
        return Origin(Claim.of(checked_run(run).statement if in_a_run else Statement.load(privacy)))
    if epsilon is None or delta is None:
        return Origin()
    if not (epsilon > 0 and 0 < delta < 1):
        raise BadInput(
            f"--epsilon {epsilon:g} --delta {delta:g}: expected epsilon above 0 and delta in (0, 1)"
        )
    return Origin(Claim(epsilon, delta))
