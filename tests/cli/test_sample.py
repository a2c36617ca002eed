import json

import pandas as pd
import pytest

from fedsynth import Synthesizer, clients_from
from fedsynth.cli.main import main


@pytest.fixture(scope="module")
def run(schema, frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "RUN"
    small = {"hidden": (8,), "latent": 2, "rounds": 1, "seed": 1}
    Synthesizer("fvae", schema, private=False, **small).fit(
        clients_from(frame, client_column="owner"), folder=path
    )
    return path


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    told = capsys.readouterr()
    return ended.value.code or 0, told.out, told.err


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_rows_are_written_as_the_name_says(run, ending, tmp_path, capsys):
    out = tmp_path / f"rows.{ending}"
    code, told, errors = call(capsys, "sample", run, "--rows", 25, "--out", out, "--json")
    assert code == 0 and errors == "" and json.loads(told) == {"out": str(out), "rows": 25}
    assert len(pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out)) == 25


def test_conditions_are_met_and_a_seed_repeats(run, tmp_path, capsys):
    wishes = ["--condition", "ill=yes", "--condition", "sex=F", "--seed", 3, "--rows", 10]
    for name in ("a", "b"):
        assert call(capsys, "sample", run, *wishes, "--out", tmp_path / f"{name}.parquet")[0] == 0
    first, second = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("a", "b"))
    pd.testing.assert_frame_equal(first, second)
    assert set(first["ill"]) == {"yes"} and set(first["sex"]) == {"F"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--condition", "sex=X"], "no such category"),
        (["--condition", "ill=maybe"], "no such category"),
        (["--condition", "agee=3"], "did you mean 'age'"),
        (["--condition", "age"], "COLUMN=VALUE"),
        (["--condition", "sex=F", "--condition", "sex=M"], "'sex' has a condition already"),
        (["--rows", "0"], "rows=0"),
        (["--rows", "-3"], "rows=-3"),
    ],
)
def test_what_cannot_be_sampled_is_one_sentence(run, more, words, tmp_path, capsys):
    out = tmp_path / "rows.csv"
    code, told, errors = call(capsys, "sample", run, "--rows", 5, "--out", out, *more)
    assert code == 2 and told == "" and words in errors and errors.count("\n") == 1
    assert not out.exists()


def test_a_file_that_exists_is_not_written_over(run, tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("mine")
    code, _, errors = call(capsys, "sample", run, "--rows", 5, "--out", tmp_path / "rows.csv")
    assert code == 2 and "exists already" in errors and (tmp_path / "rows.csv").read_text() == "mine"


@pytest.mark.parametrize("name", ["rows.xlsx", "missing/rows.csv"])
def test_a_place_that_cannot_be_written_is_named(run, name, tmp_path, capsys):
    code, _, errors = call(capsys, "sample", run, "--rows", 5, "--out", tmp_path / name)
    assert code == 2 and name.split("/")[-1] in errors and "Traceback" not in errors


def test_a_folder_that_is_no_run_is_named(tmp_path, capsys):
    code, _, errors = call(capsys, "sample", tmp_path, "--rows", 5, "--out", tmp_path / "rows.csv")
    assert code == 2 and "not a run" in errors


def test_an_unfinished_run_is_to_be_resumed(run, tmp_path, capsys):
    (tmp_path / "recipe.toml").write_bytes((run / "recipe.toml").read_bytes())
    (tmp_path / "schema.json").write_bytes((run / "schema.json").read_bytes())
    code, _, errors = call(capsys, "sample", tmp_path, "--rows", 5, "--out", tmp_path / "rows.csv")
    assert code == 2 and "--resume" in errors
