"""The tutorials and notebooks run: their Python and their commands, in order, in one folder."""

import json
import re
import shlex
from pathlib import Path

import pytest

from fedsynth.cli.main import main

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"```(python|sh)\n(.*?)```", re.DOTALL)
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def call(line: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(line, comments=True)[1:])
    assert not stopped.value.code, line


@pytest.mark.recipe
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_as_it_is_written(tutorial, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "tutorial"}
    for kind, text in BLOCK.findall(tutorial.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, str(tutorial), "exec"), names)  # noqa: S102
        else:
            for line in text.splitlines():
                call(line)


@pytest.mark.recipe
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "notebook"}
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(notebook), "exec"), names)  # noqa: S102


def test_there_are_five_tutorials_and_two_notebooks():
    assert len(TUTORIALS) == 5 and len(NOTEBOOKS) == 2
