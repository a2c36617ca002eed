"""The rows that a model is trained on: those that meet a criterion, or all of clients that do; each client decides.

A client that does not qualify stays in the federation with no rows: it is drawn like the others and sends an update
of zeros. So neither the cohort nor any denominator tells who qualified, or how many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedsynth.data.clients import Clients, RawClients
from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.inspection.criterion import Criterion, criterion_named
from fedsynth.inspection.primary import Primary
from fedsynth.inspection.unlabelled import without_label
from fedsynth.rng import Rng

WAYS = ("user", "example")
_LEAST_SHARE = 0.05
_SURE = 3.0  # standard deviations
_OWN_KEYS = ("by", "criterion", "below", "above", "at_least")


@dataclass(frozen=True)
class ShareBound:
    """A share of a client's rows: a public number, or a percentile over clients that is asked for under DP.

    >>> ShareBound.parse("below", "25%"), ShareBound.parse("below", 0.9)
    (ShareBound(value=0.25, percentile=True), ShareBound(value=0.9, percentile=False))
    """

    value: float
    percentile: bool = False

    @classmethod
    def parse(cls, name: str, value: Any) -> ShareBound:
        """A number in [0, 1], or a text like "25%"."""
        number, percentile = value, False
        if isinstance(value, str) and value.endswith("%"):
            try:
                number, percentile = float(value[:-1]) / 100, True
            except ValueError:
                number = None
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= 1:
            raise BadInput(
                f'{name}={value!r}: expected a share between 0 and 1, or a percentile over clients such as "25%"'
            )
        return cls(float(number), percentile)

    @property
    def given(self) -> float | str:
        """The value that `parse` reads it from."""
        return f"{self.value * 100!r}%" if self.percentile else self.value


@dataclass(frozen=True)
class Share:
    """The share of clients that meet a selection, as the noisy answer to a question, and its standard deviation."""

    told: float
    error: float = 0.0

    @property
    def guess(self) -> float:
        """A share that the server can divide by."""
        return min(1.0, max(_LEAST_SHARE, self.told))

    @property
    def nobody(self) -> bool:
        """Whether noise explains the answer: as far as can be told, nobody is there."""
        return self.told <= _SURE * self.error

    def drawn(self, rng: Rng) -> float:
        """A share that the truth may be."""
        return float(np.clip(self.guess + self.error * rng.numpy().normal(), _LEAST_SHARE, 1.0))


@dataclass(frozen=True)
class Selection:
    """Rows to train on, as data.

    By example: the rows that meet the criterion, at clients with `at_least` so many of them. By user: all rows of
    clients whose share of such rows is `below` or `above` a bound.
    """

    criterion: Criterion
    by: str = "user"
    below: ShareBound | None = None
    above: ShareBound | None = None
    at_least: int = 1

    def __post_init__(self) -> None:
        if self.by not in WAYS:
            raise BadInput(f"by={self.by!r}: unknown; {nearest(self.by, WAYS)}")
        if self.at_least < 1:
            raise BadInput(f"at_least={self.at_least}: expected at least 1 row")
        if self.by == "example" and (self.below or self.above):
            raise BadInput('below and above are bounds on a client; use by = "user", or at_least for rows')
        if self.by == "user" and not (self.below or self.above):
            raise BadInput(
                'by = "user" needs a bound on the share of a client\'s rows that meet the criterion: '
                'below or above, a number between 0 and 1 or a percentile such as "25%"'
            )

    @classmethod
    def parse(cls, keys: Mapping[str, Any]) -> Selection:
        """The selection of a table of TOML: its own keys, and those of its criterion."""
        name = keys.get("criterion", "everyone")
        if not isinstance(name, str):
            raise BadInput(f"criterion={name!r}: expected a name")
        criterion = criterion_named(name, {key: value for key, value in keys.items() if key not in _OWN_KEYS})
        by = keys.get("by", "example" if name == "everyone" else "user")
        bounds = {side: ShareBound.parse(side, keys[side]) for side in ("below", "above") if side in keys}
        rows = keys.get("at_least", 1)
        if isinstance(rows, bool) or not isinstance(rows, int):
            raise BadInput(f"at_least={rows!r}: expected a whole number of rows")
        return cls(criterion, by, bounds.get("below"), bounds.get("above"), rows)

    @property
    def table(self) -> dict[str, Any]:
        """The keys that `parse` makes it from."""
        bounds = {"below": self.below, "above": self.above}
        sides = {side: bound.given for side, bound in bounds.items() if bound is not None}
        return {"by": self.by, **self.criterion.table, **sides, "at_least": self.at_least}

    @property
    def percentiles(self) -> bool:
        """Whether a bound has to be asked for."""
        return any(bound is not None and bound.percentile for bound in (self.below, self.above))

    @property
    def unlabelled(self) -> bool:
        """Whether what is selected has no label, so that a model of it has none either."""
        return self.criterion.name == "unlabelled"

    @property
    def words(self) -> str:
        """The selection in a sentence."""
        criterion = self.criterion.words
        if self.by == "example":
            fewest = f", at clients with {self.at_least} or more" if self.at_least > 1 else ""
            return f"examples: {criterion}{fewest}"
        sides = [
            f"{side} {_shown(bound)}"
            for side, bound in (("below", self.below), ("above", self.above))
            if bound
        ]
        return f"clients whose share of rows with {criterion} is {' and '.join(sides)}"

    def chosen(self, marks: np.ndarray) -> np.ndarray:
        """Which of one client's rows are trained on, given the rows that meet the criterion."""
        if self.by == "example":
            return marks if marks.sum() >= self.at_least else np.zeros_like(marks)
        if not len(marks):
            return marks
        share = marks.mean()
        low = self.below is None or share <= self.below.value
        high = self.above is None or share >= self.above.value
        return np.full_like(marks, bool(low and high and len(marks) >= self.at_least))

    def settled(self, quantile: Mapping[float, float]) -> Selection:
        """The same selection with its percentiles replaced by the bounds that they were found to be."""
        settled = {
            side: ShareBound(quantile[bound.value]) if bound is not None and bound.percentile else bound
            for side, bound in (("below", self.below), ("above", self.above))
        }
        return replace(self, below=settled["below"], above=settled["above"])


def _shown(bound: ShareBound) -> str:
    return f"the {bound.value:.0%} percentile" if bound.percentile else f"{bound.value:.3g}"


def trained_schema(schema: Schema, selections: Mapping[str, Selection]) -> Schema:
    """The schema that models of these selections are trained with: without the label if one of them has none."""
    unlabelled = any(selection.unlabelled for selection in selections.values())
    return without_label(schema) if unlabelled else schema


@dataclass(frozen=True)
class Marks:
    """Which rows meet a criterion, and the clients at which the model failed; neither leaves the clients."""

    rows: np.ndarray  # [rows] bool
    failed: np.ndarray  # [clients] bool

    def shares(self, raw: RawClients) -> np.ndarray:
        """Each client's share of marked rows; NaN for a client without rows or at which the model failed."""
        sizes = raw.sizes
        counts = np.bincount(raw.owner, weights=self.rows, minlength=raw.count)
        known = (sizes > 0) & ~self.failed
        return np.where(known, counts / np.maximum(sizes, 1), np.nan)


def mark(raw: RawClients, criterion: Criterion, schema: Schema, model: Primary | None) -> Marks:
    """Evaluate a criterion at every client by itself; where the model fails, that client sits out."""
    if criterion.needs_model and model is None:
        raise BadInput(f"criterion {criterion.words!r} needs a model; name one under [model]")
    rows = np.zeros(raw.rows, dtype=bool)
    failed = np.zeros(raw.count, dtype=bool)
    for client, places in enumerate(rows_by_client(raw)):
        if not len(places):
            continue
        try:
            rows[places] = criterion.marks(taken(raw, places, schema), schema, model)
        except Exception:
            if not criterion.needs_model:
                raise
            failed[client] = True  # whatever it was: only the noisy number of such clients is told
    return Marks(rows, failed)


def chosen_rows(raw: RawClients, selection: Selection, marks: Marks) -> list[np.ndarray]:
    """Which of its rows each client trains on, in the order of clients; none where the model failed."""
    return [
        selection.chosen(marks.rows[places]) & ~marks.failed[client]
        for client, places in enumerate(rows_by_client(raw))
    ]


def select(raw: RawClients, encoded: Clients, selection: Selection, marks: Marks) -> Clients:
    """The same clients with the encoded rows that they train on; as many clients as before."""
    kept = chosen_rows(raw, selection, marks)
    offsets = np.zeros(raw.count + 1, dtype=np.int64)
    np.cumsum([mask.sum() for mask in kept], out=offsets[1:])
    taken_rows = torch.from_numpy(np.flatnonzero(np.concatenate(kept)))  # encoded rows are sorted by owner
    return Clients(encoded.x[taken_rows], encoded.y[taken_rows], offsets)


def rows_by_client(raw: RawClients) -> list[np.ndarray]:
    """The places of each client's rows."""
    order = np.argsort(raw.owner, kind="stable")
    return np.split(order, np.cumsum(raw.sizes)[:-1])


def taken(raw: RawClients, places: np.ndarray, schema: Schema) -> RawClients:
    """These rows as those of one client."""
    rows, owner = modality_of(schema).take(raw.data, places), np.zeros(len(places), dtype=np.int64)
    return RawClients(owner, 1, ("",), rows, client_column=raw.client_column)
