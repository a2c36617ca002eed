import json
import re
import tomllib

import numpy as np
import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.cli.run import request_of
from fedsynth.data.image import write_images
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import Folder

SMALL = ["--set", "hidden=8", "--set", "latent=2", "--set", "batch_size=8"]
PRIVATE = ["--epsilon", "8", "--delta", "1e-3"]


@pytest.fixture
def call(capsys):
    """Run a command in this process: exit code, standard output, standard error."""

    def calling(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        told = capsys.readouterr()
        return ended.value.code or 0, told.out, told.err

    return calling


@pytest.fixture(scope="module")
def here(schema, frame, tmp_path_factory):
    """A folder with data.csv and schema.json."""
    folder = tmp_path_factory.mktemp("data")
    frame.to_csv(folder / "data.csv", index=False)
    schema.save(folder / "schema.json")
    return folder


def command(here, out, *more, data="data.csv", schema="schema.json", budget=PRIVATE, recipe="dpd_fvae"):
    given = ["--schema", here / schema, "--recipe", recipe, "--client-column", "owner", *SMALL]
    return ["run", here / data, *given, *budget, "--out", out, *more]


@pytest.fixture(scope="module")
def finished(here, tmp_path_factory):
    """A private run without a seed, with what it printed."""
    out = tmp_path_factory.mktemp("finished") / "RUN"
    from contextlib import redirect_stderr, redirect_stdout
    from io import StringIO

    told, errors = StringIO(), StringIO()
    arguments = command(here, out, "--rounds", "3", "--rows", "30", "--json")
    with redirect_stdout(told), redirect_stderr(errors), pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code or 0, told.getvalue(), errors.getvalue(), out


def test_a_run_leaves_its_files_and_nothing_private(finished):
    code, _, _, out = finished
    assert code == 0
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert names >= {
        "recipe.toml", "schema.json", "generator.safetensors", "ledger.jsonl", "privacy.json", "history.jsonl",
        "synthetic.parquet",
    }  # fmt: skip
    assert "state" not in names
    rows = pd.read_parquet(out / "synthetic.parquet")
    assert len(rows) == 30 and list(rows.columns) == ["age", "bmi", "sex", "grade", "ill"]


def test_json_prints_one_object_and_progress_goes_to_standard_error(finished):
    _, told, errors, out = finished
    result = json.loads(told)
    assert result["out"] == str(out) and result["privacy"]["private"] is True
    assert result["privacy"] == json.loads((out / "privacy.json").read_text())
    assert 7.92 < result["privacy"]["epsilon"] <= 8
    assert re.search(r"round 3/3 .*epsilon 8.00 of 8 .*loss .*left", errors)


def test_the_history_has_the_fields_that_users_rely_on(finished):
    lines = [json.loads(text) for text in (finished[3] / "history.jsonl").read_text().splitlines()]
    assert [line["version"] for line in lines] == [1, 2, 3]
    expected = {"version", "loss", "epsilon", "seconds", "clients", "dropped", "bytes_up", "bytes_down"}
    assert set(lines[0]) >= expected
    spent = [
        line["epsilon"] for line in lines if line["epsilon"] is not None
    ]  # read now and then, and at the end
    assert spent == sorted(spent) and 7.92 < spent[-1] <= 8 and lines[-1]["epsilon"] is not None


def test_the_ledger_of_a_run_verifies_and_costs_what_the_statement_says(finished):
    ledger = Ledger(finished[3] / "ledger.jsonl")
    assert ledger.verify() == [] and len(ledger.releases()) == 4
    stated = json.loads((finished[3] / "privacy.json").read_text())["epsilon"]
    assert ledger.epsilon(1e-3) == pytest.approx(stated, rel=1e-6)


def test_a_finished_run_is_not_run_again(finished, call, here):
    before = (finished[3] / "generator.safetensors").read_bytes()
    code, _, errors = call(*command(here, finished[3]))
    assert code == 2 and "exists already" in errors
    code, told, errors = call("run", "--out", finished[3], "--resume", "--json")
    assert code == 0 and "nothing to resume" in errors and json.loads(told)["privacy"]["private"]
    assert (finished[3] / "generator.safetensors").read_bytes() == before


def test_a_run_killed_before_its_synthetic_data_were_written_gets_them_on_resume(finished, call, tmp_path):
    import shutil

    out = shutil.copytree(finished[3], tmp_path / "RUN")
    (out / "synthetic.parquet").unlink()
    (out / "state").mkdir()
    assert call("run", "--out", out, "--resume", "--quiet")[0] == 0
    assert len(pd.read_parquet(out / "synthetic.parquet")) == 30 and not (out / "state").exists()


BASELINE = ["--no-privacy", "--seed", "3", "--rounds", "2", "--rows", "20"]


def test_the_recipe_file_runs_again(call, here, tmp_path):
    first, again = tmp_path / "a", tmp_path / "b"
    assert call(*command(here, first, *BASELINE, budget=[]))[0] == 0
    assert call("run", "--config", first / "recipe.toml", "--out", again)[0] == 0
    assert (first / "generator.safetensors").read_bytes() == (again / "generator.safetensors").read_bytes()
    pd.testing.assert_frame_equal(*(pd.read_parquet(run / "synthetic.parquet") for run in (first, again)))
    written = tomllib.loads((first / "recipe.toml").read_text())
    assert written["arguments"]["hidden"] == [8] and written["seed"] == 3


@pytest.mark.parametrize("said", [{"client_column": "owner"}, {"clients": 9}])
def test_owners_on_the_command_line_go_before_those_of_the_file(said, tmp_path):
    (tmp_path / "c.toml").write_text('clients = 5\nclient_column = "who"\nprivate = false\n')
    found = request_of(said, tmp_path / "c.toml", [])
    assert {"clients": found.clients, "client_column": found.client_column} == {
        "clients": None, "client_column": None, **said,
    }  # fmt: skip


def test_the_command_line_goes_before_the_file(call, here, tmp_path):
    (tmp_path / "c.toml").write_text(
        'recipe = "fvae"\nrounds = 9\nprivate = false\n[arguments]\nlatent = 5\n'
    )
    assert call(*command(here, tmp_path / "a", "--config", tmp_path / "c.toml", *BASELINE, budget=[]))[0] == 0
    written = tomllib.loads((tmp_path / "a" / "recipe.toml").read_text())
    assert (written["recipe"], written["rounds"], written["arguments"]["latent"]) == ("dpd_fvae", 2, 2)


def test_rounds_may_be_set_like_any_other_argument(call, here, tmp_path):
    more = ["--no-privacy", "--seed", "3", "--set", "rounds=2", "--rows", "5"]
    assert call(*command(here, tmp_path / "a", *more, budget=[]))[0] == 0
    assert len((tmp_path / "a" / "history.jsonl").read_text().splitlines()) == 2


def test_quiet_is_quiet_and_lines_are_printed_where_there_is_no_terminal(call, here, tmp_path):
    code, told, errors = call(*command(here, tmp_path / "a", *BASELINE, "--quiet", budget=[]))
    assert code == 0 and errors == "" and "No privacy" in told or "simulation" in told
    _, _, errors = call(*command(here, tmp_path / "b", *BASELINE, budget=[]))
    first, *_, last = errors.splitlines()  # a slow machine prints a line every few seconds
    assert re.fullmatch(r"this run will take about \d+ s \(2 rounds of \d+ clients\)", first)
    assert re.fullmatch(r"round 2/2  no privacy  loss \d+\.\d\d  \d+ s left", last)


def test_simulated_clients_and_central_training(call, here, tmp_path):
    base = [
        "run",
        here / "data.csv",
        "--schema",
        here / "schema.json",
        "--clients",
        "9",
        "--split",
        "dirichlet:0.5",
    ]
    for recipe in ("fvae", "central_vae"):
        out = tmp_path / recipe
        assert call(*base, "--recipe", recipe, *SMALL, *BASELINE, "--out", out, "--quiet")[0] == 0
        assert len(pd.read_parquet(out / "synthetic.parquet")) == 20


def test_images_run_too(call, image_schema, tmp_path):
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (20, 8, 8), dtype=np.uint8)
    write_images(pixels, tmp_path / "images.npz", draw.integers(0, 2, 20).astype(str))
    image_schema.save(tmp_path / "schema.json")
    base = [
        "run",
        tmp_path / "images.npz",
        "--schema",
        tmp_path / "schema.json",
        "--recipe",
        "fvae",
        "--quiet",
    ]
    small = ["--clients", "5", "--set", "width=2", "--set", "latent=2", *BASELINE]
    assert call(*base, *small, "--out", tmp_path / "RUN")[0] == 0
    with np.load(tmp_path / "RUN" / "synthetic.npz") as drawn:
        assert drawn["images"].shape == (20, 8, 8) and set(drawn["labels"]) <= {"0", "1"}


def spoilt(here, tmp_path, change):
    frame = change(pd.read_csv(here / "data.csv"))
    frame.to_csv(tmp_path / "bad.csv", index=False)
    return tmp_path / "bad.csv"


def with_value(name, value):
    def change(frame):
        frame = frame.astype({name: object})
        frame.loc[5, name] = value
        return frame

    return change


BAD_DATA = {
    "a missing column": (lambda f: f.drop(columns="age"), "column 'age' is missing"),
    "a category outside the schema": (with_value("sex", "X"), "'sex'.*X"),
    "a number outside its bounds": (with_value("age", 300), "'age'.*300"),
    "text for a number": (with_value("bmi", "heavy"), "'bmi'.*heavy"),
    "a missing value where none is allowed": (with_value("sex", ""), "'sex'.*missing"),
    "no rows": (lambda f: f.iloc[:0], "no rows"),
    "one client": (lambda f: f.assign(owner=1), "at least two"),
    "duplicate names": (lambda f: f.rename(columns={"bmi": "age"}), "'age' is there twice"),
    "no client column": (lambda f: f.drop(columns="owner"), "client column 'owner'"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_one_sentence_and_leaves_nothing(case, call, here, tmp_path):
    change, words = BAD_DATA[case]
    path = spoilt(here, tmp_path, change)
    refused(call, command(here, tmp_path / "RUN", data=path), tmp_path / "RUN", words)


def refused(call, arguments, out, words):
    code, told, errors = call(*arguments)
    assert code == 2 and told == ""
    assert errors.startswith("fedsynth: ") and errors.count("\n") == 1 and "Traceback" not in errors
    assert re.search(words, errors), errors
    assert not out.exists()


BAD_FILES = {
    "none.csv": (None, "no such file"),
    "empty.csv": (b"", "empty"),
    "latin.csv": (b"age,owner\n\xe9,1\n", "UTF-8"),
    "bad.parquet": (b"PAR1 but not really", "cannot be read"),
    "data.xlsx": (b"x", "unknown kind of table"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_an_unreadable_file_is_one_sentence_and_leaves_nothing(name, call, here, tmp_path):
    content, words = BAD_FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refused(call, command(here, tmp_path / "RUN", data=tmp_path / name), tmp_path / "RUN", words)


BAD_SETTINGS = {
    "unknown recipe": (["--recipe", "dpd_fvea"], "did you mean 'dpd_fvae'"),
    "unknown argument": (["--set", "latnet=3"], "did you mean 'latent'"),
    "bad --set": (["--set", "latent"], "expected KEY=VALUE"),
    "a word for a number": (["--set", "latent=two"], "latent='two'.*whole number"),
    "endless rounds": (["--set", "rounds=inf"], "rounds=inf"),
    "a step that is no number": (["--set", "learning_rate=nan"], "learning_rate"),
    "a value out of range": (["--set", "rate=2"], "rate=2"),
    "epsilon of zero": (["--epsilon", "0"], "epsilon=0"),
    "negative epsilon": (["--epsilon", "-1"], "epsilon=-1"),
    "endless epsilon": (["--epsilon", "inf"], "epsilon=inf"),
    "large delta": (["--delta", "0.03"], "1 / 40 clients.*--accept delta"),
    "delta of one": (["--delta", "1"], "delta=1"),
    "no rounds": (["--rounds", "0"], "rounds=0"),
    "no synthetic rows": (["--rows", "0"], "rows=0"),
    "unknown label": (["--label", "il"], "'il'"),
    "unknown client column": (["--client-column", "ownr"], "did you mean 'owner'"),
    "both kinds of clients": (["--clients", "5"], "choose one"),
    "unknown split": (["--split", "kmean"], None),
    "unknown device": (["--device", "gpu"], "device='gpu'"),
    "unknown acceptance": (["--accept", "everything"], "accept='everything'"),
    "no config": (["--config", "none.toml"], "no such file"),
    "another trust": (["--trust", "nobody"], "trust=nobody"),
    "another unit": (["--unit", "record"], "unit=record"),
    "privacy and none": (["--no-privacy"], "--no-privacy"),
}


@pytest.mark.parametrize("case", [name for name, (_, words) in BAD_SETTINGS.items() if words])
def test_a_bad_setting_is_one_sentence_and_leaves_nothing(case, call, here, tmp_path):
    more, words = BAD_SETTINGS[case]
    refused(call, command(here, tmp_path / "RUN", *more), tmp_path / "RUN", words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("epsilom = 3", "did you mean 'epsilon'"),
        ("rows = 'many'", "rows='many': expected a whole number"),
        ("arguments = 3", "arguments=3"),
        ("[arguments]\nlatnet = 3", "did you mean 'latent'"),
        ("a = ", "not valid TOML"),
    ],
)
def test_a_bad_config_is_one_sentence_and_leaves_nothing(content, words, call, here, tmp_path):
    (tmp_path / "c.toml").write_text(content)
    arguments = command(here, tmp_path / "RUN", "--config", tmp_path / "c.toml")
    refused(call, arguments, tmp_path / "RUN", words)


def test_one_class_is_refused(call, here, schema, tmp_path):
    written = schema.to_dict()
    written["columns"][-1] = {"name": "ill", "type": "categorical", "categories": ["yes"]}
    (here / "one.json").write_text(json.dumps(written))
    pd.read_csv(here / "data.csv").assign(ill="yes").to_csv(tmp_path / "one.csv", index=False)
    arguments = command(here, tmp_path / "RUN", data=tmp_path / "one.csv", schema="one.json")
    refused(call, arguments, tmp_path / "RUN", "one class|at least two|categories")


def test_a_budget_that_cannot_be_met_leaves_nothing(call, here, tmp_path):
    arguments = command(here, tmp_path / "RUN", "--rounds", "50", "--noise-multiplier", "0.4")
    refused(call, arguments, tmp_path / "RUN", "allows 0 rounds|rounds at epsilon")
    arguments = command(
        here, tmp_path / "RUN", "--noise-multiplier", "0.3", recipe="central_vae",
        budget=["--epsilon", "0.5", "--delta", "1e-3"],
    )  # fmt: skip
    refused(call, arguments, tmp_path / "RUN", "epsilon 0.5")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "data.csv"], "--out"),
        (["run", "data.csv", *PRIVATE, "--out", "RUN"], "--schema"),
        (["run", "--out", "RUN", "--resume"], "not a run"),
        (["run", "data.csv", "--out", "RUN", "--delta", "1e-5"], "--epsilon"),
    ],
)
def test_what_a_run_needs_is_asked_for(arguments, words, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(call, arguments, tmp_path / "RUN", words)


def test_a_place_that_cannot_be_written_is_one_sentence(call, here, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    code, told, errors = call(*command(here, tmp_path / "file" / "RUN", *BASELINE, budget=[]))
    assert code == 2 and told == "" and errors.startswith("fedsynth: ") and errors.count("\n") == 1


def test_categories_that_look_like_numbers_stay_as_they_are_written(call, tmp_path):
    schema = {
        "version": 1, "kind": "table",
        "columns": [
            {"name": "ward", "type": "categorical", "categories": ["007", "NA", "12"]},
            {"name": "age", "type": "integer", "min": 0, "max": 9},
        ],
    }  # fmt: skip
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "data.csv").write_text("ward,age\n" + "007,1\nNA,2\n12,3\n" * 5)
    base = ["run", tmp_path / "data.csv", "--schema", tmp_path / "schema.json", "--clients", "3", "--quiet"]
    assert call(*base, *SMALL, *BASELINE, "--recipe", "fvae", "--out", tmp_path / "RUN")[0] == 0
    assert set(pd.read_parquet(tmp_path / "RUN" / "synthetic.parquet")["ward"]) <= {"007", "NA", "12"}


def test_simulated_speeds_put_simulated_time_into_the_history(call, here, tmp_path):
    speeds = ["--simulate-speeds", "stragglers=0.1,factor=20", "--seed", "1"]
    code, _, _ = call(*command(here, tmp_path / "RUN", "--rounds", "2", "--quiet", *speeds))
    assert code == 0
    history = [json.loads(line) for line in (tmp_path / "RUN" / "history.jsonl").read_text().splitlines()]
    assert 60 < history[0]["simulated_s"] < history[1]["simulated_s"]
    code, _, told = call(*command(here, tmp_path / "OTHER", "--simulate-speeds", "straggler=0.1"))
    assert code == 2 and "did you mean 'stragglers'" in told and not (tmp_path / "OTHER").exists()


def test_a_run_that_another_process_continues_or_whose_checkpoint_is_damaged_is_refused(call, here, tmp_path):
    out = tmp_path / "RUN"
    assert call(*command(here, out, "--rounds", "2", "--rows", "5"))[0] == 0
    for name in ("generator.safetensors", "privacy.json"):
        (out / name).unlink()
    (out / "state").mkdir()
    (out / "state" / "checkpoint.safetensors").write_bytes(b"torn")
    ledger = (out / "ledger.jsonl").read_bytes()
    with Folder(out).owned(begun=True):
        code, _, errors = call("run", "--out", out, "--resume", "--quiet")
    assert code == 2 and "another process works on this run" in errors
    code, _, errors = call("run", "--out", out, "--resume", "--quiet")
    assert code == 2 and "checkpoint.safetensors: the checkpoint cannot be read" in errors
    assert (out / "ledger.jsonl").read_bytes() == ledger
