"""Rows of counts are drawn without torch, and are those that torch's streams would give."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth import rng as rng_module
from fedsynth.data.schema import Schema
from fedsynth.rng import Rng
from fedsynth.synthesis.counted_rows import PART, stream_counts
from fedsynth.synthesis.released_files import checked_run
from fedsynth.synthesis.synthesizer import Synthesizer

COLUMNS = [
    {"name": "age", "type": "integer", "min": 0, "max": 99},
    {"name": "weight", "type": "continuous", "min": 30, "max": 200, "missing": True},
    {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
]


@pytest.fixture(scope="module", params=["ill", None])
def folder(request, tmp_path_factory):
    known = {"version": 1, "kind": "table", "columns": COLUMNS}
    schema = Schema.from_dict({**known, "label": request.param} if request.param else known)
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": draw.integers(0, 100, 300),
            "weight": np.where(draw.random(300) < 0.2, np.nan, draw.uniform(40, 150, 300)),
            "ill": np.where(draw.random(300) < 0.3, "yes", "no"),
        }
    )
    path = tmp_path_factory.mktemp("counted") / "RUN"
    Synthesizer(schema=schema, epsilon=5, rounds=3, seed=1).fit(frame, folder=path)
    return path


@pytest.mark.parametrize("rows", [2, 1000, PART + 30_000])
def test_the_rows_are_those_of_the_generator(folder, rows):
    drawn = stream_counts(checked_run(folder), rows, seed=4)
    expected = Synthesizer.load(folder).sample(rows, seed=4)
    pd.testing.assert_frame_equal(pd.concat(list(drawn), ignore_index=True), expected)


def test_one_row_is_left_to_the_generator(folder):
    assert stream_counts(checked_run(folder), 1, seed=4) is None


def test_sample_of_counts_does_not_import_torch(folder, tmp_path):
    command = (
        "import sys\nfrom fedsynth.cli.main import main\n"
        f"sys.argv = ['fedsynth', 'sample', {str(folder)!r}, '--rows', '50', '--out', {str(tmp_path / 'a.csv')!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", command], check=True)
    assert len(pd.read_csv(tmp_path / "a.csv")) == 50


@pytest.mark.parametrize("seed", [0, 1, 2**40 + 3])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 3331)])
def test_floats_are_those_of_torch(seed, shape):
    rng = Rng(seed).at("within")
    assert (rng.floats(*shape) == torch.rand(*shape, generator=rng.torch_generator()).numpy()).all()


@pytest.mark.parametrize("classes", [2, 3, 17, 1000])
def test_places_are_those_of_torch(classes, monkeypatch):
    monkeypatch.setattr(rng_module, "_AT_ONCE", 3000)  # they are drawn in parts
    chances = np.random.default_rng(classes).random(classes).astype(np.float32)
    chances[classes // 2 :: 5] = 0
    chances[0] = 0.5
    rng = Rng(classes).at("labels")
    expected = torch.multinomial(
        torch.from_numpy(chances), 20_011, replacement=True, generator=rng.torch_generator()
    )
    places = rng.places(chances, 20_011)
    assert (places == expected.numpy()).all() and places.itemsize == (1 if classes <= 256 else 2)
