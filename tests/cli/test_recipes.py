import json

import pytest

from fedsynth.cli.main import main
from fedsynth.cli.run import request_of
from fedsynth.data.schema import Schema
from fedsynth.recipes.effect import refuse_without_effect
from fedsynth.recipes.registry import RECIPES
from samples import KINDS


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


def test_the_paper_s_settings_are_shown_by_name(capsys):
    _, told, _ = call(capsys, "recipes", "dp_fed_wae")
    assert "--preset paper: opening=0.0 label_weight=1.0 alpha=0.1" in told


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.presets])
def test_every_setting_of_a_preset_has_an_effect_on_the_paper_s_kind_of_data(name):
    recipe = RECIPES[name]
    kind = "image" if "image" in recipe.kinds and name != "dp_fed_wae" else recipe.kinds[0]
    side = {"height": 28, "width": 28} if kind == "image" else {}
    task = recipe.task(Schema.from_dict({**KINDS[kind], **side}), 1 if recipe.pooled else 200)
    for values in recipe.presets.values():
        refuse_without_effect(recipe, task, values)


def test_a_preset_gives_way_to_what_is_set():
    request = request_of({"recipe": "pp_fedgan", "private": False}, None, ["steps=7"], "paper")
    assert {**RECIPES["pp_fedgan"].presets["paper"], "steps": "7"} == request.arguments


@pytest.mark.parametrize(
    ("recipe", "words"), [("pp_fedgan", "did you mean 'paper'"), ("fvae", "fvae has none")]
)
def test_an_unknown_preset_is_refused(recipe, words, capsys, tmp_path):
    given = ["--recipe", recipe, "--preset", "papr", "--no-privacy", "--out", str(tmp_path / "RUN")]
    code, _, errors = call(capsys, "run", "rows.csv", *given)
    assert code == 2 and words in errors
