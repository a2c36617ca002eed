"""The README's code runs: every Python block, and every command in the order given, with fewer rounds."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.data.schema import Schema
from fedsynth.recipes.registry import RECIPES
from fedsynth.recipes.task import Task

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))
COMMANDS = re.findall(r"^fedsynth .*$", SHELL, re.MULTILINE)


def write_patients(folder: Path) -> None:
    """100 patients with two visits each."""
    random = np.random.default_rng(1)
    age = random.integers(20, 90, 200)
    frame = pd.DataFrame(
        {
            "patient id": np.repeat(np.arange(100), 2),
            "age": age,
            "ward": random.choice(["surgery", "heart", "lung"], 200),
            "outcome": np.where(age + random.normal(0, 10, 200) > 60, "readmitted", "home"),
        }
    )
    frame.to_csv(folder / "patients.csv", index=False)


def review(path: Path) -> None:
    """What a person does to a drafted schema."""
    drafted = json.loads(path.read_text())
    drafted["provenance"] = dict.fromkeys(drafted["provenance"], "public")
    path.write_text(json.dumps(drafted))


def call(command: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(command)[1:])
    return stopped.value.code or 0


@pytest.mark.recipe
def test_the_commands_and_the_example_make_a_private_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_patients(tmp_path)
    draft, check, run, sample, audit, report = COMMANDS[:6]  # what follows needs other machines
    run += " --rounds 3 --quiet"
    assert call(draft) == 0
    assert call(run) == 2, "a schema that nobody reviewed is refused"
    review(tmp_path / "schema.json")
    assert call(check) == 0 and call(run) == 0 and call(sample) == 0
    assert set(pd.read_csv("readmitted.csv")["outcome"]) == {"readmitted"}
    assert json.loads((tmp_path / "RUN" / "privacy.json").read_text())["private"]
    assert call(audit.partition("#")[0] + " --canaries 200 --quiet") == 0
    assert call(report.partition("#")[0] + " --quiet") == 0
    assert (tmp_path / "RUN" / "report.html").exists() and (tmp_path / "RUN" / "public.html").exists()
    (tmp_path / "RUN").rename(tmp_path / "EARLIER")
    assert "epsilon=1)" in PYTHON[0]
    exec(PYTHON[0].replace("epsilon=1)", "epsilon=1, rounds=3)"), {})  # noqa: S102
    assert "differentially private with epsilon" in capsys.readouterr().out
    assert len(pd.read_csv("synthetic.csv")) == 10_000 and (tmp_path / "RUN" / "privacy.json").exists()


def test_the_example_is_ten_lines_at_most():
    assert len([line for line in PYTHON[0].splitlines() if line.strip()]) <= 10


def test_the_recipe_shown_can_be_built():
    shown = {}
    exec(PYTHON[1], shown)  # noqa: S102
    schema = Schema.from_dict({"columns": [{"name": "age", "type": "integer", "min": 0, "max": 9}]})
    recipe = shown["RECIPE"]
    algorithm = recipe.build(Task(schema, clients=10), recipe.values({"momentum": 0.5}))
    assert algorithm.server.nesterov and algorithm.server.momentum == 0.5


def test_what_the_readme_links_to_is_there():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links and all((ROOT / link).exists() for link in links)


def test_every_recipe_is_in_the_readme():
    assert all(f"| `{name}` |" in README for name in RECIPES)


def test_the_files_that_a_run_leaves_are_all_explained():
    named = ("synthetic.parquet", "generator.safetensors", "privacy.json", "schema.json", "ledger.jsonl")
    assert all(f"`{name}`" in README for name in (*named, "recipe.toml", "history.jsonl", "scores.json"))
