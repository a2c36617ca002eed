import json

import numpy as np
import pandas as pd
import pytest

from fedsynth import Synthesizer, clients_from
from fedsynth.assess.attacks.table_attacks import Claim
from fedsynth.assess.origin import Origin
from fedsynth.cli.main import main
from fedsynth.data.schema import Column, Schema
from fedsynth.data.table_files import write_table
from fedsynth.privacy.statement import Statement
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import write_released
from samples import TABLE, make_frame

SCHEMA = Schema(
    columns=(
        Column("age", "integer", min=0, max=99),
        Column("town", "categorical", categories=("a", "b")),
        Column("ill", "binary", categories=("no", "yes")),
    ),
    label="ill",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("evaluate")
    SCHEMA.save(place / "schema.json")
    for name, file in (("real", "real.csv"), ("synthetic", "synthetic.parquet"), ("test", "test.csv")):
        random = Rng(1).at(name).numpy()
        age = random.integers(0, 99, 120)
        frame = pd.DataFrame(
            {
                "age": age,
                "town": random.choice(["a", "b"], 120),
                "ill": np.where(age + random.normal(0, 9, 120) > 50, "yes", "no"),
            }
        )
        write_table(frame, place / file)
    return place


def run(folder, *more):
    arguments = ["evaluate", "--schema", str(folder / "schema.json"), "--real", str(folder / "real.csv")]
    if "--synthetic" not in more:
        arguments += ["--synthetic", str(folder / "synthetic.parquet")]
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, *map(str, more)])
    return stopped.value.code


def test_json_is_one_object_and_progress_goes_elsewhere(folder, capsys):
    assert run(folder, "--test", folder / "test.csv", "--json", "--out", folder / "out") == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert told["internal"] == "internal: made from real rows"
    assert "done" in printed.err
    written = json.loads((folder / "out" / "scores.json").read_text())
    assert written == told["scores"]
    assert {"name", "value", "goal", "range", "spread", "seeds", "detail", "failed"} == set(written[0])
    assert json.loads((folder / "out" / "details.json").read_text())["columns"][0]["name"] == "age"


def test_the_table_is_readable_and_marked_internal(folder, capsys):
    assert run(folder, "--quiet", "--cache", folder / "cache") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("gradient boosting: auc"))
    assert "higher is better" in lines[place] and max(map(len, lines)) <= 80
    assert "trained on real 0." in lines[place + 1] and "majority class 0.500" in lines[place + 1]
    assert "6-way marginals: average variation distance" in printed.out and "    3 columns" in printed.out
    assert "internal: made from real rows" in printed.out


def attacked(capsys):
    found = json.loads(capsys.readouterr().out)["scores"]
    return {score["name"]: score for score in found}


def test_a_claim_from_the_command_line_gives_the_ceiling(folder, capsys):
    SCHEMA.with_label(None).save(folder / "plain.json")
    quick = ("--test", folder / "test.csv", "--json", "--quiet", "--schema", folder / "plain.json")
    assert run(folder, *quick) == 0
    assert attacked(capsys)["closest record: AUC"]["detail"]["allowed"] is None
    assert run(folder, *quick, "--epsilon", 0.5, "--delta", 1e-6) == 0
    allowed = attacked(capsys)["closest record: AUC"]["detail"]["allowed"]
    assert allowed == pytest.approx(Claim(0.5, 1e-6).ceiling.auc)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--epsilon", "1"], "--epsilon and --delta"),
        (["--epsilon", "-1", "--delta", "1e-5"], "epsilon above 0"),
        (["--epsilon", "1", "--delta", "1e-5", "--run", "RUN"], "give one of them"),
        (["--run", "nowhere"], "not a run"),
        (["--privacy", "none.json"], "none.json"),
        (["--client-column", "twon"], "did you mean 'town'"),
    ],
)
def test_a_claim_that_is_none_is_refused(folder, capsys, arguments, reason):
    assert run(folder, *arguments) == 2
    assert reason in capsys.readouterr().err


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A private run of people with three rows each, its rows, and rows of others."""
    place = tmp_path_factory.mktemp("made")
    rows, others = (make_frame(np.repeat(np.arange(100), 3), seed) for seed in (1, 2))
    small = {"latent": 2, "hidden": (8,), "epochs": 1, "batch_size": 4}
    synthesizer = Synthesizer("dpd_fvae", Schema.from_dict(TABLE), epsilon=2, delta=1e-3, rounds=3, **small)
    synthesizer.fit(clients_from(rows, client_column="owner"), folder=place / "run")
    drawn = synthesizer.sample(300)
    assert isinstance(drawn, pd.DataFrame)
    write_released(drawn, Folder(place / "run"), synthesizer.schema)
    write_table(rows, place / "real.csv")
    Schema.from_dict(TABLE).with_label(None).save(place / "plain.json")  # nothing to classify: quicker
    write_table(others.assign(owner=others["owner"] + 1000), place / "test.csv")
    return place


def of_run(place, *more):
    files = ["--real", place / "real.csv", "--synthetic", place / "run" / "synthetic.parquet"]
    held = ["--test", place / "test.csv", "--schema", place / "plain.json", "--json", "--quiet"]
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", *map(str, [*files, *held, *more])])
    return stopped.value.code


@pytest.mark.recipe
def test_a_run_gives_its_claim_its_generator_and_its_recipe(made, capsys):
    assert of_run(made, "--run", made / "run", "--deep", "--shadow-minutes", 0.5) == 0
    scores = attacked(capsys)
    claim = Claim.of(Statement.load(made / "run" / "privacy.json"))
    near = scores["closest record: AUC"]["detail"]
    assert near["members"] == 100  # people, not rows
    assert near["allowed"] == pytest.approx(claim.ceiling.auc)
    found = scores["membership inference: AUC"]
    assert found["detail"]["recipe"] == "dpd_fvae" and found["value"] < found["detail"]["allowed"]


def test_rows_of_people_who_were_trained_on_are_no_test(made, capsys):
    assert of_run(made, "--test", made / "real.csv") == 2
    assert "hold out whole clients" in capsys.readouterr().err


def test_conditioned_rows_come_from_the_generator(made):
    origin = Origin.of_run(made / "run", pd.read_csv(made / "real.csv"))
    assert set(origin.sampler("yes", 20)["ill"]) == {"yes"} and len(origin.sampler("no", 7)) == 7


def test_a_statement_alone_gives_the_ceiling(made, capsys):
    assert of_run(made, "--privacy", made / "run" / "privacy.json") == 0
    claim = Claim.of(Statement.load(made / "run" / "privacy.json"))
    assert attacked(capsys)["density ratio: AUC"]["detail"]["allowed"] == pytest.approx(claim.ceiling.auc)


def test_bad_files_are_refused(folder, capsys):
    assert run(folder, "--synthetic", folder / "none.csv") == 2
    assert "there is no such file" in capsys.readouterr().err


def evaluated(place, *more):
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", "--schema", str(place / "schema.json"), "--quiet", *map(str, more)])
    return stopped.value.code


def test_texts_come_from_lines_or_a_column(tmp_path, capsys):
    Schema(kind="text", vocabulary="bytes").save(tmp_path / "schema.json")
    (tmp_path / "real.txt").write_text("the cat sleeps\nthe dog barks\n" * 10)
    (tmp_path / "made.jsonl").write_text('{"said": "the cat barks"}\n' * 5)
    files = ("--real", tmp_path / "real.txt", "--synthetic", tmp_path / "made.jsonl")
    assert evaluated(tmp_path, *files) == 2
    assert "has no column 'text'" in capsys.readouterr().err
    assert evaluated(tmp_path, *files, "--text-column", "said") == 0
    printed = capsys.readouterr().out
    assert "unknown words" in printed and "copied texts" in printed


def test_an_unknown_network_is_refused(tmp_path, capsys):
    from fedsynth.data.image import write_images

    Schema(kind="image", height=4, width=4, channels=1).save(tmp_path / "schema.json")
    write_images(np.zeros((3, 4, 4), dtype=np.uint8), tmp_path / "images.npz")
    files = ("--real", tmp_path / "images.npz", "--synthetic", tmp_path / "images.npz")
    assert evaluated(tmp_path, *files, "--network", "lennet") == 2
    assert "did you mean 'lenet'" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["--real", "--synthetic", "--test"])
def test_a_table_of_other_columns_is_refused_once_and_not_score_by_score(folder, file, tmp_path, capsys):
    frame = pd.read_csv(folder / "real.csv").rename(columns={"age": "agee"})
    write_table(frame, tmp_path / "other.csv")
    given = dict.fromkeys(("--real", "--synthetic"), folder / "real.csv") | {file: tmp_path / "other.csv"}
    words = [str(word) for pair in given.items() for word in pair]
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *words, "--schema", str(folder / "schema.json"), "--quiet"])
    told = capsys.readouterr()
    assert ended.value.code == 2 and told.out == ""
    assert told.err.count("other.csv") == 1 and "rename 'agee'" in told.err
