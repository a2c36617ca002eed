"""The released files of a finished run: the ledger's seal names their hashes, and whoever reads a run checks them here.

The ledger is a chain of hashes without a key. A file or a statement that was changed alone is found; whoever rewrites
the ledger, its head and the files consistently is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from fedsynth.data.atomic import put, remove, replacing, sync
from fedsynth.data.modality import Data, modality_of, synthetic_endings
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy.chain import head_path
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import Statement, disagreement, statement, worded
from fedsynth.recipes.registry import recipe_named
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.request import Request

_SYNTHETIC = "synthetic"
_KNOWN = 4096  # hashes and statements that a process remembers, for pages that are renewed all the time


@dataclass(frozen=True)
class CheckedRun:
    """A finished run: its files are those that its ledger names, its statement is what the ledger adds up to."""

    folder: Folder
    request: Request
    schema: Schema
    statement: Statement
    ledger: Ledger
    hashes: Mapping[str, str]  # SHA-256 of each released file that is there
    sealed: bool  # False for a run of before, whose ledger names no files

    @property
    def synthetic(self) -> Path | None:
        """The synthetic data that came with the run, if they are there."""
        path = synthetic_path(self.folder, self.schema)
        return path if path.exists() else None


def synthetic_path(place: Folder, schema: Schema) -> Path:
    """Where the synthetic data of a run lie."""
    return place.path / f"{_SYNTHETIC}{modality_of(schema).ending}"


def checked_run(path: Path | str) -> CheckedRun:
    """Read a finished run; refuse files that its ledger does not name, and a statement that it does not add up to.

    A run that was whole before is checked again once anything about one of its files has changed.
    """
    place = Folder(path)
    return replace(_checked(place.path, _stamp(place)), ledger=Ledger(place.ledger))


def _stamp(place: Folder) -> tuple[tuple[str, int, int, int, int], ...]:
    """A stamp that changes when somebody writes to a file of a run."""
    files = (*_released(place), place.ledger, head_path(place.ledger), place.state)
    stats = [(str(file), file.stat()) for path in files if path.exists() for file in _inside(path)]
    return tuple((name, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns) for name, now in stats)


@lru_cache(_KNOWN)
def _checked(path: Path, stamp: tuple[tuple[str, int, int, int, int], ...]) -> CheckedRun:
    place = Folder(path)
    recipe = place.read_recipe()
    ledger = Ledger(place.ledger)
    named = ledger.files()
    if not place.finished or (named is None and place.state.exists()):
        raise BadInput(
            f"{place.path}: the run is not finished; continue it with fedsynth run --out {place.path} --resume"
        )
    _finish_renewals(place, named)
    _refuse_changed(place, named)
    request, schema = Request.from_toml(recipe), Schema.load(place.schema)
    statement = _agreed(place, request, schema, ledger, sealed=named is not None)
    hashes = {file.name: file_hash(file) for file in _released(place)}
    return CheckedRun(place, request, schema, statement, ledger, hashes, named is not None)


def problems_of(path: Path | str) -> list[str]:
    """Everything that is wrong with a finished run, in sentences; empty for a whole one, and for another folder."""
    place = Folder(path)
    named = Ledger(place.ledger).files()
    _finish_renewals(place, named)
    missing = [name for name in named or () if not (place.path / name).exists()]
    problems = [
        *changed_files(place, named),
        *(f"{place.path / name}: it is missing; restore it from a copy" for name in missing),
    ]
    if problems or not place.recipe.exists() or not place.finished:
        return problems
    try:
        checked_run(path)
    except (BadInput, NotPrivate) as error:
        return [str(error)]
    return []


def changed_files(place: Folder, named: Mapping[str, str] | None) -> list[str]:
    """The released files of a run that are not what its ledger names; those that are missing are not looked for."""
    if named is None:
        return []
    problems = []
    for file in _released(place):
        if file.name not in named:
            problems.append(
                f"{file}: the ledger of this run does not name it; remove it, and have it made by fedsynth sample "
                f"{place.path} --out {file} (rows) or fedsynth keys open {place.path} (a generator)"
            )
        elif file_hash(file) != named[file.name]:
            problems.append(
                f"{file}: it was changed (its SHA-256 is {file_hash(file)[:16]}…, the ledger names "
                f"{named[file.name][:16]}…); restore it from a copy, or make a new run"
            )
    return problems


def _refuse_changed(place: Folder, named: Mapping[str, str] | None) -> None:
    problems = changed_files(place, named)
    if problems:
        raise NotPrivate(problems[0])


def close(place: Folder) -> None:
    """End a run whose result is written: name its files in the ledger, then remove its private state.

    Synthetic data that lie there are of an earlier result; they are named when they are drawn anew.
    """
    files = [file for file in _released(place) if file.stem != _SYNTHETIC]
    for path in (*files, place.path):
        sync(path)
    Ledger(place.ledger).seal({file.name: file_hash(file) for file in files})
    place.finish()


def complete(place: Folder) -> None:
    """End a finished run whose process was killed before it was closed; leave every other one as it is."""
    if place.state.exists() and Ledger(place.ledger).files() is None:
        close(place)
    place.finish()


@contextmanager
def renewing(place: Folder, name: str) -> Iterator[Path]:
    """Lend a path for a released file that is added or written anew, and name its new hash in the ledger.

    The ledger knows the hash before the file is in its place: a crash between the two is mended by whoever reads the
    run next. The ledger of a run of before, which names no files, stays as it is.
    """
    target = place.path / name
    if Ledger(place.ledger).files() is None:
        with replacing(target) as temporary:
            yield temporary
        return
    fresh = _fresh(target)
    try:
        yield fresh
        sync(fresh)
        ledger = Ledger(place.ledger)
        with ledger.locked():
            named = dict(ledger.files() or {})
            _refuse_changed(place, {**named, name: file_hash(target)} if target.exists() else named)
            ledger.seal({**named, name: file_hash(fresh)})
        put(fresh, target)
    finally:
        remove(fresh)


def write_released(drawn: Data, place: Folder, schema: Schema) -> None:
    """Write synthetic data into a run, so that its ledger names them."""
    write_released_parts([drawn], place, schema)


def write_released_parts(parts: Iterable[Data], place: Folder, schema: Schema) -> None:
    """Write synthetic data that come in parts into a run, so that its ledger names them."""
    with renewing(place, synthetic_path(place, schema).name) as temporary:
        modality_of(schema).write_parts(parts, temporary)


def file_hash(path: Path) -> str:
    """SHA-256 of a file (of a folder: of its files' names and hashes); read once while nothing about it changes."""
    if path.is_dir():
        listed = [f"{file.relative_to(path)} {file_hash(file)}" for file in _inside(path)]
        return hashlib.sha256("\n".join(listed).encode()).hexdigest()
    now = path.stat()
    return _hash_of(path.resolve(), now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)


@lru_cache(_KNOWN)
def _hash_of(path: Path, inode: int, size: int, modified_ns: int, changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _inside(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _fresh(target: Path) -> Path:
    return target.with_name(f".{target.stem}.fresh{target.suffix}")


def _released(place: Folder) -> list[Path]:
    """The files of a run that may be published, as far as they are there."""
    written = (place.privacy, place.generator, place.sealed, place.schema, place.recipe)
    drawn = [place.path / f"{_SYNTHETIC}{ending}" for ending in synthetic_endings()]
    return [file for file in (*written, *drawn) if file.exists()]


def _finish_renewals(place: Folder, named: Mapping[str, str] | None) -> None:
    """Put files in their place that the ledger names already: their writer was killed before it could."""
    for name, known in (named or {}).items():
        target = place.path / name
        fresh = _fresh(target)
        if fresh.exists() and file_hash(fresh) == known:
            put(fresh, target)


def _agreed(place: Folder, request: Request, schema: Schema, ledger: Ledger, *, sealed: bool) -> Statement:
    """The statement of a run, recomputed from its ledger; refused if privacy.json says anything else.

    A statement that is not sealed gets its words anew, and has to name the neighbors and the sampling of its recipe.
    """
    stated = Statement.load(place.privacy)
    if stated.releases and not place.ledger.exists():
        raise NotPrivate(
            f"{place.ledger}: it is missing, so nobody can tell whether {place.privacy.name} is true; put it and "
            f"{head_path(place.ledger).name} back beside it"
        )
    adjacency, sampling = stated.adjacency, stated.sampling
    if not sealed:
        from fedsynth.synthesis.release import terms_of_claim

        adjacency, sampling = terms_of_claim(request, schema, ledger) or (adjacency, sampling)
    recomputed = _recomputed(
        place.ledger,
        ledger.head,
        request.delta or 0.0,
        adjacency,
        sampling,
        recipe_named(request.recipe).protection(request.unit, request.trust)[0],
        stated.simulation or request.seed is not None,
        tuple(schema.inferred()),
        stated.units,
    )
    problem = disagreement(stated, recomputed)
    if problem is not None:
        raise NotPrivate(
            f"{place.privacy}: it is not what the ledger adds up to ({problem}); restore it from a copy, or make a "
            "new run"
        )
    if sealed:
        return stated
    fresh = replace(recomputed, caveats=stated.caveats, audited=stated.audited)
    return worded(fresh, ledger)


@lru_cache(_KNOWN)
def _recomputed(
    path: Path,
    head: str,
    delta: float,
    adjacency: str,
    sampling: str,
    unit: str,
    seeded: bool,
    inferred: tuple[str, ...],
    units: int | None,
) -> Statement:
    """The statement by the ledger alone; `head` is the ledger's last hash, by which a remembered one is known."""
    return statement(
        Ledger(path),
        delta=delta,
        adjacency=adjacency,
        sampling=sampling,
        unit=unit,
        seeded=seeded,
        inferred=inferred,
        units=units,
    )
