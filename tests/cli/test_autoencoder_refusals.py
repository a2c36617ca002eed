"""What the autoencoder systems refuse on the command line: by name and value, and before anybody has paid."""

import numpy as np
import pytest

from fedsynth.cli.main import main
from fedsynth.research.datasets import data_folder
from samples import make_frame

folder = data_folder()
here = folder is not None and (folder / "heart_disease_4sites.csv.gz").exists()
LOCAL = ["--recipe", "dp_fed_wae", "--trust", "local", "--epsilon", "8", "--delta", "1e-6"]
BASELINE = """
data = "heart_disease"
runs = 1

[baseline]
system = "privbayes"
degree = {degree}

[run]
recipe = "dp_fed_wae"
clients = 20
epsilon = 8.0
delta = 1e-6
"""


@pytest.fixture
def refused(capsys):
    """Run a command that must fail with a sentence: the exit code and the sentence."""

    def calling(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return ended.value.code, " ".join(capsys.readouterr().err.split())

    return calling


@pytest.fixture
def data(schema, frame, tmp_path):
    """A table of 40 clients with three rows each, and its schema."""
    frame.to_csv(tmp_path / "data.csv", index=False)
    schema.save(tmp_path / "schema.json")
    return [tmp_path / "data.csv", "--schema", tmp_path / "schema.json", "--client-column", "owner"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["alpha=1.5"], "alpha=1.5: expected between 0 and 1 (share of coordinates that are favored"),
        (["alpha=-0.1"], "alpha=-0.1: expected between 0 and 1 (share of coordinates that are favored"),
        (["top=1000000"], "top=1000000: fewer than the"),
        (["indices=1000000"], "indices=1000000: a client sends fewer indices than"),
        (["rounds=11", "group=4", "participations=2"], "then the budget of all of them is spent"),
    ],
    ids=str,
)
def test_dp_fed_wae_says_what_it_cannot_do(refused, data, tmp_path, settings, sentence):
    given = [word for each in settings for word in ("--set", each)]
    code, told = refused("run", *data, *LOCAL, *given, "--out", tmp_path / "RUN")
    assert code and sentence in told and "Traceback" not in told
    assert not list(tmp_path.glob("RUN/**/ledger*"))


def test_a_class_that_nobody_holds_is_named(refused, data, schema, tmp_path):
    rows = make_frame(np.arange(600))  # few clients would be lost in the noise
    rows.assign(**{schema.label: schema.classes[0]}).to_csv(data[0], index=False)
    given = ["--recipe", "fed_vae", "--epsilon", "8", "--delta", "1e-3", "--set", "rounds=2"]
    code, told = refused("run", *data, *given, "--out", tmp_path / "RUN")
    assert code and f"class {schema.classes[1]!r}: its noisy weight" in told
    assert "leave the class out of the schema, or set vaes=unified" in told


@pytest.mark.skipif(not here, reason="heart disease is not in FEDSYNTH_DATA")
@pytest.mark.parametrize("degree", [0, 14, 99])
def test_a_bayes_network_has_fewer_parents_than_columns(refused, tmp_path, degree):
    (tmp_path / "row.toml").write_text(BASELINE.format(degree=degree))
    code, told = refused("experiment", "run", tmp_path / "row.toml", "--quiet")
    assert code and f"degree={degree}: a network over" in told and "Traceback" not in told
