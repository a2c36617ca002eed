"""The three risks of the Article 29 Working Party's Opinion 05/2014: singling out, linkability, inference.

Defined as by Giomi et al. (2023), "A Unified Framework for Quantifying Privacy Risk in Synthetic Data" (Anonymeter):
an attack is tried on rows that were trained on and on as many that were not (the control). The risk is how much more
often it succeeds on the former, as a share of what is left to gain, with Wilson's confidence interval: 0 is no more
than is known of strangers, 1 is always. Distances are by Gower (1971), scaled by the public range; missing values
equal each other and are 1 apart from all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from fedsynth.assess.attacks.attribute import read_codes
from fedsynth.assess.attacks.distance import asked_rows, drawn
from fedsynth.assess.scores.score import Score, failure
from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

NAMES = ("singling out", "linkability", "inference")
CONFIDENCE = 0.95
_MOST_ASKED = 500  # rows that are linked, and whose values are guessed
_MOST_SINGLED = 5_000  # rows among which one is singled out
_MOST_SYNTHETIC = 5_000
_QUERIES, _TRIES, _COLUMNS = 500, 5_000, 3  # of singling out
_TOLERANCE = 0.05  # relative: a number guessed so closely counts as guessed


def score_name(name: str) -> str:
    """The name of the score.

    >>> score_name("linkability")
    'linkability: risk'
    """
    return f"{name}: risk"


@dataclass(frozen=True)
class Risk:
    """How often an attack succeeded in `attacks` attempts: on training rows, on control rows, and by guessing."""

    name: str
    attacks: int
    members: int
    control: int
    guessed: int
    confidence: float = CONFIDENCE

    def _rate(self, successes: int) -> tuple[float, float]:
        """Wilson's estimate of a rate, and half of its confidence interval."""
        z = float(norm.ppf((1 + self.confidence) / 2))
        whole = self.attacks + z * z
        variance = successes * (self.attacks - successes) / self.attacks
        return (successes + z * z / 2) / whole, z / whole * math.sqrt(variance + z * z / 4)

    @property
    def interval(self) -> tuple[float, float, float]:
        """The risk with the ends of its confidence interval, each between 0 and 1.

        >>> [round(end, 3) for end in Risk("linkability", 500, 60, 20, 5).interval]
        [0.083, 0.049, 0.117]
        """
        (rate, error), (base, base_error) = self._rate(self.members), self._rate(self.control)
        risk = (rate - base) / (1 - base)
        spread = math.hypot(error / (1 - base), base_error * (rate - 1) / (1 - base) ** 2)
        value, low, high = (min(max(each, 0.0), 1.0) for each in (risk, risk - spread, risk + spread))
        return value, low, high

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        risk, low, high = self.interval
        rates = {"members": self.members, "control": self.control, "guessed": self.guessed}
        shares = {name: count / self.attacks for name, count in rates.items()}
        return {
            "name": self.name, "attacks": self.attacks, **shares, "risk": risk, "at_least": low, "at_most": high,
            "confidence": self.confidence,
        }  # fmt: skip


def article29_risks(
    real: pd.DataFrame, synthetic: pd.DataFrame, holdout: pd.DataFrame, schema: Schema, *, seed: int = 0
) -> list[Score]:
    """A score for each of the three risks; `holdout` are real rows that no generator saw.

    The detail of inference has every column as the secret; the score is that of the column with the highest risk, with
    a confidence interval that allows for having looked at all of them.
    """
    rng = Rng(seed)
    try:
        if len(schema.names) < 2:
            raise BadInput("the table has one column; linking and guessing need at least two")
        pools = [read_codes(part, schema) for part in asked_rows(real, holdout, schema, rng, _MOST_SINGLED)]
        learned = read_codes(
            drawn(synthetic, min(len(synthetic), _MOST_SYNTHETIC), rng.at("synthetic")), schema
        )
    except BadInput as error:
        return [failure(score_name(name), str(error), goal="min") for name in NAMES]
    columns = [column for column in schema.columns if column.name in schema.names]
    few = [pool[:_MOST_ASKED] for pool in pools]
    secrets = inference(columns, learned, few, rng.at("inference"))
    worst = max(secrets, key=lambda name: secrets[name].interval[0])
    risks = [singling_out(columns, learned, pools, rng.at("single")), linkability(columns, learned, few)]
    more = {"secret": worst, "secrets": {name: risk.to_dict() for name, risk in secrets.items()}}
    return [*(_score(risk, {}) for risk in risks), _score(secrets[worst], more)]


def _score(risk: Risk, more: dict[str, Any]) -> Score:
    name = score_name(risk.name)
    if not risk.attacks:
        return failure(name, "no description by three values fits just one synthetic row", goal="min")
    return Score(name, risk.interval[0], "min", detail={**risk.to_dict(), **more, "article_29": True})


def singling_out(
    columns: Sequence[Column], learned: np.ndarray, pools: Sequence[np.ndarray], rng: Rng
) -> Risk:
    """Describe one synthetic row by three of its values so that no other fits, and see whether one real row fits.

    Of a number the description says "at least" above the middle and "at most" below it.
    """
    draw = rng.numpy()
    middles = np.nanmedian(np.where(np.isnan(learned).all(axis=0), 0.0, learned), axis=0)
    numeric = np.array([column.numeric for column in columns])
    successes, attacks = [0, 0, 0], 0
    for _ in range(_TRIES):
        chosen = draw.choice(len(columns), min(_COLUMNS, len(columns)), replace=False)
        values = learned[draw.integers(len(learned)), chosen]
        signs = np.where(numeric[chosen], np.where(values > middles[chosen], 1, -1), 0)
        if _fitting(learned, chosen, values, signs) != 1:
            continue
        guesses = learned[draw.integers(len(learned), size=len(chosen)), chosen]
        turned = np.where(numeric[chosen], draw.choice([-1, 1], len(chosen)), 0)
        attacks += 1
        for place, pool in enumerate(pools):
            successes[place] += _fitting(pool, chosen, values, signs) == 1
        successes[2] += _fitting(pools[0], chosen, guesses, turned) == 1
        if attacks == _QUERIES:
            break
    return Risk(NAMES[0], attacks, *successes)


def _fitting(rows: np.ndarray, places: np.ndarray, values: np.ndarray, signs: np.ndarray) -> int:
    """How many rows have these values: equal (0), at least (1) or at most (-1); missing equals missing."""
    fits = np.ones(len(rows), dtype=bool)
    for place, value, sign in zip(places, values, signs, strict=True):
        side = rows[:, place]
        if np.isnan(value):
            fits &= np.isnan(side)
        else:
            fits &= side == value if sign == 0 else side * sign >= value * sign
    return int(fits.sum())


def linkability(columns: Sequence[Column], learned: np.ndarray, pools: Sequence[np.ndarray]) -> Risk:
    """Know each half of a person's columns from another source, and see if one synthetic row is nearest to both."""
    halves = [list(range(start, len(columns), 2)) for start in (0, 1)]
    links = []
    for pool in pools:
        one, other = (_distances(columns, pool, learned, half).argmin(axis=1) for half in halves)
        links.append(int((one == other).sum()))
    return Risk(NAMES[1], len(pools[0]), links[0], links[1], round(len(pools[0]) / len(learned)))


def inference(
    columns: Sequence[Column], learned: np.ndarray, pools: Sequence[np.ndarray], rng: Rng
) -> dict[str, Risk]:
    """Guess each column of a row as that of the synthetic row which is nearest in all other columns, by column."""
    everywhere = [_distances(columns, pool, learned, range(len(columns))) for pool in pools]
    confidence = 1 - (1 - CONFIDENCE) / len(columns)  # so that the highest of all is still covered
    random = rng.numpy().integers(len(learned), size=len(pools[0]))
    risks = {}
    for place, column in enumerate(columns):
        right = []
        for pool, distances in zip(pools, everywhere, strict=True):
            others = distances - _distances(columns, pool, learned, [place])
            right.append(_right(column, learned[others.argmin(axis=1), place], pool[:, place]))
        guessed = _right(column, learned[random, place], pools[0][:, place])
        risks[column.name] = Risk(NAMES[2], len(pools[0]), right[0], right[1], guessed, confidence)
    return risks


def _right(column: Column, guesses: np.ndarray, truth: np.ndarray) -> int:
    near = np.abs(guesses - truth) <= (_TOLERANCE * np.abs(guesses) if column.numeric else 0.0)
    return int((near | (np.isnan(guesses) & np.isnan(truth))).sum())


def _distances(
    columns: Sequence[Column], rows: np.ndarray, others: np.ndarray, places: Sequence[int]
) -> np.ndarray:
    """Gower's distances of rows to others over some columns [rows, others]."""
    total = np.zeros((len(rows), len(others)), dtype=np.float32)
    for place in places:
        column, one, other = columns[place], rows[:, place, None], others[None, :, place]
        low, high = column.bounds if column.numeric else (0.0, 1.0)
        apart = np.abs(one - other) / max(high - low, 1e-12) if column.numeric else (one != other) * 1.0
        absent = np.isnan(one), np.isnan(other)
        total += np.where(absent[0] | absent[1], (absent[0] != absent[1]) * 1.0, apart)
    return total
