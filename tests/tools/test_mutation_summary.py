"""The mutation summary is made from its results, and decorated functions are mutated too."""

import ast
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import mutants  # noqa: E402
import mutation_summary  # noqa: E402

RESULTS = json.loads(mutants.RESULTS.read_text())
EQUIVALENT = tomllib.loads((ROOT / "tools" / "equivalent_mutants.toml").read_text())
WANTED = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text())["tests"]


def without_age(text):
    return text.replace(" (changed since)", "")


def test_the_table_of_the_page_is_that_of_the_results():
    page = mutation_summary.PAGE.read_text()
    shown = page.split(mutation_summary.BEGIN)[1].split(mutation_summary.END)[0].strip()
    made = mutation_summary.table(RESULTS, EQUIVALENT, list(WANTED)).strip()
    assert without_age(shown) == without_age(made)


def test_every_file_and_test_that_is_named_is_there():
    for file, tests in WANTED.items():
        assert mutants.source_of(file).is_file() and tests
        assert all((ROOT / "tests" / test).is_file() for test in tests), file


def test_every_equivalent_mutant_has_a_reason_of_a_known_kind():
    for file, reasons in EQUIVALENT.items():
        assert file in WANTED and all(re.match(r"[a-z]+: .{10,}", reason) for reason in reasons.values()), (
            file
        )


def test_survivors_are_counted_apart_from_those_that_are_explained():
    survived = [{"function": "f", "after": "a"}, {"function": "f", "after": "b"}]
    result = {"mutants": 40, "drawn": 10, "killed": 6, "slow": 1, "open": 1, "survived": survived}
    assert mutation_summary.counts(result, {"f: b": "speed: only"}) == [10, 6, 1, 1, 1, 1]
    assert mutation_summary.row("x", [10, 6, 1, 1, 1, 1]) == "| x | 10 | 6 | 1 | 1 | 1 | 1 | 77.8% |\n"


def test_a_file_that_a_sample_judges_says_so():
    whole = {"source": mutants.fingerprint("privacy/clip.py"), "mutants": 40, "drawn": 40}
    assert mutation_summary.remarks("privacy/clip.py", whole) == ""
    sample = mutation_summary.remarks("privacy/clip.py", whole | {"drawn": 10})
    assert sample == " (10 of 40 drawn at random)"


SOURCE = '''
from functools import lru_cache


class Thing:
    @property
    def cost(self) -> int:
        """Two."""
        return 2

    @classmethod
    def made(cls) -> "Thing":
        return cls()


@lru_cache(maxsize=4)
def double(x: int) -> int:
    return 2 * x
'''


def test_decorators_that_hide_a_function_from_the_tool_are_applied_after_it():
    space = {}
    text = mutants.undecorated(SOURCE)
    exec(compile(text, "thing", "exec"), space)  # noqa: S102
    assert (
        space["Thing"].made().cost == 2
        and space["double"](3) == 6
        and space["double"].cache_info().misses == 1
    )
    decorated = [node.name for node in ast.walk(ast.parse(text)) if getattr(node, "decorator_list", None)]
    assert decorated == ["made"]


@pytest.mark.parametrize("file", WANTED)
def test_every_file_is_still_python_without_its_decorators(file):
    ast.parse(mutants.undecorated(mutants.source_of(file).read_text()))
