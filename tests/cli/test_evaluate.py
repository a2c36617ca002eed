import json

import pytest

from fedsynth.cli.main import main
from fedsynth.data.schema import Column, Schema
from fedsynth.data.table import write_table
from fedsynth.rng import Rng

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
    import numpy as np
    import pandas as pd

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
    line = next(line for line in printed.out.splitlines() if line.startswith("gradient boosting: auc"))
    assert "higher is better" in line and "trained on real 0." in line and "majority class 0.500" in line
    assert "6-way marginals: average variation distance" in printed.out and "failed: 3 columns" in printed.out
    assert "internal: made from real rows" in printed.out


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
    import numpy as np

    from fedsynth.data.image import write_images

    Schema(kind="image", height=4, width=4, channels=1).save(tmp_path / "schema.json")
    write_images(np.zeros((3, 4, 4), dtype=np.uint8), tmp_path / "images.npz")
    files = ("--real", tmp_path / "images.npz", "--synthetic", tmp_path / "images.npz")
    assert evaluated(tmp_path, *files, "--network", "lennet") == 2
    assert "did you mean 'lenet'" in capsys.readouterr().err
