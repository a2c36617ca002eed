"""One strict reader: all that is wrong with a file is told at once, with the nearest name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from fedsynth.data.configuration import Key, build, check, keys_of, read_file
from fedsynth.errors import BadInput


@dataclass(frozen=True)
class Budget:
    epsilon: float
    unit: Literal["client", "record"] = "client"
    cached: int = field(default=0, init=False)


@dataclass(frozen=True)
class Whole:
    name: str
    budget: Budget
    rounds: int | None = None
    fast: bool = False
    recipes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)


GOOD = {"name": "a", "budget": {"epsilon": 1}}


def wrong(values, known=None):
    with pytest.raises(BadInput) as caught:
        check(values, known or keys_of(Whole), "site.toml")
    return str(caught.value)


def test_everything_wrong_is_one_sentence():
    values = {"budget": {"epsilom": 1, "unit": 3}, "fast": 1, "recipies": [], "arguments": {"any": [object]}}
    assert wrong(values) == (
        "site.toml: [budget] epsilom: no such key; did you mean 'epsilon'? (known: epsilon, unit); "
        "[budget] unit=3: expected text; [budget] epsilon: missing; fast=1: expected true or false; "
        "recipies: no such key; did you mean 'recipes'? "
        "(known: arguments, budget, fast, name, recipes, rounds, sizes); name: missing"
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": 3}, "name=3: expected text"),
        ({"name": None}, "name=None: expected text"),
        ({"rounds": 1.0}, "rounds=1.0: expected a whole number"),
        ({"rounds": True}, "rounds=True: expected a whole number"),
        ({"budget": {"epsilon": "1"}}, "[budget] epsilon='1': expected a number"),
        ({"budget": {"epsilon": False}}, "[budget] epsilon=False: expected a number"),
        ({"budget": 3}, "budget=3: expected a table [budget]"),
        ({"budget": {"epsilon": 1, "cached": 2}}, "[budget] cached: no such key"),
        ({"recipes": "a"}, "recipes='a': expected a list, each text"),
        ({"recipes": ["a", 3]}, "recipes=['a', 3]: expected a list, each text"),
        ({"sizes": [1, True]}, "sizes=[1, True]: expected a list, each a whole number"),
        ({"arguments": []}, "arguments=[]: expected a table of names and values"),
        ({"bugdet": {}}, "[bugdet]: no such table; did you mean 'budget'?"),
    ],
)
def test_each_mistake_is_named_with_what_is_expected(change, told):
    assert told in wrong({**GOOD, **change})


def test_what_fits_is_built_with_lists_as_tuples():
    values = {**GOOD, "rounds": None, "recipes": ["a"], "sizes": [], "arguments": {"x": [1]}}
    check(values, keys_of(Whole))
    made = build(
        Whole, {name: value for name, value in values.items() if name != "budget"}, budget=Budget(1.0)
    )
    assert (made.recipes, made.sizes, made.rounds, made.arguments) == (("a",), (), None, {"x": [1]})


def test_a_missing_table_is_named_by_its_missing_keys_or_as_a_whole():
    assert wrong({"name": "a"}) == "site.toml: [budget] epsilon: missing"
    known = {"data": Key({"file": Key(str)}, True), "select": Key(Mapping[str, Any], True)}
    assert wrong({}, known) == "site.toml: [data]: missing; [select]: missing"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.toml", b"a = ", "not valid TOML"),
        ("a.toml", b"\xff", "not valid TOML"),
        ("a.json", b"{", "not valid JSON"),
        ("a.json", b"[1]", "holds list; expected an object with keys"),
        ("a.toml", None, "no such file; check the path"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, told):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=told) as caught:
        read_file(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_toml_and_json_say_the_same(tmp_path):
    (tmp_path / "a.toml").write_text('name = "ä"\n[budget]\nepsilon = 1.5\n', encoding="utf-8")
    (tmp_path / "a.json").write_text('{"name": "ä", "budget": {"epsilon": 1.5}}', encoding="utf-8")
    assert read_file(tmp_path / "a.toml") == read_file(tmp_path / "a.json")
