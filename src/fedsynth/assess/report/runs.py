"""Runs in a folder, finished or not, each in a few numbers. Only files that a run writes anyway are read."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from fedsynth.assess.image_steps import FRECHET
from fedsynth.assess.report.verdict import chosen_utility
from fedsynth.assess.scores.features import compare
from fedsynth.assess.scores.score import Score, load_scores
from fedsynth.errors import BadInput, FedsynthError, Incompatible
from fedsynth.privacy.statement import Statement
from fedsynth.privacy.wording import shown
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import checked_run

PAGES = ("report.html", "public.html")
_DEPTH = 3
_MOST_RUNS = 500
_PACED = 20  # rounds whose pace tells how long the rest takes
_FRESH_S = 120.0  # a run that wrote nothing for so long counts as stopped


@dataclass(frozen=True)
class RunSummary:
    """A run in a few numbers. `state` is finished, running, stopped or broken (then `problem` says why)."""

    key: str
    name: str
    state: str
    recipe: str = ""
    promise: str = ""
    epsilon: float | None = None  # claimed; of an unfinished run: spent so far
    private: bool = False
    round: int | None = None
    rounds: int | None = None
    loss: float | None = None
    clients: int | None = None
    dropped: int = 0
    shapes: float | None = None
    pairs: float | None = None
    useful: float | None = None
    useful_real: float | None = None
    useful_name: str = ""
    scored_on: Mapping[str, str] = field(default_factory=dict)  # fingerprints of the real and the test rows
    date: str = ""  # of the last thing that was written
    seconds_left: float | None = None  # of a running run, at the pace of its last rounds
    frechet: Score | None = None  # of images
    pages: tuple[str, ...] = ()
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        image = None if self.frechet is None else self.frechet.to_dict()
        return {**asdict(self), "pages": list(self.pages), "frechet": image}


def find_runs(folder: Path | str) -> dict[str, Path]:
    """The runs in a folder and its sub-folders, by a key made from their place; links are not followed."""
    root = Path(folder)
    if not root.is_dir():
        raise BadInput(f"{root}: there is no such folder; name one that holds runs")
    runs: dict[str, Path] = {}
    level = [root]
    for _ in range(_DEPTH + 1):
        below: list[Path] = []
        for place in sorted(level):
            if (place / "recipe.toml").is_file():
                runs[_key(root, place)] = place
            else:
                below += [each for each in place.iterdir() if each.is_dir() and not each.is_symlink()]
        level = below
    return dict(list(runs.items())[:_MOST_RUNS])


def _key(root: Path, place: Path) -> str:
    return hashlib.sha256(place.relative_to(root).as_posix().encode()).hexdigest()[:16]


def summary(path: Path | str, key: str = "") -> RunSummary:
    """A run in a few numbers; one that cannot be read says why."""
    folder = Folder(path)
    name = folder.path.resolve().name
    try:
        recipe = folder.read_recipe()
        read = _finished(folder) if folder.finished else _unfinished(folder, recipe)
        pages = tuple(page for page in PAGES if (folder.path / page).is_file())
        return RunSummary(
            **{"key": key, "name": name, "recipe": str(recipe.get("recipe", "")), "pages": pages}
            | _last(folder.read_rounds(), recipe)
            | {"date": _date(folder)}
            | read
            | _quality(folder.path)
        )
    except (FedsynthError, OSError, ValueError, KeyError, TypeError) as error:
        return RunSummary(key, name, "broken", problem=str(error))


def _finished(folder: Folder) -> dict[str, Any]:
    statement = checked_run(folder.path).statement
    facts: dict[str, Any] = {"state": "finished", "epsilon": statement.epsilon, "private": statement.private}
    return {**facts, "promise": promise(statement)}


def promise(statement: Statement) -> str:
    """The promise in a few words."""
    if statement.simulation:
        return "none: simulation"
    if statement.epsilon is None:
        return "none"
    incomplete = "" if statement.private else ", incomplete"
    return f"{statement.unit}: ε {shown(statement.epsilon)}, δ {statement.delta:g}{incomplete}"


def _date(folder: Folder) -> str:
    """When something was written last, in the time of this machine."""
    written = max(
        file.stat().st_mtime for file in (folder.recipe, folder.history, folder.ledger) if file.exists()
    )
    return datetime.fromtimestamp(written).strftime("%Y-%m-%d %H:%M")


def _unfinished(folder: Folder, recipe: Mapping[str, Any]) -> dict[str, Any]:
    files = [file for file in (folder.history, folder.recipe, folder.ledger) if file.exists()]
    age = time.time() - max(file.stat().st_mtime for file in files)
    history = folder.read_history()
    spent = next((line["epsilon"] for line in reversed(history) if line.get("epsilon") is not None), None)
    goal = recipe.get("epsilon")
    words = "none" if goal is None else f"at most ε {goal:g}, δ {recipe.get('delta', 0):g}"
    if recipe.get("seed") is not None:
        words = "none: simulation"
    return {"state": "running" if age < _FRESH_S else "stopped", "epsilon": spent, "promise": words}


def _last(history: Sequence[Mapping[str, Any]], recipe: Mapping[str, Any]) -> dict[str, Any]:
    rounds = recipe.get("arguments", {}).get("rounds") or recipe.get("rounds")
    if not history:
        return {"round": 0, "rounds": rounds}
    last = history[-1]
    return {
        "round": int(last["version"]),
        "rounds": rounds,
        "loss": None if last["loss"] is None else float(last["loss"]),
        "clients": last.get(
            "clients"
        ),  # None where the folder does not tell: it is the trusted server's to know
        "dropped": sum(int(line.get("dropped") or 0) for line in history),
        "seconds_left": _seconds_left(history, rounds),
    }


def _seconds_left(history: Sequence[Mapping[str, Any]], rounds: int | None) -> float | None:
    """Return the time that the rounds that are left take at the pace of the last ones; None where that is not known."""
    paces = [float(line["seconds"]) for line in history[-_PACED:] if line.get("seconds") is not None]
    left = 0 if rounds is None else rounds - int(history[-1]["version"])
    return sum(paces) / len(paces) * left if paces and left > 0 else None


def _quality(path: Path) -> dict[str, Any]:
    file = path / "scores.json"
    if not file.is_file():
        return {}
    scores = load_scores(file)
    values = {score.name: score.value for score in scores}
    area = chosen_utility(scores)
    fidelity: dict[str, Any] = {"shapes": values.get("column shapes"), "pairs": values.get("column pairs")}
    image = next((score for score in scores if score.name == FRECHET and score.value is not None), None)
    shapes = next((score for score in scores if score.name == "column shapes"), None)
    rows = {} if shapes is None or shapes.value is None else {"real": str(shapes.detail.get("real_rows", ""))}
    if area:
        beside = (area.detail["train_on_real"], area.detail["majority"])  # of runs that were scored before
        rows["test"] = str(area.detail.get("test_rows") or beside)
    return {**fidelity, "frechet": image, "scored_on": rows, **(_useful(area) if area else {})}


def scored_on_others(runs: Sequence[RunSummary], what: str) -> str | None:
    """Why scores of these runs must not be set under one line: they were measured on other rows; None if they may.

    `what` is `real`, the rows that faithfulness is measured against, or `test`, those that usefulness is measured on.
    """
    scored = [run for run in runs if what in run.scored_on]
    others = [run.name for run in scored[1:] if run.scored_on[what] != scored[0].scored_on[what]]
    if not others:
        return None
    rows = {"real": "compared with different real rows", "test": "scored on different test rows"}[what]
    return f"{scored[0].name} and {', '.join(others)} were {rows}"


def why_not_compared(runs: Sequence[RunSummary]) -> str | None:
    """Why the image scores of these runs must not be set side by side; None if they may, or if there are none."""
    scored = [(run.name, run.frechet) for run in runs if run.frechet is not None]
    for name, other in scored[1:]:
        try:
            compare(scored[0][1], other)
        except Incompatible as error:
            return f"{scored[0][0]} and {name}: {error}"
    return None


def _useful(area: Score) -> dict[str, Any]:
    return {"useful": area.value, "useful_real": area.detail["train_on_real"], "useful_name": area.name}
