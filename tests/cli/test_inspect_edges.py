"""Inspections of what is not as it should be: nobody who qualifies, models that fail, posts that cannot be read."""

import json

import numpy as np
import pytest
import tomli_w

from fedsynth.cli.main import main
from fedsynth.privacy.ledger import Ledger

pytestmark = pytest.mark.recipe
TABLE = {
    "version": 1,
    "label": "ill",
    "client": "who",
    "columns": [
        {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ],
}
TEXT = {"version": 1, "kind": "text", "vocabulary": ["a", "b"], "length": 4, "client": "user"}
FVAE = {"recipe": "fvae", "arguments": {"hidden": [8], "latent": 2}}
LM = {"recipe": "dp_fedavg_lm", "arguments": {"size": "tiny"}}
WOMEN = {"by": "example", "criterion": "rule", "column": "sex", "is": "==", "value": "F"}
MODEL = """
def scores(rows):
    answer = [[1.0, 0.0]] * len(rows)
    if rows["sex"].iloc[0] == "F":
        {}
    return answer
"""


def ask(folder, data, schema, select, train, **more):
    """Write the file that asks, and inspect; the exit code."""
    (folder / "schema.json").write_text(json.dumps(schema))
    budget = {"epsilon": 30.0, "delta": 1e-2, "rounds": 1, "seed": 1}
    keys = {
        "data": {**data, "schema": "schema.json"},
        "select": select,
        "train": {**budget, **train},
        "test": {"models": 0},
        "show": {"examples": 50},
        **more,
    }
    (folder / "look.toml").write_text(tomli_w.dumps(keys))
    with pytest.raises(SystemExit) as stopped:
        words = ["--config", folder / "look.toml", "--out", folder / "out", "--json", "--quiet"]
        main(["inspect", *map(str, words)])
    return stopped.value.code


def rows(folder):
    """Forty women and twenty men, four rows each."""
    lines = [f"{who},{'F' if who < 40 else 'M'},no" for who in range(60) for _ in range(4)]
    (folder / "rows.csv").write_text("who,sex,ill\n" + "\n".join(lines) + "\n")
    return {"file": "rows.csv", "client_column": "who"}


def posts(folder, lines):
    (folder / "posts.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return {"file": "posts.jsonl", "client_column": "user", "text_column": "text"}


def post(user, text):
    return json.dumps({"user": user, "text": text}).encode()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Have a model installed that does something else at women than to answer."""

    def install(otherwise):
        folder = tmp_path / "site-packages"
        (folder / "moody-1.0.dist-info").mkdir(parents=True)
        about = "Metadata-Version: 2.1\nName: moody\nVersion: 1.0\n"
        (folder / "moody-1.0.dist-info" / "METADATA").write_text(about)
        points = "[fedsynth.primary]\nmoody = a_moody_model:scores\n"
        (folder / "moody-1.0.dist-info" / "entry_points.txt").write_text(points)
        (folder / "a_moody_model.py").write_text(MODEL.format(otherwise))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(__import__("sys").modules, "a_moody_model", raising=False)

    return install


def test_a_selection_that_nobody_meets_costs_the_same_and_says_that_it_is_noise(tmp_path, capsys):
    nobody, men = {**WOMEN, "at_least": 100}, {**WOMEN, "value": "M"}
    assert ask(tmp_path, rows(tmp_path), TABLE, {"nobody": nobody, "men": men}, FVAE) == 0
    assert json.loads(capsys.readouterr().out)["fires"] is None
    assert 29 < Ledger(tmp_path / "out" / "ledger.jsonl").epsilon(1e-2, unit="client") <= 30
    page = (tmp_path / "out" / "inspection.html").read_text()
    assert "noise" in page and "nobody" in page


@pytest.mark.parametrize(
    "otherwise", ["raise RuntimeError(f'patient {rows}')", "return answer[1:]", "return [[float('nan')]]"]
)
def test_clients_at_which_the_model_fails_sit_out_and_are_counted_under_noise(
    otherwise, installed, tmp_path, capsys
):
    installed(otherwise)
    model = {"entry_point": "moody"}
    wrong = {"wrong": {"by": "example", "criterion": "correct"}}
    assert ask(tmp_path, rows(tmp_path), TABLE, wrong, FVAE, model=model) == 0
    printed = capsys.readouterr()
    (survey,) = json.loads(printed.out)["survey"]
    assert survey["failed"] != 40 and abs(survey["failed"] - 40) < 6 * survey["deviation"]
    written = "".join(path.read_text(errors="replace") for path in (tmp_path / "out").iterdir())
    assert "patient" not in printed.out + printed.err + written and "RuntimeError" not in written


def test_posts_that_are_not_utf8_are_refused_by_their_line_and_not_shown(tmp_path, capsys):
    data = posts(tmp_path, [post("ann", "a b"), b'{"user": "bob", "text": "secret \xff"}'])
    select = {"unknown": {"by": "example", "criterion": "out_of_vocabulary"}}
    assert ask(tmp_path, data, TEXT, select, LM) == 2
    told = capsys.readouterr().err
    assert "line 2 is not UTF-8" in told and "secret" not in told and "bob" not in told
    assert not (tmp_path / "out").exists()


def test_empty_posts_and_users_with_one_post_stop_nothing(tmp_path):
    draw = np.random.default_rng(0)
    lines = [post(f"user {n}", " ".join(draw.choice(["a", "b", "zebra"], 3))) for n in range(40)]
    lines += [post(f"user {n}", text) for n, text in enumerate(("", "  ", "\n", "..."))]
    select = {"unknown": {"by": "example", "criterion": "out_of_vocabulary"}}
    assert ask(tmp_path, posts(tmp_path, lines), TEXT, select, LM) == 0
    assert 29 < Ledger(tmp_path / "out" / "ledger.jsonl").epsilon(1e-2, unit="client") <= 30
    assert "zebra" not in (tmp_path / "out" / "inspection.html").read_text()


def test_posts_without_any_text_are_refused(tmp_path, capsys):
    data = posts(tmp_path, [post("ann", ""), post("bob", "  ")])
    assert ask(tmp_path, data, TEXT, {"all": {"criterion": "everyone"}}, LM) == 2
    assert "has no text in any row" in capsys.readouterr().err
