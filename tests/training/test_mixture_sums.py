"""What a record adds to a mixture's sums: never longer than the clip, and the same whatever other records there are."""

import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.data.schema import Schema
from fedsynth.models.mixture import Components
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.training.grid_sums import grid_steps
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
def test_one_record_moves_the_sum_by_at_most_the_clip_whatever_is_asked(trust, spread):
    sums = built(trust).record_sums
    draw = torch.Generator().manual_seed(1)
    form, steps = sums.form, grid_steps(sums.mechanism)
    for size in (0.0, 1.0, 1e3):
        centers = size * (2 * torch.rand(form.groups, form.components, form.numbers, generator=draw) - 1)
        asked = Components(centers, spread)
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
        assert size < 1 or longest > 0.5 * steps**2  # the bound is used


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
    for asked in (algorithm.init(Rng(0)).parts["question"], form.write(Components(near, spread=True))):
        components = form.read(asked)

        def totals(x, y, asked=components):
            return sums.totals(asked, Padded(x[None], y[None], torch.ones(1, len(x), dtype=torch.bool)))

        alone = totals(one, y[:1])
        moved = totals(torch.cat([one, other]), torch.cat([y[:1], y])) - totals(other, y)
        assert torch.equal(moved, alone)
