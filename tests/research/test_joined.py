"""A row measured in pieces is the row measured at once."""

import json

import pytest
from typer.testing import CliRunner

from fedsynth.assess.scores.score import over_seeds
from fedsynth.cli.main import app
from fedsynth.errors import BadInput
from fedsynth.research.across_runs import across_runs
from fedsynth.research.joined import joined


def piece(accuracies, seeds=(), epsilon=1.0, **changes):
    runs = [[over_seeds("cnn: accuracy", [a], detail={"train_on_real": 0.9})] for a in accuracies]
    plain = {
        "row": "tiny",
        "recipe": "fvae",
        "settings": {"rounds": 2},
        "seeds": list(seeds),
        "runs": len(accuracies),
        "scores": [score.to_dict() for score in across_runs(runs, seeds)],
        "privacy": {"epsilon": epsilon},
        "seconds_training": [1.0] * len(accuracies),
        "seconds": 3.0,
    }
    return {**plain, **changes}


def test_mean_spread_and_runs_are_those_of_one_call():
    whole = piece([0.5, 0.7, 0.9])
    parts = joined([piece([0.5]), piece([0.7, 0.9])])
    assert parts["scores"] == whole["scores"] and parts["runs"] == 3
    assert parts["seconds"] == 6.0 and parts["seconds_training"] == [1.0] * 3


def test_the_dearest_run_is_told():
    assert joined([piece([0.5], epsilon=1.0), piece([0.5], epsilon=2.0)])["privacy"]["epsilon"] == 2.0


@pytest.mark.parametrize("other", [{"row": "another"}, {"settings": {"rounds": 3}}, {"recipe": "dpd_fvae"}])
def test_results_of_different_rows_are_refused(other):
    with pytest.raises(BadInput, match=next(iter(other))):
        joined([piece([0.5]), piece([0.6], **other)])


def test_a_seed_does_not_count_twice():
    with pytest.raises(BadInput, match="twice"):
        joined([piece([0.5], seeds=(1,)), piece([0.6], seeds=(1,))])


def test_the_command_joins_files(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.json").write_text(json.dumps(piece([0.5 + number / 10])))
    files = [str(tmp_path / name) for name in ("0.json", "1.json")]
    done = CliRunner().invoke(app, ["experiment", "join", *files, "--out", str(tmp_path / "all.json")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "all.json").read_text())["runs"] == 2
