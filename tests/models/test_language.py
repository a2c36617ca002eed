"""The language model's probabilities are exact, and it learns."""

import itertools
import math

import pytest
import torch
from torch.func import vmap

from fedsynth.data.text import END, START
from fedsynth.models.language import LanguageModel
from fedsynth.models.model import initialise, layouts
from fedsynth.rng import Rng

MODEL = LanguageModel(symbols=4, length=3, embedding=5, hidden=6, layers=2)


def params_of(model, seed=1):
    flat = initialise(model, Rng(seed))
    return {name: layouts(model)[name].split(value) for name, value in flat.items()}


def every_row():
    """Each text of up to three symbols that end or fill the row; the start is never drawn."""
    for symbols in itertools.product((END, 2, 3), repeat=3):
        first = symbols.index(END) if END in symbols else 3
        if all(symbol == END for symbol in symbols[first:]):
            yield [START, *symbols]


def test_the_probabilities_of_all_texts_add_up_to_one_but_for_the_start():
    rows = torch.tensor(list(every_row()))
    params = params_of(MODEL)
    params["model"]["bias"] = torch.tensor([0.0, -60.0, 0.5, -0.5])  # the start practically never follows
    assert MODEL.log_probability(params, rows).exp().sum().item() == pytest.approx(1.0, abs=1e-5)


def test_texts_are_drawn_as_often_as_their_probability_says():
    params = params_of(MODEL)
    params["model"]["bias"] = torch.tensor([0.0, -60.0, 0.5, -0.5])
    rows = MODEL.sample(params, torch.zeros(20_000), Rng(2))
    for row in list(every_row())[:6]:
        share = (rows == torch.tensor(row)).all(1).float().mean().item()
        expected = MODEL.log_probability(params, torch.tensor([row])).exp().item()
        assert share == pytest.approx(expected, abs=4 * math.sqrt(expected / 20_000) + 1e-3)


def test_an_untrained_model_without_a_view_is_as_perplexed_as_its_vocabulary_is_large():
    params = params_of(MODEL)
    params["model"] = {name: torch.zeros_like(value) for name, value in params["model"].items()}
    assert MODEL.perplexity(params, torch.tensor([[START, 2, 3, END]])) == pytest.approx(4.0)


def test_symbols_after_the_end_do_not_count():
    params = params_of(MODEL)
    batch = {"x": torch.tensor([[START, 2, END, END]]).float(), "weight": torch.ones(1)}
    longer = LanguageModel(symbols=4, length=5, embedding=5, hidden=6, layers=2)
    padded = {"x": torch.tensor([[START, 2, END, END, END, END]]).float(), "weight": torch.ones(1)}
    first = MODEL.loss("next symbol", params, batch, torch.zeros(1, 0))
    assert first.item() == pytest.approx(longer.loss("next symbol", params, padded, torch.zeros(1, 0)).item())


def test_a_stack_of_models_is_each_of_them():
    flat = [initialise(MODEL, Rng(seed))["model"] for seed in (1, 2)]
    rows = torch.tensor([[[START, 2, 3, END]], [[START, 3, 3, 2]]]).float()

    def loss(vector, x):
        named = {"model": layouts(MODEL)["model"].split(vector)}
        return MODEL.loss("next symbol", named, {"x": x, "weight": torch.ones(1)}, torch.zeros(1, 0))

    stacked = vmap(loss)(torch.stack(flat), rows)
    for number in (0, 1):
        assert stacked[number].item() == pytest.approx(loss(flat[number], rows[number]).item(), rel=1e-5)


def test_top_one_always_writes_the_same():
    model = LanguageModel(symbols=6, length=4, embedding=5, hidden=6, top=1)
    rows = model.sample(params_of(model), torch.zeros(10), Rng(3))
    assert (rows == rows[0]).all()


def test_accuracy_counts_known_words_that_the_likeliest_guess_hits():
    model = LanguageModel(symbols=6, length=3)
    params = params_of(model)
    params["model"] = {name: torch.zeros_like(value) for name, value in params["model"].items()}
    params["model"]["bias"][4] = 1.0  # word 4 is always the likeliest
    params["model"]["bias"][2] = 9.0  # the unknown word is no guess
    rows = torch.tensor([[START, 4, 5, END], [START, 4, 2, 4]])
    assert model.accuracy(params, rows) == pytest.approx(3 / 4)


def test_what_follows_agrees_with_the_joint_probability():
    params = params_of(MODEL)
    row = torch.tensor([[START, 2, 3, END]])
    chances = MODEL.following(params, row[:, :-1])
    assert chances.sum(-1).tolist() == [pytest.approx([1.0, 1.0, 1.0])]
    joint = math.log(chances[0, 0, 2] * chances[0, 1, 3] * chances[0, 2, END])
    assert MODEL.log_probability(params, row).item() == pytest.approx(joint, abs=1e-4)
