"""What the pages name is there: files, tests, commands and their flags, and the rooms of the code."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from fedsynth.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fedsynth"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {
    str(page.relative_to(ROOT)).removeprefix("docs/"): page.read_text(encoding="utf-8") for page in PAGES
}
PLACES = (ROOT, SOURCE, ROOT / "tests", ROOT / "docs")
FILE = re.compile(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|md|toml|css|js))`")
TEST = re.compile(r"`((?:[\w-]+/)*test_\w+\.py)::(\w+)`")
RULES = 22


def commands(text):
    """Every line of a block that calls the program, continued lines joined."""
    for block in text.split("```")[1::2]:
        yield from re.findall(r"^fedsynth .*$", block.replace("\\\n", " "), re.MULTILINE)


CALLS = sorted({(name, line) for name, text in TEXTS.items() for line in commands(text)})


@pytest.mark.parametrize("page", TEXTS)
def test_every_file_that_a_page_names_is_there(page):
    named = {name for name in FILE.findall(TEXTS[page]) if "<" not in name and not name.endswith("/x.py")}
    assert {name for name in named if not any((place / name).exists() for place in PLACES)} == set()


@pytest.mark.parametrize("page", TEXTS)
def test_every_page_that_a_page_points_to_is_there(page):
    pointed = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", TEXTS[page])
    here = ROOT if page == "README.md" else (ROOT / "docs" / page).parent
    assert {name for name in pointed if not (here / name).exists()} == set()


def test_every_test_that_a_page_names_is_there():
    for name, text in TEXTS.items():
        for file, test in TEST.findall(text):
            assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{name}: {file}::{test}"


def test_nobody_calls_delta_the_chance_that_the_bound_fails():
    """For a Gaussian the loss exceeds epsilon several times as often as delta (see the test of the statement)."""
    wrong = re.compile(
        r"chance of failure|chance that even|bound may fail|probability is about delta", re.IGNORECASE
    )
    texts = [*PAGES, *SOURCE.rglob("*.py"), *SOURCE.rglob("*.js"), *SOURCE.rglob("*.html")]
    assert [str(path) for path in texts if wrong.search(path.read_text(encoding="utf-8"))] == []


def test_every_rule_of_privacy_has_a_place_and_a_test():
    rows = [row for row in TEXTS["privacy-rules.md"].splitlines() if row.startswith("| **")]
    numbers = [int(re.match(r"\| \*\*(\d+)\.", row).group(1)) for row in rows]
    assert numbers == list(range(1, RULES + 1))
    assert all(FILE.search(row.split("|")[2]) and TEST.search(row.split("|")[3]) for row in rows)


@pytest.mark.parametrize(("page", "line"), CALLS, ids=lambda text: text[:60])
def test_every_command_of_a_page_exists_with_its_flags(page, line):
    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    while getattr(command, "commands", None) and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert not getattr(command, "commands", None), f"{page}: {line}"
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    given = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
    assert given <= known, f"{page}: {line}"


def test_every_room_is_described():
    rooms = {place.name for place in SOURCE.iterdir() if (place / "__init__.py").exists()}
    told = set(re.findall(r"^\| `(\w+)/`", TEXTS["architecture.md"], re.MULTILINE))
    assert rooms == told


def test_every_page_is_in_the_navigation_of_the_site():
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert listed == {*TEXTS} - {"README.md"}


def test_figures_are_files():
    assert [name for name, text in TEXTS.items() if "<svg" in text] == []
