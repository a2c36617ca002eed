"""A small finished run for the tests of pages, its real rows, and a browser to open them in."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsynth.assess.attacks.article29 import NAMES, Risk
from fedsynth.assess.scores.score import Score, failure
from fedsynth.assess.suite import Evaluation
from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import file_hash, write_released
from fedsynth.synthesis.synthesizer import Synthesizer

SIMULATION = {"seed": 1}
SYNTHETIC = ("synthetic.parquet", "synthetic.npz")
HOSTILE = "<script>alert('x')</script>"
SCHEMA = {
    "version": 1,
    "kind": "table",
    "label": "ill",
    "client": "owner",
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 99},
        {"name": "bmi", "type": "continuous", "min": 10.0, "max": 60.0, "missing": True},
        {"name": HOSTILE, "type": "categorical", "categories": ["<b>F</b>", "M"]},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ],
}
SMALL = {"latent": 2, "hidden": (8,), "epochs": 1, "batch_size": 8}
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)


def real_rows(count: int = 300, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    ill = draw.integers(0, 2, count)
    return pd.DataFrame(
        {
            "owner": np.arange(count) // 2,
            "age": np.clip(draw.normal(30 + 30 * ill, 9), 0, 99).astype(int),
            "bmi": np.where(draw.random(count) < 0.1, np.nan, np.clip(draw.normal(25, 5, count), 10, 60)),
            HOSTILE: np.where(draw.random(count) < 0.5, "<b>F</b>", "M"),
            "ill": np.where(ill == 1, "yes", "no"),
        }
    )


@cache
def template(seed: int | None = None) -> Path:
    """A run that is made once and copied by `make_run`: calibrating its noise takes seconds."""
    place = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    folder = Path(place) / "run"
    schema = Schema.from_dict(SCHEMA)
    made = Synthesizer("dpd_fvae", schema, epsilon=8, delta=1e-3, rounds=3, seed=seed, **SMALL)
    made.fit(clients_from(real_rows(), client_column="owner"), folder=folder)
    rows = made.sample(400, seed=1)
    assert isinstance(rows, pd.DataFrame)
    write_released(rows, Folder(folder), schema)
    return folder


def make_run(folder: Path, name: str = "run", seed: int | None = None) -> Path:
    """A finished run of three rounds, of one's own; with a seed a simulation."""
    return Path(shutil.copytree(template(seed), folder / name))


def reseal(run: Path) -> None:
    """Name the files of a run as they are now: what only somebody who rewrites the ledger as well can do."""
    names = ("privacy.json", "generator.safetensors", "schema.json", "recipe.toml", *SYNTHETIC)
    Ledger(run / "ledger.jsonl").seal(
        {name: file_hash(run / name) for name in names if (run / name).exists()}
    )


def scored() -> Evaluation:
    """Scores and plot data with every topic that a page can show, small and made up."""
    pair = {
        "names": ["age", "ill"],
        "real": [[1.0, 0.5], [0.5, 1.0]],
        "synthetic": [[1.0, -0.2], [-0.2, 1.0]],
    }
    ages = {
        "name": "age", "type": "integer", "bins": ["0 to 50", "50 to 99"], "edges": [0.0, 50.0, 99.0],
        "real": [0.5, 0.5], "synthetic": [0.7, 0.3], "missing_real": 0.0, "missing_synthetic": 0.1, "failed": None,
    }  # fmt: skip
    sexes = {
        "name": HOSTILE, "type": "categorical", "bins": ["<b>F</b>", "M"], "edges": None,
        "real": [0.5, 0.5], "synthetic": [0.4, 0.6], "missing_real": 0.0, "missing_synthetic": 0.0, "failed": None,
    }  # fmt: skip
    attack = {
        "name": "nearest neighbor", "auc": 0.55,
        "false_positive_rate": [0.0, 0.02, 0.5, 1.0], "true_positive_rate": [0.0, 0.04, 0.6, 1.0],
    }  # fmt: skip
    beside = {"train_on_real": 0.9, "majority": 0.5, "test": "real rows that the generator never saw"}
    shapes = {"parts": {"age": 0.8, HOSTILE: 0.95}, "failed": {"bmi": "all are missing"}}
    scores = (
        Score("column shapes", 0.9, detail=shapes),
        Score("column pairs", 0.88),
        Score("gradient boosting: auc", 0.86, spread=0.01, detail=beside),
        failure("detection", "the synthetic rows have one class"),
    )
    marginals = [{"columns": ["age", "ill"], "ways": 2, "distance": 0.2, "halves": 0.05}]
    joint = {
        "columns": ["age", "ill"], "bins": [["0 to 50", "50 to 99"], ["no", "yes"]], "change": -0.7,
        "real": [[0.4, 0.1], [0.1, 0.4]], "synthetic": [[0.2, 0.3], [0.3, 0.2]],
    }  # fmt: skip
    closest = {
        "edges": [0.0, 0.5, 1.0], "synthetic": [0.4, 0.6], "holdout": [0.5, 0.5], "synthetic_median": 0.6,
        "holdout_median": 0.5, "synthetic_copies": 0.0, "holdout_copies": 0.01, "rows": 300,
    }  # fmt: skip
    details = {
        "columns": [ages, sexes], "associations": pair, "attacks": [attack], "marginals": marginals,
        "rows": {"real": 300, "synthetic": 400, "test": None}, "pairs": [joint], "closest": closest,
        "embedding": {"real": [[0, 1], [1, 0]], "synthetic": [[0, 0.5], [1, 1]], "explained": [0.5, 0.3]},
        "risks": [Risk(name, 200, 30, 20, 5).to_dict() for name in NAMES],
    }  # fmt: skip
    return Evaluation(scores, details)


def wide(count: int = 57) -> Evaluation:
    """The same for a table of very many columns with long names that begin alike."""
    small = scored()
    first = small.details["columns"][0]
    bins = {"bins": [f"{i} to {i + 1}" for i in range(30)], "edges": list(range(31))}
    shares = {"real": [1 / 30] * 30, "synthetic": [2 / 30] * 15 + [0.0] * 15}
    names = [f"individual_deductible_or_copayment_of_plan_{i:02d}_measured" for i in range(count)]
    summary = {"distinct": 30, "lowest": 0.0, "middle": 15.0, "mean": 15.0, "highest": 30.0, "deviation": 8.7}
    more = {
        "summary": {"real": summary, "synthetic": summary},
        "alerts": ["mostly missing (real 60%, synthetic 70%)"],
    }
    columns = [{**first, **bins, **shares, **more, "name": name} for name in names]
    square = np.linspace(-1, 1, count * count).reshape(count, count)
    relations = {"names": names, "real": square.tolist(), "synthetic": (square / 2).tolist()}
    return Evaluation(small.scores, {**small.details, "columns": columns, "associations": relations})


PATIENCE_MS = 600_000  # a busy machine opens a page in its own time


@contextmanager
def browser():
    """A headless Chromium, or the test is skipped with the reason."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver, tempfile.TemporaryDirectory() as profile:
        try:
            opened = driver.chromium.launch_persistent_context(
                profile, executable_path=CHROMIUM, args=FLAGS, color_scheme="light", timeout=PATIENCE_MS
            )
            opened.set_default_timeout(PATIENCE_MS)
        except playwright.Error as error:
            pytest.skip(f"chromium does not start here: {str(error).splitlines()[0]}")
        try:
            yield opened
        finally:
            opened.close()
