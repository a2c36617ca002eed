"""What the simulators are timed on: model sizes, hyper-parameters and made-up data. Needs torch alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

COLUMNS, CATEGORIES = 12, 8
CHANNELS, SIDE = 1, 28
LATENT = 16


@dataclass(frozen=True)
class Case:
    """One line of the table: `sample` is how many clients the slow ways are timed on instead of the cohort."""

    name: str
    kind: str  # table or image
    clients: int
    records: int
    cohort: int
    epochs: int
    batch: int
    learning_rate: float
    classes: int
    sample: int
    rounds: int

    @property
    def steps(self) -> int:
        """Local steps in one client update."""
        return self.epochs * -(-self.records // self.batch)


CASES = {
    case.name: case
    for case in (
        Case("table-100", "table", 1000, 2, 100, 2, 32, 0.01, 2, sample=50, rounds=20),
        Case("table-1000", "table", 1000, 2, 1000, 2, 32, 0.01, 2, sample=50, rounds=5),
        Case("image-100", "image", 100, 120, 100, 1, 20, 0.001, 10, sample=10, rounds=3),
    )
}


def made_up(case: Case, clients: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows x [clients, records, ...] and labels y [clients, records]; the same on each call."""
    generator = torch.Generator().manual_seed(0)
    many = (clients or case.clients, case.records)
    y = torch.randint(case.classes, many, generator=generator)
    if case.kind == "image":
        return torch.rand(*many, CHANNELS, SIDE, SIDE, generator=generator), y
    chosen = torch.randint(CATEGORIES, (*many, COLUMNS), generator=generator)
    return torch.nn.functional.one_hot(chosen, CATEGORIES).flatten(2).float(), y
