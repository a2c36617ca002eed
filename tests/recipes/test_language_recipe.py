"""The language recipe: where it starts, what it says of its words, and that stopping changes nothing."""

import pytest
import torch

from fedsynth.data.schema import Schema
from fedsynth.data.text import text_clients_from
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.server import Momentum, ServerAdam
from fedsynth.models.language import zipf_bias
from fedsynth.models.model import total_size
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer

SCHEMA = Schema(kind="text", vocabulary=("the", "cat", "sat", "."), length=5)
TEXTS = ["the cat sat.", "cat the cat.", "sat sat", "the the cat sat on the mat."] * 5
OWNERS = [str(number % 10) for number in range(20)]
SETTINGS = {"epsilon": 8.0, "delta": 1e-3, "rounds": 3, "rate": 0.8, "seed": 5}


class Stop(Exception):
    """As if the power had gone."""


def algorithm(schema=SCHEMA, **values):
    recipe = recipe_named("dp_fedavg_lm")
    return recipe.build(Task(schema, 10), recipe.values({"noise_multiplier": 1.0, **values}))


def stop_after(rounds):
    def watch(done, epsilon, planned):
        if done.version == rounds:
            raise Stop

    return watch


def test_a_resumed_language_model_equals_one_straight_through_to_the_bit(tmp_path):
    clients = text_clients_from(TEXTS, SCHEMA, owners=OWNERS)
    Synthesizer("dp_fedavg_lm", SCHEMA, **SETTINGS).fit(clients, folder=tmp_path / "a")
    with pytest.raises(Stop):
        Synthesizer("dp_fedavg_lm", SCHEMA, **SETTINGS).fit(
            clients, folder=tmp_path / "b", watch=stop_after(2)
        )
    request = Request.from_toml(Folder(tmp_path / "b").read_recipe())
    Synthesizer.of(request, SCHEMA).resume(clients, tmp_path / "b")
    first, second = ((tmp_path / run / "generator.safetensors").read_bytes() for run in "ab")
    assert first == second


def test_words_start_from_their_ranks_and_bytes_evenly():
    ranked, even = algorithm(), algorithm(start="even")
    biases = [a.layouts["model"].split(a.init(Rng(1)).parts["model"])["bias"] for a in (ranked, even)]
    assert torch.equal(biases[0], zipf_bias(7)) and not biases[1].any()
    assert algorithm(Schema(kind="text", vocabulary="bytes", length=4)).warm_start is None


def test_the_server_steps_with_nesterov_momentum_or_adam():
    assert algorithm().server == Momentum(0.9, 1.0, nesterov=True)
    assert algorithm(server="adam").server == ServerAdam(1.0, 0.9)


def test_a_step_is_long_behind_a_clip_and_shorter_without_one():
    recipe = recipe_named("dp_fedavg_lm")
    opened = recipe.build(Task(SCHEMA, 10, private=False), recipe.values({}))
    rates = [made.plan[0].optimizers["model"].learning_rate for made in (algorithm(), opened)]
    assert rates == [6.0, 3.0]
    assert algorithm(learning_rate=0.5).plan[0].optimizers["model"].learning_rate == 0.5


def test_sizes_of_the_paper_are_the_papers():
    words = algorithm(Schema(kind="text", vocabulary=tuple(f"w{n}" for n in range(9_997))), size="paper")
    cell = 3 * 670 * (96 + 1 + 96) + 670 * 96  # coupled gates of input, bias and recurrence; projection
    assert total_size(words.model, ["model"]) == 10_000 * (96 + 1) + cell
    letters = algorithm(Schema(kind="text", vocabulary="bytes"), size="paper").model
    assert (letters.symbols, letters.embedding, letters.hidden, letters.layers) == (258, 128, 256, 3)


@pytest.mark.parametrize(
    ("provenance", "told"),
    [({}, "taken to be public"), ({"vocabulary": "paid"}, "learned from the clients")],
)
def test_the_statement_says_where_the_words_come_from(provenance, told):
    schema = Schema(kind="text", vocabulary=("a", "b"), provenance=provenance)
    assert any("2 words" in line and told in line for line in algorithm(schema).caveats)


def test_a_table_and_an_unknown_size_are_refused(schema):
    with pytest.raises(Incompatible, match="makes texts"):
        algorithm(schema)
    with pytest.raises(BadInput, match="size='smal'"):
        algorithm(size="smal")
