"""The findings of an inspection, and the folder that they are written to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedsynth.data.atomic import write_file
from fedsynth.data.schema import Schema
from fedsynth.inspection.sample import Sample
from fedsynth.inspection.selection import Share
from fedsynth.inspection.survey import Spread
from fedsynth.inspection.verdict import Finding, Null, answered
from fedsynth.privacy.statement import Statement
from fedsynth.synthesis.generator import Generator


@dataclass(frozen=True)
class SelectionModel:
    """The model of one selection, and examples that it made up."""

    words: str  # what was selected
    generator: Generator
    sample: Sample
    share: Share  # of the clients that met it, up to noise
    before: Sample | None = None  # what an earlier inspection made up
    change: tuple[Finding, ...] = ()  # against that

    @property
    def empty(self) -> bool:
        """Whether it shows nothing but noise, because as far as can be told nobody met the selection."""
        return self.share.nobody


@dataclass(frozen=True)
class Findings:
    """Everything in here is as private as the statement says."""

    schema: Schema
    labelled: Schema  # with the label that examples are to be given by hand, if they have none
    recipe: Mapping[str, Any]
    statement: Statement
    models: Mapping[str, SelectionModel]
    contrast: tuple[Finding, ...] = ()
    null: Null = ()
    spreads: tuple[Spread, ...] = field(default_factory=tuple)
    needed: str = ""  # what it would take to answer what cannot be told

    @property
    def fires(self) -> bool | None:
        """Whether the two selections differ; None where that cannot be told.

        It cannot if there are not two, if nothing was simulated to compare them with, if one of the models shows
        nothing but noise, or if noise is so large that even a large difference would not be noticed.
        """
        if not self.contrast or not self.null or self.empty:
            return None
        return answered(self.contrast)

    @property
    def changed(self) -> bool | None:
        """Whether any selection looks otherwise than in the earlier inspection; None if that cannot be told."""
        return answered(self.changes) if self.null else None

    @property
    def changes(self) -> list[Finding]:
        """All that was compared with an earlier inspection, over all selections."""
        return [finding for model in self.models.values() for finding in model.change]

    @property
    def empty(self) -> list[str]:
        """The selections whose model shows nothing but noise."""
        return [name for name, model in self.models.items() if model.empty]

    def to_dict(self) -> dict[str, Any]:
        """findings.json."""
        return {
            "kind": self.schema.kind,
            "recipe": dict(self.recipe),
            "fires": self.fires,
            "changed": self.changed,
            "needed": self.needed,
            "noise_only": self.empty,
            "contrast": [finding.to_dict() for finding in self.contrast],
            "models": {
                name: {
                    "selected": model.words,
                    "share": asdict(model.share),
                    "change": [finding.to_dict() for finding in model.change],
                }
                for name, model in self.models.items()
            },
            "survey": [asdict(spread) for spread in self.spreads],
            "null": [dict(entry) for entry in self.null],
        }

    def save(self, out: Path) -> None:
        """Write generators, examples, statement and findings."""
        self.schema.save(out / "schema.json")
        for name, model in self.models.items():
            model.generator.save(out / f"{name}.safetensors")
            model.sample.save(out, name)
        self.statement.save(out / "privacy.json")
        write_file(out / "findings.json", json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
