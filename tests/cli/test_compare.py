import json
import shutil
from pathlib import Path

import pytest

from fedsynth.assess.image_steps import FRECHET
from fedsynth.assess.scores.score import Score, save_scores
from fedsynth.cli.main import main
from fedsynth.data.clients import clients_from
from fedsynth.synthesis.synthesizer import Synthesizer


@pytest.fixture(scope="module")
def runs(tmp_path_factory, schema, frame):
    folder = tmp_path_factory.mktemp("compare")
    budget = {"epsilon": 8.0, "delta": 1e-3, "private": True}
    for name, promise in (("open", {"private": False}), ("private", budget)):
        small = {"rounds": 2, "latent": 2, "hidden": (8,), "epochs": 1, "batch_size": 4}
        made = Synthesizer("dpd_fvae", schema, **small, **promise)
        made.fit(clients_from(frame, client_column="owner"), folder=folder / name)
    scores = [Score("column shapes", 0.91), Score("column pairs", 0.83)]
    save_scores(scores, folder / "private" / "scores.json")
    return folder


def call(*arguments):
    with pytest.raises(SystemExit) as left:
        main(["compare", *map(str, arguments)])
    return left.value.code


def test_runs_stand_side_by_side(runs, capsys):
    assert call(runs / "private", runs / "open") == 0
    told = capsys.readouterr().out
    assert "0.910" in told and "0.830" in told and "internal" in told
    assert "measure them with" in told  # the run without scores


def test_runs_as_json(runs, capsys):
    assert call(runs / "private", runs / "open", "--json") == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [run["name"] for run in found] == ["private", "open"]
    assert (found[0]["pairs"], found[0]["promise"]) == (0.83, "client: ε 8, δ 0.001")
    assert found[1]["epsilon"] is None and found[1]["promise"] == "none"


def with_images(runs, name, network):
    """A copy of a run whose images were measured with a network."""
    run = Path(shutil.copytree(runs / "open", runs / name, dirs_exist_ok=True))
    setting = {"network": network, "weights": "0" * 16, "resize": 32}
    save_scores([Score(FRECHET, 41.5, "min", (0.0, 1e9), detail={"setting": setting})], run / "scores.json")
    return run


def test_image_scores_of_one_network_stand_side_by_side(runs, capsys):
    assert call(with_images(runs, "a", "lenet"), with_images(runs, "b", "lenet")) == 0
    told = capsys.readouterr().out
    assert told.count("41.500") == 2 and "ot compared" not in told


def test_image_scores_of_other_networks_are_not_compared(runs, capsys):
    other = [with_images(runs, "a", "lenet"), with_images(runs, "c", "inception-v3")]
    assert call(*other) == 0
    told = capsys.readouterr().out
    assert "41.500" not in told and "not compared" in told
    assert "a and c: " in told and "network lenet and inception-v3" in told
    assert call(*other, "--json") == 0
    assert "same setting" in json.loads(capsys.readouterr().out)["not_compared"]


def test_one_run_is_not_enough(runs, capsys):
    assert call(runs / "private") == 2
    assert "two or more" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_named(runs, tmp_path, capsys):
    assert call(runs / "private", tmp_path) == 2
    assert "not a run" in capsys.readouterr().err
