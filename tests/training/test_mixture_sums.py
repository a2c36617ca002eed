"""What a record adds to a mixture's sums: never longer than the clip, and the same whatever other records there are."""

import math

import numpy as np
import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.data.schema import Schema
from fedsynth.models.mixture import Components, low_first
from fedsynth.models.spectrum import spectrum
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.training.grid_sums import grid_steps
from noise_scale import fits
from samples import IMAGE

SCHEMA = Schema.from_dict(IMAGE)
SMALL = {"components": 3, "moments": 12}
OFFERS = recipe_named("mixture").offers


def built(trust, **changes):
    recipe = recipe_named("mixture")
    task = recipe.task(SCHEMA, 4, unit="record", trust=trust)
    return recipe.build(task, recipe.values({**SMALL, "noise_multiplier": 1.0, **changes}))


@pytest.mark.parametrize("trust", [trust for _, trust in OFFERS])
@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize(("reach", "low_reach"), [(2.0, 2.0), (0.01, 30.0), (30.0, 0.01), (0.5, 0.01)])
def test_one_record_moves_the_sum_by_at_most_the_clip_whatever_is_asked(trust, spread, reach, low_reach):
    sums = built(trust).record_sums
    draw = torch.Generator().manual_seed(1)
    form, steps = sums.form, grid_steps(sums.mechanism)
    for size in (0.0, 1.0, 1e3):
        centers = size * (2 * torch.rand(form.groups, form.components, form.numbers, generator=draw) - 1)
        asked = Components(centers, spread, reach, low_reach)
        x, y = torch.rand(1, 40, 1, 8, 8, generator=draw).round(), torch.arange(40)[None] % 2
        longest = 0.0
        for record in range(40):
            only = torch.zeros(1, 40, dtype=torch.bool)
            only[0, record] = True
            moved = sums.totals(asked, Padded(x, y, only))
            assert bool((moved == moved.round()).all())
            counts = moved[0, : form.places].view(-1, 1 + form.numbers)[:, 0]
            assert (counts != 0).sum() == 1  # in one component, and in no other
            longest = max(longest, float(moved.square().sum()))
        assert longest <= steps**2
        assert size < 1 or reach > 2 or longest > 0.5 * steps**2  # the bound is used


@pytest.mark.parametrize("trust", [trust for _, trust in OFFERS])
@pytest.mark.parametrize("records", [50, 260, 1000])
def test_one_record_more_changes_how_no_other_record_is_counted(trust, records):
    """With equal centers, as the first question has them, rounding must not decide which of them is nearest."""
    algorithm, draw = built(trust, components=20), torch.Generator().manual_seed(1)
    sums, y = algorithm.record_sums, torch.arange(records) % 2
    form = sums.form
    bright = torch.randint(0, 256, (records + 1, 1, 8, 8), generator=draw) / 255
    one, other = bright[:1], bright[1:]
    spot = torch.rand(form.groups, 1, form.numbers, generator=draw).expand(-1, form.components, -1)
    near = spot + 1e-7 * torch.rand(spot.shape, generator=draw)
    for asked in (algorithm.init(Rng(0)).parts["question"], form.write(Components(near, True, 0.3, 0.2))):
        components = form.read(asked)

        def totals(x, y, asked=components):
            return sums.totals(asked, Padded(x[None], y[None], torch.ones(1, len(x), dtype=torch.bool)))

        alone = totals(one, y[:1])
        moved = totals(torch.cat([one, other]), torch.cat([y[:1], y])) - totals(other, y)
        assert torch.equal(moved, alone)


def by_hand(sums, asked, image, group):
    """The component and the numbers of one picture, in clips, by floats."""
    form = sums.form
    place = low_first(spectrum(image[None], form.frequencies), form.channels).double()
    component = int(torch.cdist(place, asked.centers[group].double()).argmin())
    way = (place - asked.centers[group, component].double())[0]
    low = way[: form.moments] / max(asked.low_reach, float(way[: form.moments].norm()))
    way = way / max(asked.reach, float(way.norm()))
    count, length, product = (sums.room(asked.spread) * weight for weight in asked.weights)
    products = [
        product * (1 if i == j else math.sqrt(2)) * float(low[i] * low[j])
        for i in range(form.moments)
        for j in range(i, form.moments)
    ]
    return component, torch.tensor([count, *(length * way).tolist(), *(products if asked.spread else ())])


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize(("size", "frequencies"), [(0.6, 13), (1.0, 64), (30.0, 64)])
def test_a_record_adds_its_count_its_way_and_its_products(spread, size, frequencies):
    """Of centers within reach, and beyond it."""
    sums = built("central", frequencies=frequencies).record_sums
    draw = torch.Generator().manual_seed(3)
    form, steps = sums.form, grid_steps(sums.mechanism)
    images = torch.randint(0, 256, (30, 1, 8, 8), generator=draw) / 255
    middle = low_first(spectrum(images.mean(0, keepdim=True), frequencies), 1)
    centers = middle + size * torch.rand(form.groups, form.components, form.numbers, generator=draw)
    asked = Components(centers, spread, 2.0, 1.2)
    group = torch.arange(30) % 2
    component, each = sums.contributions(asked, images, group)
    for at in range(30):
        nearest, numbers = by_hand(sums, asked, images[at], int(group[at]))
        assert int(component[at]) == nearest
        torch.testing.assert_close(each[at] / steps, numbers.double(), rtol=0, atol=2e-3)
    total = sums.totals(asked, Padded(images[None], group[None], torch.ones(1, 30, dtype=torch.bool)))[0]
    for one in (0, 1):
        mine = each[group == one]
        part = total[: form.places].view(form.groups, form.components, -1)[one]
        assert torch.equal(part.sum(0), mine[:, : 1 + form.numbers].sum(0))
        products = total[form.places :].view(form.groups, -1)[one]
        assert torch.equal(products, mine[:, 1 + form.numbers :].sum(0) if spread else 0 * products)


def test_room_is_left_for_the_rounding_of_every_number():
    sums = built("distributed", most_records=10_000_000).record_sums
    form, steps = sums.form, grid_steps(sums.mechanism)
    for spread, numbers in ((False, 1 + form.numbers), (True, 1 + form.numbers + form.products)):
        assert sums.room(spread) == pytest.approx(1 - math.sqrt(numbers) / 2 / steps - 1e-6, abs=1e-12)
        asked = Components(torch.zeros(form.groups, form.components, form.numbers), spread, 2.0, 2.0)
        assert sums.scale(asked) == tuple(sums.room(spread) * weight for weight in asked.weights)


def test_messages_are_the_sums_as_their_mechanism_lets_them_leave():
    algorithm = built("central")
    sums, question = algorithm.record_sums, algorithm.init(Rng(0)).parts["question"]
    x, y = torch.rand(2, 9, 1, 8, 8), torch.arange(9)[None].expand(2, -1) % 2
    data = Padded(x, y, torch.arange(9)[None].expand(2, -1) < torch.tensor([[9], [4]]))
    sent = sums.messages(None, {"question": question}, data, np.arange(2), {}, Rng(1))
    totals = sums.totals(sums.form.read(question), data)
    assert sums.together and torch.equal(sent, totals.sum(0, keepdim=True) * sums.mechanism.clip.step)
    local = built("local").record_sums
    noisy = local.messages(None, {"question": question}, data, np.arange(2), {}, Rng())
    assert noisy.shape == (2, sums.form.answer)
    assert fits((noisy - totals * sums.mechanism.clip.step).numpy().ravel(), 1.0)
