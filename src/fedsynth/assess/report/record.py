"""The inputs of a page: the released files for everybody, and what a run keeps to itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.assess.inputs import read_judged
from fedsynth.assess.suite import Evaluation
from fedsynth.data.modality import Data
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger, LedgerLine
from fedsynth.privacy.statement import Statement
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import checked_run

# of recipe.toml; paths, the split of simulated clients and the machine are nobody's business
PUBLISHED_SETTINGS = (
    "recipe", "label", "epsilon", "delta", "rounds", "noise_multiplier", "private", "unit", "trust", "transport",
)  # fmt: skip


@dataclass(frozen=True)
class Released:
    """The files that may be published, read, with the hashes by which others can check them."""

    schema: Schema
    statement: Statement
    settings: Mapping[str, Any]
    arguments: Mapping[str, Any]
    synthetic: Data | None
    hashes: Mapping[str, str]  # SHA-256 by file name
    ledger_head: str | None
    date: str = ""  # of the ledger's last line: when the run was finished
    sealed: bool = True  # False for a run of before, whose ledger names no hashes of files

    @classmethod
    def read(cls, path: Path | str) -> Released:
        """Read a finished run's released files, and no other; its ledger is read to check them."""
        run = checked_run(path)
        if run.folder.closed:
            raise BadInput(
                f"{run.folder.path}: its generator is sealed; a key-holder opens it with fedsynth keys open "
                f"{run.folder.path} --key he.secret"
            )
        recipe = run.folder.read_recipe()
        lines = run.ledger.lines()
        return cls(
            schema=run.schema,
            statement=run.statement,
            settings={key: recipe[key] for key in PUBLISHED_SETTINGS if key in recipe},
            arguments=recipe.get("arguments", {}),
            synthetic=read_judged(run.synthetic, run.schema) if run.synthetic else None,
            hashes={name: digest for name, digest in run.hashes.items() if name != run.folder.recipe.name},
            ledger_head=run.ledger.head if lines else None,
            date=lines[-1].time[:10] if lines else "",
            sealed=run.sealed,
        )


@dataclass(frozen=True)
class RunRecord:
    """A finished run with what it keeps to itself; `evaluation` is None where nothing was compared."""

    name: str
    released: Released
    lines: Sequence[LedgerLine]
    history: Sequence[Mapping[str, Any]]
    evaluation: Evaluation | None
    real: Data | None = None

    @classmethod
    def read(
        cls,
        path: Path | str,
        evaluation: Evaluation | None,
        real: Data | None = None,
        released: Released | None = None,
    ) -> RunRecord:
        """Read a run's folder, and its released files unless they are given."""
        folder = Folder(path)
        released = released or Released.read(path)
        lines = Ledger(folder.ledger).lines()
        name = folder.path.resolve().name
        return cls(name, released, lines, folder.read_rounds(), evaluation, real)
