import pytest

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.recipes.registry import RECIPES, parse, recipe_named
from fedsynth.recipes.task import Task


def test_an_unknown_recipe_gets_the_nearest_name():
    with pytest.raises(BadInput, match="did you mean 'dpd_fvae'"):
        recipe_named("dpd_fvea")


def test_all_unknown_arguments_are_reported_at_once():
    with pytest.raises(BadInput, match=r"latnet: .*did you mean 'latent'.*epochz"):
        recipe_named("fvae").values({"latnet": 3, "epochz": 1, "beta": 1})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("latent", "two", "whole number"),
        ("latent", "1e30", "at most 1e\\+12"),
        ("learning_rate", "-1e30", "at most 1e\\+12"),
        ("latent", "2.5", "whole number"),
        ("rounds", "inf", "whole number"),
        ("epochs", "nan", "whole number"),
        ("epochs", True, "whole number"),
        ("learning_rate", "nan", "a number"),
        ("beta", "inf", "a number"),
        ("hidden", "8,x", "whole number"),
    ],
)
def test_a_value_of_another_type_is_refused(name, value, words):
    with pytest.raises(BadInput, match=words):
        recipe_named("fvae").values({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latent", 0), ("hidden", (0,)), ("rate", 0.0), ("rate", 1.5), ("momentum", 1.0), ("clip", 0.0),
        ("learning_rate", -1.0), ("epochs", 0), ("report", 0.9), ("optimizer", "adamm"), ("server", "sgd"),
        ("cohort", -1), ("cohort", 11),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_when_the_recipe_is_built(schema, name, value):
    with pytest.raises(BadInput, match=name):
        recipe_named("fvae").build(Task(schema, 10), {name: value})


def test_texts_are_parsed_by_the_type_of_the_default():
    values = recipe_named("fvae").values({"hidden": "8,4", "latent": "3", "rate": "0.5", "optimizer": "adam"})
    assert (values["hidden"], values["latent"], values["rate"], values["optimizer"]) == (
        (8, 4),
        3,
        0.5,
        "adam",
    )
    assert parse([8, 4], tuple[int, ...]) == (8, 4) and parse("1e2", int) == 100


@pytest.mark.parametrize("name", RECIPES)
def test_every_argument_of_a_recipe_is_explained_and_has_a_default_that_builds(name, schema, image_schema):
    recipe = RECIPES[name]
    assert all(argument.help for argument in recipe.arguments().values())
    text = Schema(kind="text", vocabulary="bytes")
    for kind in (one for one in (schema, image_schema, text) if one.kind in recipe.kinds):
        assert recipe.build(Task(kind, 10, private=False), recipe.values({})).rounds > 0


def test_texts_have_no_autoencoder():
    task = Task(Schema.from_dict({"version": 1, "kind": "text", "vocabulary": "bytes"}), 10)
    with pytest.raises(Exception, match="tables and images"):
        recipe_named("fvae").build(task, {})


def test_images_that_are_not_square_are_refused():
    task = Task(
        Schema.from_dict({"version": 1, "kind": "image", "height": 8, "width": 12, "channels": 1}), 10
    )
    with pytest.raises(BadInput, match="8x12"):
        recipe_named("fvae").build(task, {})


def test_record_level_privacy_needs_a_number_of_records(schema):
    with pytest.raises(BadInput, match="records"):
        recipe_named("central_vae").build(Task(schema, 1), {"records": 0})


def test_nobody_is_sent_to_a_recipe_whose_guarantee_does_not_hold():
    unsound = [recipe.name for recipe in RECIPES.values() if not recipe.promises]
    assert unsound == ["dpd_fvae_local_published"]
    with pytest.raises(Incompatible, match="dpd_fvae_record, moment_vae") as refused:
        recipe_named("fvae").protection("record", "local")
    assert unsound[0] not in str(refused.value)
