"""Messages of clients that answer for one of their rows, each hiding its own answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.models.model import Model
from fedsynth.models.table_domain import TableDomain
from fedsynth.privacy.draw import below, client_words
from fedsynth.privacy.mechanism import Mechanism, State
from fedsynth.rng import Rng


@dataclass(frozen=True)
class RowAnswers:
    """Answers by a mechanism for the values of one row, which each client draws among its own."""

    domain: TableDomain
    mechanism: Mechanism

    together: ClassVar[bool] = False  # each client sends its own answer

    def messages(
        self, model: Model, sent: Mapping[str, Tensor], data: Padded, ids: np.ndarray, state: State, rng: Rng
    ) -> Tensor:
        """The answers of these clients; one without rows answers at random."""
        rows = data.mask.sum(1).cpu().numpy()
        drawn = below(np.maximum(rows, 1), client_words(rng.at("row"), ids, 1)[:, 0], rng.at("row more"))
        places = torch.from_numpy(drawn.astype(np.int64)).to(data.x.device)
        each = torch.arange(len(ids), device=data.x.device)
        codes = self.domain.codes(data.x[each, places], data.y[each, places]).cpu()
        codes = torch.where(torch.from_numpy(rows > 0)[:, None], codes, -1).to(torch.float32)
        return self.mechanism.privatize(codes, state, rng.at("privatize"), ids)
