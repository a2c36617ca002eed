"""What a run will take is measured before it starts, and changes nothing of it."""

import pandas as pd
import pytest

from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.rng import Rng
from fedsynth.synthesis.forecast import LONGEST_S, Forecast
from fedsynth.synthesis.synthesizer import Synthesizer

SCHEMA = Schema.from_dict(
    {
        "version": 1,
        "kind": "table",
        "label": "ill",
        "columns": [
            {"name": "age", "type": "integer", "min": 0, "max": 99},
            {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
        ],
    }
)
FRAME = pd.DataFrame({"age": [30, 40, 50, 60] * 20, "ill": ["no", "yes"] * 40})


def fitted(folder, **settings):
    clients = clients_from(FRAME, clients=20, rng=Rng(1))
    notes = []
    made = Synthesizer(schema=SCHEMA, epsilon=8, delta=1e-3, seed=1, **settings)
    made.fit(clients, folder=folder, note=notes.append)
    return made, notes


@pytest.mark.parametrize("recipe", ["marginals", "dpd_fvae"])
def test_a_run_says_what_it_takes_and_is_the_same_run(tmp_path, recipe):
    settings = {"recipe": recipe, "rounds": 2}
    made, notes = fitted(tmp_path / "RUN", **settings)
    assert notes[0].startswith("this run will take about ")
    assert "(2 rounds of" in notes[0]
    alone = Synthesizer(schema=SCHEMA, epsilon=8, delta=1e-3, seed=1, **settings)
    alone.fit(clients_from(FRAME, clients=20, rng=Rng(1)))
    pd.testing.assert_frame_equal(made.sample(20, seed=3), alone.sample(20, seed=3))


@pytest.mark.parametrize(("seconds", "disk"), [(LONGEST_S + 1, 0.0), (1.0, 1e20)])
def test_an_absurd_run_is_refused_before_anything_is_written(tmp_path, monkeypatch, seconds, disk):
    expected = Forecast(seconds, disk, 10, 100.0)
    monkeypatch.setattr("fedsynth.synthesis.synthesizer.forecast", lambda *_: expected)
    with pytest.raises(BadInput, match="accept=.cost."):
        fitted(tmp_path / "RUN")
    assert not (tmp_path / "RUN").exists()
    made, _ = fitted(tmp_path / "RUN", accept=("cost",))
    assert made.request.recipe == "marginals"
    assert made.request.chosen.startswith("recipe marginals")
