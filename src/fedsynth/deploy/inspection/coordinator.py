"""The coordinator's side of an inspection over sites: submit it, wait, fetch what was released, and judge."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedsynth.deploy.coordinator import Assignment, Coordinator, CoordinatorPatience
from fedsynth.deploy.inspection.over_sites import AGAIN
from fedsynth.deploy.nvflare.kits import Kit
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.loop import Round
from fedsynth.inspection.agenda import Tell
from fedsynth.inspection.findings import Findings
from fedsynth.inspection.inspection import conclude
from fedsynth.inspection.onnx_graph import MOST_BYTES
from fedsynth.inspection.released import ReleasedAnswers
from fedsynth.inspection.request import Inspection
from fedsynth.privacy.ledger import Ledger

_CAVEATS = (
    "The server knows how many clients each site has; a site knows which of its own were drawn, and which of them "
    "meet a selection.",
)


@dataclass(frozen=True)
class Sent:
    """The model as it goes to the sites: the bytes of an ONNX file, the name of what they have installed, or none."""

    onnx: bytes = b""
    entry_point: str = ""

    def __post_init__(self) -> None:
        if len(self.onnx) > MOST_BYTES:
            raise BadInput(f"the ONNX model has {len(self.onnx)} bytes; at most {MOST_BYTES} go to a site")

    def to_dict(self) -> dict[str, str]:
        """JSON values."""
        sent = {"onnx": base64.b64encode(self.onnx).decode(), "entry_point": self.entry_point}
        return {name: text for name, text in sent.items() if text}


@dataclass(frozen=True)
class OverSites:
    """An inspection of what the sites of a federation hold. `earlier` is the ledger of a schema that was paid for."""

    kit: Kit
    inspection: Inspection
    model: Sent
    minimum_sites: int
    round_s: float
    earlier: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.inspection.total is not None:
            raise Incompatible(
                "[budget] total: over sites each site's own budget bounds all inspections; leave [budget] out"
            )

    def inspect(self, out: Path, tell: Tell) -> Findings:
        """Have the sites asked and trained on, and conclude from what they released."""
        assignment = self._assignment()
        coordinator = Coordinator(self.kit, out, assignment, _unwatched, tell, advice=AGAIN)
        try:
            coordinator.run()
        except KeyboardInterrupt:
            coordinator.cancel()
            raise
        (out / "federation.json").unlink(missing_ok=True)  # an inspection is not resumed
        released = ReleasedAnswers.load(out, self.inspection.request, self.inspection.trained)
        ledger = Ledger(out / "ledger.jsonl")
        return conclude(self.inspection, released, ledger, out=out, tell=tell, caveats=_CAVEATS)

    @property
    def looked_for(self) -> dict[str, object]:
        """The inspection as the server receives it, in JSON values."""
        return {
            "selections": {name: selection.table for name, selection in self.inspection.selections.items()},
            "survey_share": self.inspection.survey_share,
            "model": self.model.to_dict(),
        }

    def _assignment(self) -> Assignment:
        inspection, patience = self.inspection, CoordinatorPatience(round_s=self.round_s)
        plain = Assignment.new(
            self.kit, inspection.request, inspection.schema, self.minimum_sites, patience, self.earlier
        )
        return replace(plain, inspection=self.looked_for)


def _unwatched(done: Round, epsilon: float | None, rounds: int) -> None:
    """The rounds of a selection are not shown: their loss is a sum over clients of whom an unknown share has one."""
