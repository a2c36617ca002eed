from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsynth.assess.attacks import shadow
from fedsynth.assess.attacks.shadow import Shadows, train_together
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.fedbuff import FedBuff
from fedsynth.federation.loop import learn_balance, run
from fedsynth.recipes.budget import Target
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from samples import TABLE, make_frame

SCHEMA = Schema.from_dict(TABLE)
SMALL = {"latent": 2, "hidden": (8,), "rounds": 3, "batch_size": 16}


def tables(count, rows=40):
    return [make_frame(np.arange(rows), seed).drop(columns="owner") for seed in range(count)]


def runs_of(shadows, count):
    return [shadows.deal(table, Rng(1).at(number)) for number, table in enumerate(tables(count))]


@pytest.mark.parametrize(
    ("recipe", "clients", "private"), [("central_vae", 1, False), ("dpd_fvae", 4, True), ("fvae", 4, True)]
)
def test_runs_together_are_runs_one_by_one(recipe, clients, private, monkeypatch):
    values = {**SMALL, "noise_multiplier": 1.0, "optimizer": "sgd"}
    if recipe == "dpd_fvae":
        values["encoder_optimizer"] = "sgd"
    shadows = Shadows(recipe, SCHEMA, values, clients, private)
    data = runs_of(shadows, 5)
    together = train_together(shadows.algorithm, data, Rng(7))
    monkeypatch.setattr(shadow, "_STACK_BYTES", 1)  # groups of one
    alone = train_together(shadows.algorithm, data, Rng(7))
    for first, second in zip(together, alone, strict=True):
        assert first.version == 3
        torch.testing.assert_close(first.parts["decoder"], second.parts["decoder"], rtol=1e-4, atol=1e-5)
    assert not torch.equal(together[0].parts["decoder"], together[1].parts["decoder"])


def test_a_run_on_pooled_rows_is_what_the_loop_trains():
    shadows = Shadows("central_vae", SCHEMA, SMALL, 1, private=False)
    data = runs_of(shadows, 1)
    algorithm = shadows.algorithm
    stream = Rng(7).at("run", 0)
    state = algorithm.init(stream.at("init"))
    link = InProcess(data[0], Rng(7))
    state = learn_balance(algorithm, link, state, stream, lambda *_: None)
    after = run(algorithm, link, state, Rng(7), lambda *_: None, lambda *_: None, 3)
    ours = train_together(algorithm, data, Rng(7))[0]
    for part in ("encoder", "decoder"):
        torch.testing.assert_close(ours.parts[part], after.parts[part])
        assert not torch.equal(after.parts[part], state.parts[part])


def test_the_noise_of_each_run_is_its_own():
    shadows = Shadows("dpd_fvae", SCHEMA, {**SMALL, "noise_multiplier": 50.0}, 4)
    same = [runs_of(shadows, 1)[0]] * 2
    first, second = train_together(shadows.algorithm, same, Rng(7))
    assert (first.parts["decoder"] - second.parts["decoder"]).norm() > 1.0


def test_one_synthetic_table_comes_for_each_table():
    made = Shadows("central_vae", SCHEMA, SMALL, private=False)(tables(3), 10, Rng(1))
    again = Shadows("central_vae", SCHEMA, SMALL, private=False)(tables(3), 10, Rng(1))
    assert [len(table) for table in made] == [10, 10, 10] and list(made[0].columns) == list(SCHEMA.names)
    assert all(one.equals(other) for one, other in zip(made, again, strict=True))


def test_a_ceiling_comes_with_noise_alone():
    private = Shadows.with_budget(
        "central_vae", SCHEMA, Target(1.0, 1e-3), values={**SMALL, "records": 40, "batch_size": 20}
    )
    assert 0.5 < private.ceiling.auc < 0.75
    assert Shadows("central_vae", SCHEMA, SMALL, private=False).ceiling is None


def test_another_number_of_clients_is_refused():
    shadows = Shadows("dpd_fvae", SCHEMA, {**SMALL, "noise_multiplier": 1.0}, 4)
    with pytest.raises(BadInput, match="composed for 4"):
        train_together(shadows.algorithm, [runs_of(Shadows("central_vae", SCHEMA, SMALL), 1)[0]], Rng(1))


def test_runs_without_rounds_are_not_stacked(build, ten):
    algorithm = build("fvae_record")
    buffered = replace(algorithm, schedule=FedBuff(10, 4, 2))
    with pytest.raises(Incompatible, match="a buffer has no rounds"):
        train_together(buffered, [ten["table"]], Rng(1))
