"""An earlier inspection of the same data: what it spent, and what it saw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.inspection.sample import Sample

ROOT = "root"  # names the first inspection's ledger


@dataclass(frozen=True)
class Earlier:
    """The folder of an inspection, and the ledger that all inspections of its data write to."""

    folder: Path
    root: Path
    schema: Schema

    @classmethod
    def read(cls, folder: Path) -> Earlier:
        """Find both; the first inspection's ledger is the one that every later one adds to."""
        if not (folder / "findings.json").is_file():
            raise BadInput(
                f"{folder}: not a finished inspection (no findings.json); expected a folder that fedsynth inspect made"
            )
        try:
            root = Path((folder / ROOT).read_text().strip())
        except OSError:
            raise BadInput(f"{folder}: the file that names the first ledger is missing; restore it") from None
        if not root.is_file():
            raise BadInput(
                f"{root}: the ledger that {folder} goes on from is gone; restore it, or the cost of what was done "
                "is not known"
            )
        return cls(folder, root, Schema.load(folder / "schema.json"))

    def sample(self, name: str) -> Sample | None:
        """Return the sample of the selection of that name; None if there was none."""
        kept = Sample.file(self.folder, name, self.schema)
        return Sample.load(self.folder, name, self.schema) if kept.exists() else None
