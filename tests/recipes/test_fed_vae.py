"""FedVAE: what is clipped, who pays, what each variant is made of, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Home
from fedsynth.federation.state import ServerState
from fedsynth.models.per_class import of_class
from fedsynth.privacy.account import epsilon
from fedsynth.privacy.clip import row_norms
from fedsynth.recipes.budget import Target, adjacency_of, cost, fit_budget
from fedsynth.recipes.fed_vae import EveryClass
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer

RECIPE = recipe_named("fed_vae")
POINTS = 16
SIGNAL = Schema.from_dict(
    {
        "version": 1,
        "kind": "table",
        "label": "loud",
        "client": "owner",
        "columns": [
            *(
                {"name": f"x{i}", "type": "integer", "min": -500, "max": 500, "bins": 1}
                for i in range(POINTS)
            ),
            {"name": "loud", "type": "binary", "categories": ["no", "yes"]},
        ],
    }
)
SMALL = {"latent": 2, "hidden": (8,), "bands": 4, "batch_size": 4, "rounds": 3, "rate": 1.0}


def signals(owners: int = 20, each: int = 4, loud: bool = True) -> pd.DataFrame:
    """Every second owner is ten times as loud."""
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(owners), each)
    scale = np.where((owner % 2 == 1) & loud, 100.0, 10.0)
    rows = np.clip(draw.normal(0, 1, (len(owner), POINTS)) * scale[:, None], -500, 500).round().astype(int)
    frame = pd.DataFrame(rows, columns=[f"x{i}" for i in range(POINTS)])
    return frame.assign(owner=owner, loud=np.where(scale > 50, "yes", "no"))


def algorithm(task=None, **settings):
    values = RECIPE.values({**SMALL, "noise_multiplier": 1.0, **settings})
    return RECIPE.build(task or RECIPE.task(SIGNAL, 20), values)


def test_each_decoder_is_clipped_by_itself_to_an_equal_share():
    made = algorithm(clip=2.0, report=0.1)
    update = torch.randn(1, made.dim) * 100
    clipped = made.mechanism.clip.apply(update)
    sizes = [made.layouts[part].size for part in made.shared]
    first, second, loss = clipped.split([*sizes, 1], dim=1)
    share = 2.0 * (1 - 0.1**2) ** 0.5 / 2**0.5
    assert row_norms(first).item() == pytest.approx(share, rel=1e-5)
    assert row_norms(second).item() == pytest.approx(share, rel=1e-5)
    assert row_norms(loss).item() == pytest.approx(0.2, rel=1e-5)
    assert row_norms(clipped).item() <= 2.0


def test_a_quiet_class_does_not_make_room_for_a_loud_one():
    made = algorithm(clip=1.0)
    size = made.layouts[made.shared[0]].size
    update = torch.zeros(1, made.dim)
    update[0, :size] = 100.0
    assert row_norms(made.mechanism.clip.apply(update)).item() == pytest.approx(0.5**0.5, rel=1e-2)


def test_encoders_stay_at_home_and_decoders_are_shared():
    separate, unified = algorithm(), algorithm(vaes="unified")
    assert separate.shared == (of_class("decoder", 0), of_class("decoder", 1))
    assert unified.shared == ("decoder",) and unified.homes["encoder"] is Home.CLIENT
    assert [phase.label for phase in separate.plan] == [0, 1]
    assert [phase.label for phase in unified.plan] == [None]


def test_a_class_that_a_client_lacks_is_left_alone_by_it():
    held = _encoded(signals())
    made = RECIPE.build(RECIPE.task(SIGNAL, 20, private=False), RECIPE.values(SMALL))
    state = made.init(Rng(0))
    memory = {name: value.expand(2, -1) for name, value in made.blank(state).items()}
    messages, kept = made.client_round(state, memory, held.gather([0, 1]), np.array([0, 1]), Rng(1))
    first, second, _ = messages.split([*(made.layouts[part].size for part in made.shared), 1], dim=1)
    assert bool((second[0] == 0).all()) and bool((first[1] == 0).all())  # client 0 is quiet, client 1 is loud
    assert first[0].abs().max() > 0 and second[1].abs().max() > 0
    quiet = of_class("encoder", 0)
    assert torch.equal(kept[quiet][1], state.parts[quiet])


@pytest.mark.parametrize("vaes", ["separate", "unified"])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_the_budget_holds_for_every_variant(vaes, trust):
    task = RECIPE.task(SIGNAL, 20, trust=trust)
    made, _ = fit_budget(RECIPE, task, RECIPE.values({**SMALL, "vaes": vaes}), Target(4.0, 1e-5))
    assert {charge.release.trust for charge in made.charges()} == {trust}
    adjacency = adjacency_of(made)
    assert adjacency == ("replace-one" if trust == "local" else "add-remove")
    assert 3.9 < epsilon(cost(made), 1e-5, adjacency=adjacency) <= 4.0


def test_local_noise_costs_more_than_central_noise_and_is_never_amplified():
    values = RECIPE.values({**SMALL, "rate": 0.5, "rounds": 4})
    central, local = (
        fit_budget(RECIPE, RECIPE.task(SIGNAL, 20, trust=trust), values, Target(4.0, 1e-5))[0]
        for trust in ("central", "local")
    )
    assert central.schedule.sampling == "poisson" and local.schedule.sampling == "none"
    assert local.schedule.participations(4) == 2
    assert local.mechanism.noise_multiplier > 1.5 * central.mechanism.noise_multiplier


def test_fixed_cohorts_are_accounted_as_such():
    made = algorithm(cohort=5)
    assert made.schedule.adjacency == "replace-one" and made.schedule.denominator() == 5


@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_private_run_learns_which_class_is_loud_from_enough_clients(trust):
    """End to end, over the clip, the noise and the balance; the statement names the trust."""
    settings = {**SMALL, "rounds": 30 if trust == "central" else 6, "clip": 1.0, "typical": 0.05}
    synthesizer = Synthesizer("fed_vae", SIGNAL, epsilon=50, delta=1e-5, trust=trust, **settings).fit(
        clients_from(signals(200), client_column="owner")
    )
    assert synthesizer.privacy.private and synthesizer.privacy.trust == trust
    assert synthesizer.privacy.epsilon <= 50
    made = synthesizer.sample(400)
    spread = made.groupby("loud")[[f"x{i}" for i in range(POINTS)]].agg(lambda v: v.std()).mean(axis=1)
    if trust == "central":
        assert spread["yes"] > 2 * spread["no"]


@pytest.mark.parametrize("private", [True, False])
def test_a_class_with_no_records_at_any_client_is_refused(private):
    budget = {"epsilon": 8, "delta": 1e-5} if private else {"private": False}
    synthesizer = Synthesizer("fed_vae", SIGNAL, **SMALL, **budget)
    with pytest.raises(BadInput, match="class 'yes': its noisy weight.*vaes=unified"):
        synthesizer.fit(clients_from(signals(200, loud=False), client_column="owner"))


def test_a_class_that_is_declared_empty_is_refused_before_anything_is_paid():
    declared = Schema.from_dict({**SIGNAL.to_dict(), "label_probabilities": [1.0, 0.0]})
    with pytest.raises(Incompatible, match="class 'yes' has probability 0"):
        algorithm(RECIPE.task(declared, 20))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vaes": "split"}, "vaes='split'"),
        ({"decoder": "convolution"}, "decoder=convolution, kind=table"),
        ({"decoder": "smooth"}, "decoder=smooth, kind=table"),
        ({"pixels": "white"}, "pixels='white'"),
        ({"decoder": "fourier"}, "decoder='fourier'"),
        ({"typical": 0.0}, "typical=0.0"),
        ({"bands": 1}, "bands=1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises((BadInput, Incompatible), match=message):
        algorithm(**settings)


def test_separate_vaes_need_a_label():
    bare = Schema.from_dict({**SIGNAL.to_dict(), "label": None, "columns": SIGNAL.to_dict()["columns"][:-1]})
    with pytest.raises(Incompatible, match="needs a label"):
        algorithm(RECIPE.task(bare, 20))
    assert algorithm(RECIPE.task(bare, 20), vaes="unified").dim > 1


def test_the_thesis_sizes_are_those_it_states():
    """178 points through 128, 64, 32 and 16 units to 8 numbers and back: 34,082 numbers a decoder."""
    columns = [{"name": f"x{i}", "type": "integer", "min": -9, "max": 9, "bins": 1} for i in range(178)]
    label = {"name": "y", "type": "binary"}
    schema = Schema.from_dict({"version": 1, "kind": "table", "label": "y", "columns": [*columns, label]})
    made = algorithm(RECIPE.task(schema, 20), decoder="dense", latent=8, hidden=(128, 64, 32, 16))
    assert [made.layouts[part].size for part in made.shared] == [34_082, 34_082]


def _encoded(frame):
    from fedsynth.data.clients import encode_clients

    return encode_clients(clients_from(frame, client_column="owner"), SIGNAL)


def test_noise_that_can_tell_nothing_refuses_nobody():
    state, answer = ServerState(0, {}), torch.tensor([60.0, 1.0])
    unsure = EveryClass(("no", "yes"), noise=30.0, telling=5.0)
    assert unsure(state, answer, Rng(0)).balance.tolist() == pytest.approx([60 / 61, 1 / 61])
    with pytest.raises(BadInput, match="class 'yes'"):
        EveryClass(("no", "yes"), noise=3.0, telling=5.0)(state, answer, Rng(0))


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("settings", [{}, {"vaes": "unified"}, {"decoder": "dense"}], ids=str)
def test_clients_in_one_chunk_are_clients_one_by_one(trust, settings):
    held, ids = _encoded(signals()), np.arange(4)
    made = algorithm(RECIPE.task(SIGNAL, 20, trust=trust), encoder_optimizer="sgd", **settings)
    state = made.init(Rng(0))

    def messages(chunk):
        sent = []
        for start in range(0, 4, chunk):
            mine = ids[start : start + chunk]
            memory = {name: value.expand(len(mine), -1) for name, value in made.blank(state).items()}
            sent.append(made.client_round(state, memory, held.gather(mine), mine, Rng(1))[0])
        return torch.cat(sent)

    torch.testing.assert_close(messages(4), messages(1), rtol=1e-4, atol=4e-6)


def test_a_smooth_decoder_has_the_sizes_that_it_is_asked_for(image_schema):
    def numbers(**settings):
        values = {"decoder": "smooth", "vaes": "unified", "bands": 4, "latent": 2, **settings}
        return RECIPE.build(RECIPE.task(image_schema, 10), RECIPE.values(values)).dim - 1

    assert numbers() == (1 + 2 + 2) * 16
    assert numbers(vaes="separate", latent=1) == 2 * (1 + 1) * 16


@pytest.mark.parametrize("vaes", ["separate", "unified"])
def test_smooth_images_of_clients_in_one_chunk_are_those_of_clients_one_by_one(vaes, image_schema, ten):
    values = {
        "decoder": "smooth",
        "vaes": vaes,
        "bands": 4,
        "latent": 2,
        "hidden": (8,),
        "noise_multiplier": 1.0,
    }
    made = RECIPE.build(RECIPE.task(image_schema, 10), RECIPE.values({**values, "encoder_optimizer": "sgd"}))
    state, ids = made.init(Rng(0)), np.arange(4)

    def messages(chunk):
        memory = {name: value.expand(chunk, -1) for name, value in made.blank(state).items()}
        parts = [ids[start : start + chunk] for start in range(0, 4, chunk)]
        return [
            made.client_round(state, memory, ten["image"].gather(mine), mine, Rng(1))[0] for mine in parts
        ]

    together, apart = torch.cat(messages(4)), torch.cat(messages(1))
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=4e-6)
    assert together.abs().sum() > 0
