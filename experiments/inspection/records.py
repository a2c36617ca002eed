"""Adult dealt to simulated clients, with bugs of our own making at some of them, and a primary model that suffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from torch import nn

from fedsynth.data.clients import RawClients, clients_from
from fedsynth.data.table import Table
from fedsynth.inspection.unlabelled import without_label
from fedsynth.research.datasets import adult
from fedsynth.rng import Rng

CLIENTS = 1000
_SWAPPED = {"Husband": "Own-child", "Own-child": "Husband"}


def people(clients: int = CLIENTS) -> RawClients:
    """The training rows, dealt evenly."""
    return clients_from(adult()[0], clients=clients, rng=Rng(0))


def percent_of_full_time(frame: pd.DataFrame) -> pd.DataFrame:
    """A unit mix-up: hours a week given as percent of a full position, cut at the largest value allowed."""
    hours = (frame["hours_per_week"] * 2.5).round().clip(1, 99).astype(frame["hours_per_week"].dtype)
    return frame.assign(hours_per_week=hours)


def swapped_relationship(frame: pd.DataFrame) -> pd.DataFrame:
    """A swapped category code: husbands are written as children and children as husbands."""
    return frame.assign(relationship=frame["relationship"].map(lambda value: _SWAPPED.get(value, value)))


BUGS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "hours_per_week": percent_of_full_time,
    "relationship": swapped_relationship,
}


def broken(raw: RawClients, bug: str, share: float, seed: int) -> RawClients:
    """The same clients, a share of whom, drawn by chance, has the bug."""
    assert raw.data is not None
    affected = Rng(seed).at("affected").numpy().permutation(raw.count)[: round(share * raw.count)]
    at = np.isin(raw.owner, affected)
    changed = BUGS[bug](raw.data)
    column = raw.data[bug].where(~at, changed[bug])
    return RawClients(raw.owner, raw.count, raw.names, data=raw.data.assign(**{bug: column}))


class Pairs(nn.Module):
    """How usual a row is: pairs of values that public rows seldom have together count against it.

    The score is the sum of ln p(a, b) / (p(a) p(b)) over every two values that are rarer together than by chance, and
    the mean of ln p(a) over columns: a quadratic form of a row of ones and zeros.
    """

    def __init__(self, weights: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weights", weights)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """One number a row."""
        held = (rows > 0.5).to(rows.dtype)
        return ((held @ self.weights) * held).sum(1)


def public_model() -> Pairs:
    """The pairs' frequencies in the public test split."""
    frame, schema = adult("test")
    rows = (Table(without_label(schema)).encode(frame.drop(columns="income"))[0] > 0.5).double()
    joint = (rows.T @ rows + 0.5) / len(rows)
    alone = joint.diagonal()
    odd = torch.log(joint / torch.outer(alone, alone)).clamp(-6, 0) / 2  # each pair stands there twice
    odd.fill_diagonal_(0.0)
    return Pairs((odd + torch.diag(torch.log(alone) / len(schema.feature_columns))).float())


def scores_of(network: nn.Module) -> Callable[[pd.DataFrame], np.ndarray]:
    """The model as a function of a table without its label."""
    encoding = Table(without_label(adult("test")[1]))

    def scores(frame: pd.DataFrame) -> np.ndarray:
        with torch.no_grad():
            return network(encoding.encode(frame)[0]).numpy()

    return scores


def usual_score(share: float = 0.05) -> float:
    """The score that so large a share of the public rows does not reach."""
    frame, _ = adult("test")
    return float(np.quantile(scores_of(public_model())(frame.drop(columns="income")), share))
