"""`--recipe auto`: for every kind of data and promise the best recipe that can keep it."""

import pytest

from fedsynth.data.schema import Schema
from fedsynth.errors import Incompatible
from fedsynth.recipes.choice import choose
from fedsynth.recipes.registry import RECIPES

TABLE = {
    "version": 1,
    "kind": "table",
    "columns": [{"name": "age", "type": "integer", "min": 0, "max": 99}],
}
IMAGE = {"version": 1, "kind": "image", "height": 8, "width": 8, "channels": 1}
TEXT = {"version": 1, "kind": "text", "vocabulary": "bytes"}
OFFERS = [(unit, trust) for unit in ("client", "record") for trust in ("central", "local", "distributed")]


@pytest.mark.parametrize(
    ("schema", "unit", "trust", "name"),
    [
        (TABLE, None, None, "marginals"),
        (TABLE, "record", "distributed", "marginals"),
        (TABLE, "record", "local", "marginals"),
        (TABLE, "record", "central", "marginals"),
        (IMAGE, None, None, "moment_vae"),
        (IMAGE, "record", None, "moment_vae"),
        (IMAGE, "record", "distributed", "mixture"),
        (IMAGE, "client", "distributed", "site_vae"),
        (TEXT, None, None, "dp_fedavg_lm"),
    ],
)
def test_the_choice_follows_from_kind_unit_and_trust(schema, unit, trust, name):
    choice = choose(Schema.from_dict(schema), unit, trust)
    assert choice.recipe.name == name
    assert str(choice).startswith(f"recipe {name} (unit {choice.unit}, trust {choice.trust}): ")


@pytest.mark.parametrize("schema", [TABLE, IMAGE, TEXT], ids=["table", "image", "text"])
@pytest.mark.parametrize(("unit", "trust"), OFFERS)
def test_a_choice_keeps_the_promise_or_says_that_none_can(schema, unit, trust):
    public = Schema.from_dict(schema)
    able = [one for one in RECIPES.values() if public.kind in one.kinds and one.meets(unit, trust)]
    if able:
        choice = choose(public, unit, trust)
        assert (choice.unit, choice.trust) in choice.recipe.offers and choice.recipe.promises
        assert (choice.unit, choice.trust) == (unit, trust)
    else:
        with pytest.raises(Incompatible, match=f"unit={unit}, trust={trust}: no recipe"):
            choose(public, unit, trust)
