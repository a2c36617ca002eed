import json
import re

import numpy as np
import pytest
import tomli_w

from fedsynth.cli.main import main
from fedsynth.inspection.config import read_request

pytestmark = pytest.mark.recipe
LEFT = {"by": "example", "criterion": "rule", "column": "sex", "is": "==", "value": "F"}
RIGHT = {**LEFT, "value": "M"}
SCHEMA = {
    "version": 1,
    "label": "ill",
    "client": "who",
    "columns": [
        {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
        {"name": "dose", "type": "integer", "min": 0, "max": 9},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ],
}


def write(folder, **changes):
    """A table in which women get other doses than men, and the file that asks about it."""
    draw = np.random.default_rng(0)
    rows = ["who,sex,dose,ill"]
    for who in range(60):
        for _ in range(4):
            sex = draw.choice(["F", "M"])
            rows.append(f"{who},{sex},{draw.integers(6, 10) if sex == 'F' else draw.integers(0, 4)},no")
    (folder / "rows.csv").write_text("\n".join(rows) + "\n")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    keys = {
        "data": {"file": "rows.csv", "schema": "schema.json", "client_column": "who"},
        "select": {"women": LEFT, "men": RIGHT},
        "train": {
            "recipe": "fvae", "epsilon": 30.0, "delta": 1e-2, "rounds": 1, "seed": 1,
            "arguments": {"hidden": [8], "latent": 2},
        },
        "test": {"models": 0},
        "show": {"examples": 300},
    }  # fmt: skip
    for name, value in changes.items():
        keys[name] = {**keys.get(name, {}), **value}
    path = folder / "look.toml"
    path.write_text(tomli_w.dumps(keys))
    return path


def run(*words):
    with pytest.raises(SystemExit) as stopped:
        main(["inspect", *map(str, words)])
    return stopped.value.code


def test_a_file_becomes_a_page_with_both_selections(tmp_path, capsys):
    out = tmp_path / "out"
    assert run("--config", write(tmp_path), "--out", out, "--json", "--quiet") == 0
    told = json.loads(capsys.readouterr().out)
    assert {finding["name"] for finding in told["contrast"]} == {"sex", "dose", "ill"}
    page = (out / "inspection.html").read_text()
    assert "women" in page and "sex == F" in page and "Cannot be told" in page
    assert re.search(r"(src|href)=\"https?:", page) is None
    assert "simulation: no privacy" in told["privacy"]["text"]


def test_a_folder_is_never_written_over(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    assert run("--config", write(tmp_path), "--out", tmp_path / "out") == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"select": {"women": {**LEFT, "criterion": "rulee"}}}, "did you mean 'rule'"),
        ({"select": {"women": {**LEFT, "column": "sexx"}}}, "did you mean 'sex'"),
        ({"select": {"third": RIGHT}}, "3 selections"),
        ({"data": {"fil": "x"}}, "did you mean 'file'"),
        ({"tset": {"models": 2}}, "did you mean 'test'"),
        ({"test": {"models": "many"}}, "models='many'"),
        ({"test": {"tolerance": 2}}, "tolerance=2"),
        ({"model": {"onnx": "none.onnx"}}, "no such file"),
        ({"model": {"entry_point": "x"}}, "nothing of that name is installed"),
        ({"train": {"recipe": "fvea"}}, "did you mean 'fvae'"),
        ({"select": {"women": {"by": "user", "criterion": "correct", "below": 1.5}}}, "between 0 and 1"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(changes, told, tmp_path, capsys):
    assert run("--config", write(tmp_path, **changes), "--out", tmp_path / "out") == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_table_and_an_unknown_key_are_told_together(tmp_path, capsys):
    path = tmp_path / "look.toml"
    path.write_text(tomli_w.dumps({"data": {"schemas": "s"}, "train": {}}))
    assert run("--config", path, "--out", tmp_path / "out") == 2
    err = capsys.readouterr().err
    assert "[select]: missing" in err and "did you mean 'schema'" in err


def test_paths_are_those_beside_the_file(tmp_path):
    request, keys = read_request(write(tmp_path))
    assert request.data == str(tmp_path / "rows.csv") and set(keys["select"]) == {"women", "men"}
