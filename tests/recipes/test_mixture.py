"""mixture: what a record adds is bounded, its classes look like themselves, and planted bugs are seen."""

import numpy as np
import pytest
import torch

from fedsynth.assess.audit.audit import audit
from fedsynth.assess.audit.audit_setup import Setup
from fedsynth.data.clients import RawClients
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.models.mixture import Mixture, MixtureForm, MixtureModel
from fedsynth.models.spectrum import spectrum
from fedsynth.recipes.budget import Target
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer
from fedsynth.training.mixture_sums import MixtureSums
from samples import IMAGE, TABLE

SCHEMA = Schema.from_dict(IMAGE)
SMALL = {"components": 3, "moments": 12}
OFFERS = recipe_named("mixture").offers


def built(trust, **changes):
    recipe = recipe_named("mixture")
    task = recipe.task(SCHEMA, 4, unit="record", trust=trust)
    return recipe.build(task, recipe.values({**SMALL, "noise_multiplier": 1.0, **changes}))


def bars(count=4000):
    """Class 0 has a bar at the top or at the bottom, class 1 one at the left or at the right."""
    draw = np.random.default_rng(1)
    label, second = draw.integers(0, 2, (2, count))
    pixels = draw.integers(0, 30, (count, 8, 8))
    for one, (kind, far) in enumerate(zip(label, second, strict=True)):
        place = slice(5, 8) if far else slice(0, 3)
        pixels[one][place if kind == 0 else slice(None), place if kind else slice(None)] = 230
    return RawClients(np.sort(np.arange(count) % 4), 4, (), (pixels.astype(np.uint8), label.astype(str)))


@pytest.mark.parametrize(("unit", "trust"), OFFERS)
def test_both_kinds_of_each_class_are_drawn_apart_for_every_trust(unit, trust):
    made = Synthesizer("mixture", SCHEMA, epsilon=8, delta=1e-6, unit=unit, trust=trust, **SMALL).fit(bars())
    images, labels = made.sample(200, seed=1)
    top, left = images[:, :3].mean((1, 2)), images[:, :, :3].mean((1, 2))
    for name, near in (("0", top), ("1", left)):
        own = near[np.asarray(labels) == name]
        assert 0.25 < (own > 130).mean() < 0.75  # one kind or the other, about as often
        assert ((own < 70) | (own > 190)).mean() > 0.9  # and hardly anything between
    stated = made.privacy
    assert (stated.unit, stated.trust) == (unit, trust) and 7 < stated.epsilon <= 8
    assert any("noisy sums alone" in caveat for caveat in stated.caveats)


def test_a_record_that_is_counted_twice_is_found_by_the_audit(monkeypatch):
    setup = Setup.of_recipe("mixture", Target(1.0, 1e-5, rounds=3), {}, unit="record", trust="distributed")

    def audited():
        return audit(setup.algorithm(1000), setup.schema, 1e-5, canaries=1000, rng=Rng(2))

    sound = audited()
    totals = MixtureSums.totals
    monkeypatch.setattr(MixtureSums, "totals", lambda self, asked, data: 3 * totals(self, asked, data))
    broken = audited()
    assert not sound.exceeds and sound.epsilon_lower > 0
    assert broken.exceeds and broken.claimed == sound.claimed


def test_the_next_centers_follow_from_the_noisy_sum_alone():
    algorithm = built("central")
    start = algorithm.init(Rng(3))
    mean = torch.randn(algorithm.dim, generator=torch.Generator().manual_seed(2)) * 10
    one, two = (algorithm.learn(start, mean, Rng(5)) for _ in range(2))
    assert torch.equal(one.parts["question"], two.parts["question"])
    assert not torch.equal(one.parts["question"], start.parts["question"])


def test_a_training_that_ends_early_can_be_drawn_from():
    algorithm = built("central")
    state = algorithm.learn(algorithm.init(Rng(3)), torch.randn(algorithm.dim) * 10, Rng(5))
    state = algorithm.finish(state)
    images = algorithm.model.sample(
        {"fitted": {"values": state.parts["fitted"]}}, torch.tensor([0, 1]), Rng(1)
    )
    assert images.shape == (2, 1, 8, 8) and bool(((images >= 0) & (images <= 1)).all())


def test_with_cut_what_is_faint_is_black_and_what_is_bright_is_white():
    form = MixtureForm(1, 8, 1, 1, 64, 1)
    shades = torch.full((1, 1, 8, 8), 0.5)
    shades[..., :2], shades[..., 6:] = 0.2, 0.9
    mixture = Mixture(torch.ones(1, 1), spectrum(shades, 64)[None], torch.zeros(1, 1, 1))
    images = MixtureModel(form, cut=0.3).sample(
        {"fitted": {"values": mixture.pack()}}, torch.tensor([0]), Rng(1)
    )
    assert bool((images[..., :2] == 0).all()) and bool((images[..., 6:] == 1).all())
    assert torch.allclose(images[..., 2:6], torch.tensor(0.5), atol=1e-4)


def test_bent_pictures_are_no_longer_all_alike():
    form = MixtureForm(1, 8, 1, 1, 64, 1)
    shades = torch.zeros(1, 1, 8, 8)
    shades[..., 2:6] = 1.0
    fitted = Mixture(torch.ones(1, 1), spectrum(shades, 64)[None], torch.zeros(1, 1, 1)).pack()
    drawn = {"fitted": {"values": fitted}}, torch.zeros(50, dtype=torch.int64), Rng(1)
    plain, bent = MixtureModel(form).sample(*drawn), MixtureModel(form, bend=1.0).sample(*drawn)
    assert plain.std(0).max() < 1e-6 < 0.01 < bent.std(0).mean()
    assert bool(((bent >= 0) & (bent <= 1)).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e9])
def test_a_question_that_is_no_question_is_refused(bad):
    form = built("central").record_sums.form
    asked = torch.zeros(form.question)
    asked[5] = bad
    with pytest.raises(BadInput, match="numbers of at most"):
        form.read(asked)
    with pytest.raises(BadInput, match="shape"):
        form.read(torch.zeros(3))


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("reach", [0.0, -1.0, 0.001])
def test_a_question_whose_reach_is_no_distance_is_refused(place, reach):
    form = built("central").record_sums.form
    asked = torch.ones(form.question)
    asked[place] = reach
    with pytest.raises(BadInput, match="reaches"):
        form.read(asked)


def test_tables_and_grids_that_are_too_coarse_are_refused():
    recipe = recipe_named("mixture")
    with pytest.raises(Incompatible, match="images"):
        recipe.build(recipe.task(Schema.from_dict(TABLE), 4), recipe.values({"noise_multiplier": 1.0}))
    with pytest.raises(Incompatible, match="most_records lower"):
        built("distributed", moments=64, most_records=30_000_000)
