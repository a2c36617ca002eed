"""A run's folder: which file is what, written so that a crash at any moment leaves it usable."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import tomli_w

from fedsynth.data.atomic import OWNER_ONLY, sync, write_file
from fedsynth.data.configuration import read_file
from fedsynth.data.lock import alone
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, FedsynthError

if TYPE_CHECKING:
    from torch import Tensor

    from fedsynth.federation.state import ServerState
    from fedsynth.simulator.store import ClientStore


def beside(path: Path | str) -> Path:
    """The ledger that belongs to a schema or a policy: beside it."""
    return Path(path).with_suffix(".ledger.jsonl")


class Keeper(Protocol):
    """The clients' memory, as far as the server's checkpoint has to know of it."""

    def index(self) -> dict[str, Tensor]:
        """Named tensors for the checkpoint."""

    def restore(self, index: dict[str, Tensor]) -> None:
        """Go back to a checkpoint."""


class Folder:
    """RUN/: recipe, schema, ledger and history from the start; generator, statement and data at the end.

    `state/` exists only while a run is unfinished: it holds the simulated clients' private parts.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.recipe = self.path / "recipe.toml"
        self.schema = self.path / "schema.json"
        self.ledger = self.path / "ledger.jsonl"
        self.history = self.path / "history.jsonl"
        self.rounds = self.path / "rounds.jsonl"  # what only whoever drew the cohorts may know of the rounds
        self.generator = self.path / "generator.safetensors"
        self.sealed = self.path / "generator.sealed"  # where only a key-holder can open it
        self.privacy = self.path / "privacy.json"
        self.state = self.path / "state"
        self._checkpoint = self.state / "checkpoint.safetensors"

    @property
    def finished(self) -> bool:
        """True once the generator is there, sealed or open."""
        return (self.generator.exists() or self.sealed.exists()) and self.privacy.exists()

    @property
    def closed(self) -> bool:
        """True if a key-holder has to open the generator first."""
        return self.sealed.exists() and not self.generator.exists()

    @contextmanager
    def owned(self, *, begun: bool) -> Iterator[None]:
        """Work on this run alone, from its beginning or to go on with one that was `begun`; a kill lets go of it."""
        if begun:
            self.read_recipe()  # refused where there is no run
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self.path / ".lock"
        sentence = f"{self.path}: another process works on this run; wait until it ends, or stop it first"
        with alone(lock, sentence):
            if self.finished or (not begun and self.recipe.exists()):
                raise BadInput(f"{self.path}: another process made this run meanwhile; choose another --out")
            yield
            if self.finished:
                lock.unlink(missing_ok=True)  # whoever comes now finds nothing to do

    def refuse_existing(self) -> None:
        """A run never writes over another."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise BadInput(f"{self.path}: exists already; choose another --out, or continue it with --resume")

    def same_data(self, fingerprint: str) -> None:
        """Refuse to go on with other rows than the run began with; kept only while it is unfinished."""
        path = self.state / "data.sha256"
        if not path.exists():
            write_file(path, fingerprint)
        elif path.read_text() != fingerprint:
            raise BadInput(
                f"{self.path}: the data are not those that this run began with; start a new run for them"
            )

    def create(self, recipe: Mapping[str, Any], schema: Schema) -> None:
        """Make the folder with what the run was asked to do."""
        self.state.mkdir(parents=True, exist_ok=True)
        schema.save(self.schema)
        write_file(self.recipe, tomli_w.dumps(dict(recipe)))

    def read_recipe(self) -> dict[str, Any]:
        """Read the run's request."""
        if not self.recipe.exists():
            raise BadInput(
                f"{self.path}: not a run (no recipe.toml); expected a folder that `fedsynth run` made"
            )
        return read_file(self.recipe)

    def store(self) -> ClientStore:
        """The file in which simulated clients remember."""
        from fedsynth.simulator.store import ClientStore

        self.state.mkdir(exist_ok=True)
        return ClientStore(self.state / "clients.bin")

    def checkpoint(self, state: ServerState, store: Keeper) -> None:
        """Write the state whole, or leave the last one."""
        from safetensors.torch import save

        tensors = {**state.to_tensors(), **store.index()}
        write_file(self._checkpoint, save(tensors), OWNER_ONLY)  # a mechanism may keep secrets in its state

    def restore(self, store: Keeper) -> ServerState | None:
        """The last checkpoint, or None if the run was stopped before its first one."""
        from safetensors import SafetensorError, safe_open

        from fedsynth.federation.state import ServerState

        if not self._checkpoint.exists():
            return None
        try:
            with safe_open(self._checkpoint, framework="pt") as file:
                tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            store.restore(tensors)
            return ServerState.from_tensors(tensors)
        except FedsynthError:
            raise
        except (SafetensorError, OSError, LookupError, ValueError, TypeError, RuntimeError) as error:
            raise BadInput(
                f"{self._checkpoint}: the checkpoint cannot be read ({type(error).__name__}); the ledger and the other "
                "files of the run are as they were. Restore it from a copy and resume, or start a new run"
            ) from error

    def append_history(self, line: Mapping[str, Any]) -> None:
        """Add a finished round."""
        _append(self.history, line)

    def append_round(self, line: Mapping[str, Any]) -> None:
        """Add what nobody else may know of a finished round: who took part, and how long it took."""
        _append(self.rounds, line)

    def read_history(self) -> list[dict[str, Any]]:
        """The finished rounds; a torn last line is left out."""
        return _read(self.history)

    def read_rounds(self) -> list[dict[str, Any]]:
        """The finished rounds with all that is known of them in this folder."""
        return _read(self.rounds) or self.read_history()

    def cut_history(self, version: int) -> None:
        """Forget rounds after `version`: they will be done again."""
        for path in (self.history, self.rounds):
            kept = [line for line in _read(path) if line["version"] <= version]
            if path.exists():
                write_file(path, "".join(json.dumps(line) + "\n" for line in kept))

    def finish(self) -> None:
        """Remove the clients' private parts, which nobody needs any more."""
        shutil.rmtree(self.state, ignore_errors=True)
        sync(self.path)


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of rounds; a torn last line is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines
