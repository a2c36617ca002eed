"""The baselines by name, for experiments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Unit
from fedsynth.privacy.pairs import Adjacency
from fedsynth.research.baselines.privbayes import PrivBayes
from fedsynth.rng import Rng


class Learned(Protocol):
    """The interface of a trained baseline, which makes rows."""

    def sample(self, rows: int, rng: Rng) -> pd.DataFrame | tuple[np.ndarray, np.ndarray | None]:
        """Synthetic rows, or images with their labels."""


class Baseline(Protocol):
    """A system with settings of its own that learns from clients at an epsilon, and writes down what that costs."""

    @property
    def unit(self) -> Unit:
        """Whom it protects."""

    @property
    def adjacency(self) -> Adjacency:
        """The neighboring relation of its epsilon."""

    def fit(
        self, clients: Clients, schema: Schema, epsilon: float | None, rng: Rng, ledger: Ledger
    ) -> Learned:
        """Learn at `epsilon`; None is without noise."""


BASELINES: dict[str, Callable[..., Baseline]] = {"privbayes": PrivBayes}


def baseline_named(name: str, settings: Mapping[str, Any]) -> Baseline:
    """The baseline with these settings, or an error with the nearest name.

    >>> baseline_named("privbayes", {"degree": 2}).unit
    'record'
    """
    if name not in BASELINES:
        raise BadInput(f"baseline {name!r}: unknown; {nearest(name, BASELINES)}")
    known = list(inspect.signature(BASELINES[name]).parameters)
    unknown = [key for key in settings if key not in known]
    if unknown:
        raise BadInput(f"{unknown[0]}: {name} has no such setting; {nearest(unknown[0], known)}")
    return BASELINES[name](**settings)
