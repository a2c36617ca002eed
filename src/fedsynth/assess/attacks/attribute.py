"""Can a person's secret be guessed from the rest of their row: attribute inference, against a hold-out.

The attacker knows all columns of a row but one, trains a classifier on the synthetic rows to guess that one, and
asks it. Guessing well is no harm by itself: what holds for everybody (smokers cough) can be learned from anybody.
What harms is guessing better for those who took part than for those who did not. So the same is asked about hold-out
rows, and the difference is the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedsynth.assess.attacks.attack import attack_failures, attack_scores
from fedsynth.assess.attacks.audit_bound import upper_rate
from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.attacks.distance import Attacked, asked_rows, drawn
from fedsynth.assess.scores.score import Score, failure
from fedsynth.data.column import Column
from fedsynth.data.encode import positions
from fedsynth.data.schema import Schema
from fedsynth.data.table import check_columns
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput, nearest
from fedsynth.rng import Rng

NAME = "attribute inference"
_MOST_TRAINED = 10_000
_BINS = 10  # of a number that is to be guessed, over its public range
_TREES = 20


@dataclass(frozen=True)
class Guesses:
    """For rows in and out of the training data: the chance given to the secret's true value, and whether it won."""

    members: np.ndarray
    others: np.ndarray
    members_right: np.ndarray
    others_right: np.ndarray

    @property
    def advantage(self) -> float:
        """How much more often a member's secret is guessed."""
        return float(self.members_right.mean() - self.others_right.mean())


def attribute_attack(table: Attacked, secrets: Sequence[str] = ()) -> list[Score]:
    """Guess each secret column (default: every column in turn) of members and of hold-out rows.

    Three scores: `attribute inference: advantage`, the mean over secrets of how much more often a member's value
    is guessed, with each secret's numbers in the detail; and area and true positives of telling members by how
    sure the classifier is of their true values.
    """
    rng, schema, ceiling = Rng(table.seed), table.schema, table.ceiling
    try:
        columns = _secrets(schema, secrets)
        inside, outside = asked_rows(table.real, table.holdout, schema, rng)
        few = min(len(table.synthetic), _MOST_TRAINED)
        learned = read_codes(drawn(table.synthetic, few, rng.at("synthetic")), schema)
        members, others = read_codes(inside, schema), read_codes(outside, schema)
    except BadInput as error:
        advantage = failure(f"{NAME}: advantage", str(error), goal="min", range=(-1.0, 1.0))
        return [advantage, *attack_failures(NAME, str(error))]
    places = {column.name: place for place, column in enumerate(_columns(schema))}
    guesses = {c.name: guess(learned, members, others, places[c.name], c, table.seed) for c in columns}
    sure = [
        np.mean([np.log(getattr(g, side)) for g in guesses.values()], axis=0)
        for side in ("members", "others")
    ]
    return [_advantage(guesses, ceiling), *attack_scores(NAME, sure[0], sure[1], ceiling)]


def read_codes(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    """One number a column [rows, columns]: values or places of categories, NaN where missing."""
    problems = check_columns(frame, schema)
    if problems or not len(frame):
        raise BadInput("; ".join(problems) or "there are no rows; expected at least one")
    read = [read_values(column, frame[column.name]) for column in _columns(schema)]
    wrong = [problem for values in read for problem in values.problems]
    if wrong:
        raise BadInput(wrong[0])
    return np.stack([values.numbers for values in read], axis=1)


def guess(
    learned: np.ndarray, members: np.ndarray, others: np.ndarray, place: int, column: Column, seed: int
) -> Guesses:
    """Train on synthetic rows to guess the column at `place`, and ask about members and others."""
    from sklearn.ensemble import RandomForestClassifier

    target = as_classes(column, learned[:, place])
    forest = RandomForestClassifier(_TREES, random_state=seed)
    forest.fit(np.delete(learned, place, axis=1), target)
    known = {int(value): index for index, value in enumerate(forest.classes_)}
    sides = []
    for rows in (members, others):
        chances = forest.predict_proba(np.delete(rows, place, axis=1))
        truth = as_classes(column, rows[:, place])
        index = np.array([known.get(int(value), -1) for value in truth])
        confidence = np.where(index < 0, 0.0, chances[np.arange(len(rows)), np.maximum(index, 0)])
        sides.append((np.maximum(confidence, 0.5 / _TREES), forest.classes_[chances.argmax(axis=1)] == truth))
    return Guesses(sides[0][0], sides[1][0], sides[0][1], sides[1][1])


def as_classes(column: Column, numbers: np.ndarray) -> np.ndarray:
    """The class to guess: the category, or in which tenth of its public range a number lies; missing is -1.

    >>> as_classes(Column("age", "integer", min=0, max=99), np.array([0.0, 55.0, np.nan]))
    array([ 0,  5, -1])
    """
    absent = np.isnan(numbers)
    whole = np.where(absent, column.lowest, numbers)
    if column.numeric and (column.values is None or column.values > _BINS):
        whole = np.minimum(np.floor(positions(column, whole) * _BINS), _BINS - 1)
    return np.where(absent, -1, whole).astype(np.int64)


def _advantage(guesses: dict[str, Guesses], ceiling: Ceiling | None) -> Score:
    """The mean advantage, with what each secret gave; a claim bounds members' rate by that of the others."""
    secrets = {
        name: {
            "members": float(g.members_right.mean()),
            "others": float(g.others_right.mean()),
            "advantage": g.advantage,
            "ceiling": None if ceiling is None else float(ceiling.true_positive_rate(g.others_right.mean())),
            "above_ceiling": None if ceiling is None else _above(g, ceiling),
        }
        for name, g in guesses.items()
    }
    worst = max(guesses, key=lambda name: guesses[name].advantage)
    value = float(np.mean([g.advantage for g in guesses.values()]))
    detail = {"secrets": secrets, "worst": worst, "ceiling": None if ceiling is None else ceiling.advantage}
    return Score(f"{NAME}: advantage", value, "min", (-1.0, 1.0), detail=detail)


def _above(guesses: Guesses, ceiling: Ceiling) -> bool:
    """Whether members are guessed more often than the claim allows, beyond chance (99% for each of two rates)."""
    right, wrong = int(guesses.others_right.sum()), int((~guesses.members_right).sum())
    highest = float(upper_rate(right, len(guesses.others_right), 0.99))
    lowest = 1.0 - float(upper_rate(wrong, len(guesses.members_right), 0.99))
    return bool(lowest > ceiling.true_positive_rate(highest))


def _columns(schema: Schema) -> list[Column]:
    return [column for column in schema.columns if column.name in schema.names]


def _secrets(schema: Schema, names: Sequence[str]) -> list[Column]:
    columns = _columns(schema)
    if len(columns) < 2:
        raise BadInput("the table has one column; guessing one from the others needs at least two")
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise BadInput(f"secrets={unknown[0]!r}: no such column; {nearest(unknown[0], schema.names)}")
    return [column for column in columns if column.name in (names or schema.names)]
