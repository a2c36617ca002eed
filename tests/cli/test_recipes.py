import json

import pytest

from fedsynth.cli.main import main
from fedsynth.recipes.registry import RECIPES


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    told = capsys.readouterr()
    return ended.value.code or 0, told.out, told.err


def test_every_recipe_is_listed_with_whom_it_protects(capsys):
    code, told, _ = call(capsys, "recipes")
    assert code == 0
    for recipe in RECIPES.values():
        whom = f"protects a {recipe.unit}" if recipe.promises else "protects nobody"
        assert any(line.startswith(f"{recipe.name} ") and whom in line for line in told.splitlines())


@pytest.mark.parametrize("name", RECIPES)
def test_every_argument_is_listed_as_it_can_be_set(name, capsys):
    _, told, _ = call(capsys, "recipes", name)
    for argument in RECIPES[name].arguments().values():
        assert f"--set {argument.name}=" in told and argument.help in told
    code, told, _ = call(capsys, "recipes", name, "--json")
    assert code == 0 and set(json.loads(told)) == set(RECIPES[name].arguments())


def test_an_unknown_recipe_gets_the_nearest_name(capsys):
    code, told, errors = call(capsys, "recipes", "fvea")
    assert code == 2 and told == "" and "did you mean" in errors
