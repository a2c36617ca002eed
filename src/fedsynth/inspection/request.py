"""The request for an inspection: selections, and what they may cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.inspection.primary import Primary
from fedsynth.inspection.selection import Selection, trained_schema
from fedsynth.inspection.verdict import TOLERANCE, Simulation
from fedsynth.synthesis.request import Request


@dataclass(frozen=True)
class Inspection:
    """Selections to look at, and what they may cost. `model` is for clients in this process: sites have their own."""

    request: Request
    schema: Schema
    selections: Mapping[str, Selection]
    model: Primary | None = None
    simulation: Simulation = field(default_factory=Simulation)
    tolerance: float = TOLERANCE
    survey_share: float = 0.2  # of epsilon, for all questions together
    shown: int = 2000
    total: float | None = None  # the most that all inspections on the ledger may cost

    def __post_init__(self) -> None:
        if not 1 <= len(self.selections) <= 2:
            raise BadInput(
                f"{len(self.selections)} selections: expected one to look at, or two to contrast, as [select.NAME]"
            )
        for name, value in (("survey_share", self.survey_share), ("tolerance", self.tolerance)):
            if not 0 < value < 1:
                raise BadInput(f"{name}={value}: expected a number between 0 and 1")
        if self.shown < 1:
            raise BadInput(f"shown={self.shown}: expected at least 1 synthetic example")

    @property
    def trained(self) -> Schema:
        """The schema that models are trained with: without the label if a selection has none."""
        return trained_schema(self.schema, self.selections)
