import json
from pathlib import Path

import pytest

from fedsynth.cli.main import main
from fedsynth.data.rand_health import hold_out, rand_health
from fedsynth.errors import BadInput
from fedsynth.research.experiment import Experiment

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for path in sorted((ROOT / "experiments").glob("*/*.toml")) if "\n[run]" in path.read_text()]
TINY = """
data = "rand_health"
seeds = [1, 2]
train_rows = 600
[run]
recipe = "dpd_fvae"
clients = 100
epsilon = 8.0
delta = 1e-5
[run.arguments]
rounds = 2
hidden = [16]
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_experiment_can_be_read(path):
    experiment = Experiment.load(path)
    assert experiment.row == path.stem and 1 <= len(experiment.each) <= 5


def test_the_adult_experiment_has_all_systems():
    rows = {path.stem: Experiment.load(path).request for path in FILES if path.parent.name == "adult"}
    assert {"dpd_fvae", "fvae", "central_vae", "central_vae_dp", "dpd_fvae_no_dp", "fvae_no_dp"} <= set(rows)
    assert all((r.epsilon, r.delta) == (8.0, 1e-5) for r in rows.values() if r.private)
    assert all((r.clients, r.split) == (5000, "uniform") for r in rows.values())


@pytest.mark.recipe
def test_a_result_holds_all_that_a_reader_needs(tmp_path, capsys):
    pytest.importorskip("statsmodels", reason="the extra 'demo' is not installed")
    (tmp_path / "tiny.toml").write_text(TINY)
    with pytest.raises(SystemExit) as stopped:
        main(["experiment", "run", str(tmp_path / "tiny.toml"), "--json", "--quiet"])
    assert not stopped.value.code
    result = json.loads((tmp_path / "results" / "tiny.json").read_text())
    assert json.loads(capsys.readouterr().out) == result
    scores = {score["name"]: score for score in result["scores"]}
    assert len(scores["gradient boosting: auc"]["detail"]["runs"]) == 2
    assert scores["gradient boosting: auc"]["detail"]["train_on_real"] > 0.5
    assert {"column shapes", "column pairs"} <= set(scores) and result["seeds"] == [1, 2]
    assert 7.5 < result["privacy"]["epsilon"] <= 8.0 and result["privacy"]["simulation"]
    assert result["settings"]["rounds"] == 2 and result["settings"]["noise_multiplier"] > 0
    assert {"cpu", "cores", "device", "python", "torch"} == set(result["machine"])
    with pytest.raises(SystemExit) as refused:
        main(["experiment", "run", str(tmp_path / "tiny.toml"), "--quiet"])
    assert refused.value.code == 2


def test_mistakes_in_the_file_are_all_told_at_once(tmp_path):
    (tmp_path / "bad.toml").write_text('date = "adult"\nruns = 3\n')
    with pytest.raises(BadInput, match="did you mean 'data'.*data: missing; \\[run\\]: missing"):
        Experiment.load(tmp_path / "bad.toml")
    (tmp_path / "both.toml").write_text(TINY.replace("seeds = [1, 2]", "seeds = [1]\nruns = 2"))
    with pytest.raises(BadInput, match="not both"):
        Experiment.load(tmp_path / "both.toml")
    (tmp_path / "argument.toml").write_text(TINY.replace("hidden", "hiden"))
    with pytest.raises(BadInput, match="did you mean 'hidden'"):
        Experiment.load(tmp_path / "argument.toml")


@pytest.mark.parametrize(
    ("data", "judge", "nearest"), [("mnist", "student", "student network"), ("rand_health", "cnn", "known")]
)
def test_a_classifier_that_the_data_cannot_have_is_told_before_training(tmp_path, data, judge, nearest):
    text = TINY.replace('"rand_health"', f'"{data}"\nclassifiers = ["{judge}"]')
    (tmp_path / "judged.toml").write_text(text)
    with pytest.raises(BadInput, match=f"classifier '{judge}': unknown.*{nearest}"):
        Experiment.load(tmp_path / "judged.toml")


def test_whole_people_are_held_out():
    pytest.importorskip("statsmodels", reason="the extra 'demo' is not installed")
    frame, _ = rand_health()
    train, test = hold_out(frame, "person")
    assert not set(train["person"]) & set(test["person"]) and len(train) + len(test) == len(frame)
    assert test["person"].nunique() == pytest.approx(0.2 * 5912, abs=1)
