"""The student network of the thesis on federated VAEs for tables (section 4.4.3): two layers of 1,024 neurons.

Its last layer is a softmax over the classes, which for the thesis's two classes is as good as its two sigmoids. Rows
are brought to mean 0 and deviation 1 (of all numbers together, so that a signal keeps its shape): positions of a signal
all lie close to the middle of their range.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.assess.scores.features import fit
from fedsynth.rng import Rng

_PASSES, _BATCH = 10, 256  # the thesis does not say which
_NEURONS = 1024


class StudentNetwork:
    """A classifier with scikit-learn's manners: `fit`, `classes_`, `predict_proba`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._network: nn.Module | None = None
        self._center, self._spread = 0.0, 1.0
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self.classes_ = np.array([], dtype=np.int64)

    def fit(self, features: np.ndarray, classes: np.ndarray) -> Self:
        """Train on rows [rows, width] of classes [rows]."""
        self.classes_, places = np.unique(classes, return_inverse=True)
        self._center, self._spread = float(features.mean()), float(features.std()) or 1.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(Rng(self._seed).at("student").integer())  # for weights and dropout
            network = nn.Sequential(
                nn.Linear(features.shape[1], _NEURONS), nn.ReLU(), nn.Dropout(0.25),
                nn.Linear(_NEURONS, _NEURONS), nn.Sigmoid(), nn.Dropout(0.4),
                nn.Linear(_NEURONS, len(self.classes_)),
            ).to(self._device)  # fmt: skip
            order = Rng(self._seed).at("student batches").torch_generator()
            fit(
                network,
                network,
                self._rows(features),
                torch.from_numpy(places).to(self._device),
                _PASSES,
                order,
                _BATCH,
            )
        self._network = network.eval()
        return self

    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        """Chances of the classes [rows, classes]."""
        assert self._network is not None, "fit comes first"
        with torch.no_grad():
            return np.asarray(self._network(self._rows(features)).double().softmax(dim=1).cpu().numpy())

    def _rows(self, features: np.ndarray) -> Tensor:
        return torch.from_numpy(((features - self._center) / self._spread).astype(np.float32)).to(
            self._device
        )
