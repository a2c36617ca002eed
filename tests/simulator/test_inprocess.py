import numpy as np
import pytest
import torch
from three_sites import make_sites

from fedsynth.rng import Rng
from fedsynth.simulator import inprocess
from fedsynth.simulator.inprocess import InProcess


def arrivals(link, algorithm, state, ids):
    link.start(algorithm, ids, state)
    found, got = [], 0
    while got < len(ids):
        found.append(link.next())
        got += len(found[-1].ids)
    return found


@pytest.mark.parametrize(("chunk", "pieces"), [(1, 10), (3, 4), (10, 1), (None, 1)])
def test_a_cohort_is_cut_into_chunks_and_everybody_arrives_once(build, ten, chunk, pieces):
    algorithm = build("dpd_fvae")
    found = arrivals(
        InProcess(ten["table"], Rng(1), chunk=chunk), algorithm, algorithm.init(Rng(1)), np.arange(10)
    )
    assert len(found) == pieces
    assert sorted(np.concatenate([a.ids for a in found])) == list(range(10))
    assert all(
        a.messages.shape == (len(a.ids), algorithm.dim) and a.bytes_up == a.messages.nbytes for a in found
    )


def test_chunks_hold_clients_of_like_size(build, ten):
    algorithm = build("dpd_fvae")
    found = arrivals(
        InProcess(ten["table"], Rng(1), chunk=5), algorithm, algorithm.init(Rng(1)), np.arange(10)
    )
    sizes = [ten["table"].sizes[a.ids] for a in found]
    assert max(sizes[0]) <= min(sizes[1])


def test_what_clients_learn_counts_only_once_the_round_is_complete(build, ten):
    algorithm = build("dpd_fvae")
    state = algorithm.init(Rng(1))
    link = InProcess(ten["table"], Rng(1))
    arrivals(link, algorithm, state, np.arange(10))
    before = link.store.index()
    assert (before["store"] < 0).all()
    link.commit()
    kept = link.store.read(np.array([8]), algorithm.blank(state))
    assert not torch.equal(kept["encoder"][0], state.parts["encoder"])


def test_a_client_with_very_many_rows_does_not_stretch_a_whole_cohort(build, ten, monkeypatch):
    monkeypatch.setitem(
        inprocess._DATA_BYTES, "cpu", 4 * ten["table"].x.shape[1] * 12
    )  # room for twelve rows
    algorithm = build("dpd_fvae")
    state = algorithm.init(Rng(1))
    found = arrivals(InProcess(ten["table"], Rng(1), chunk=10), algorithm, state, np.arange(10))
    whole = arrivals(InProcess(ten["table"], Rng(1), chunk=1), algorithm, state, np.arange(10))
    assert sorted(np.concatenate([a.ids for a in found])) == list(range(10))
    assert 1 < len(found) < 10
    assert all(len(a.ids) == 1 or len(a.ids) * ten["table"].sizes[a.ids].max() <= 12 for a in found)
    together, alone = (torch.cat([a.messages for a in each]) for each in (found, whole))
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=4e-6)


@pytest.mark.parametrize(
    ("name", "kind"), [("dpd_fvae", "table"), ("dp_fedavg_gan", "image"), ("dp_fedavg_lm", "text")]
)
def test_clients_that_are_computed_alone_send_the_same_bits_whoever_else_takes_part(name, kind, build, ten):
    """So that one client moves the sum by its own message and by nothing else."""
    algorithm = build(name, kind, epochs=3)
    state = algorithm.init(Rng(1).at("init"))

    def messages(ids):
        link = InProcess(ten[kind], Rng(1), chunk=1)
        link.start(algorithm, ids, state)
        arrivals = [link.next() for _ in ids]
        return {int(one.ids[0]): one.messages[0] for one in arrivals}

    everybody = messages(np.arange(10))
    for gone in range(10):
        for client, message in messages(np.delete(np.arange(10), gone)).items():
            assert torch.equal(message, everybody[client])


def test_a_site_with_system_noise_computes_its_clients_alone(ten, schema, tmp_path):
    for seed, expected in ((None, 1), (1, None)):
        assert make_sites(ten["table"], schema, tmp_path, seed=seed)["ada"]._labor.chunk == expected


@pytest.mark.parametrize("recipe", ["dpd_fvae", "marginals"])
def test_two_devices_split_a_cohort_and_give_what_one_gives(build, ten, recipe):
    algorithm = build(recipe)
    state = algorithm.init(Rng(1))
    sums, kept = [], []
    for devices in ("cpu", "cpu,cpu"):
        link = InProcess(ten["table"], Rng(1), device=devices)
        found = arrivals(link, algorithm, state, np.arange(10))
        assert len(found) == (2 if "," in devices else 1)
        sums.append(sum(a.messages.double().sum(0) for a in found))
        link.commit()
        kept.append(link.store.read(np.arange(10), algorithm.blank(state)))
    torch.testing.assert_close(sums[1], sums[0], rtol=1e-5, atol=1e-6)
    for name in kept[0]:
        torch.testing.assert_close(kept[1][name], kept[0][name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [("dpd_fvae", "table"), ("moment_vae", "image"), ("dp_fedavg_gan", "image"), ("dp_fedavg_lm", "text")],
)
def test_chunks_that_train_at_the_same_time_do_not_meet(build, ten, recipe, kind):
    algorithm = build(recipe, kind)
    state = algorithm.init(Rng(1))
    one, other = (
        arrivals(InProcess(ten[kind], Rng(1), device=devices, chunk=2), algorithm, state, np.arange(10))
        for devices in ("cpu", "cpu,cpu,cpu")
    )
    for alone, beside in zip(one, other, strict=True):
        np.testing.assert_array_equal(alone.ids, beside.ids)
        assert torch.equal(alone.messages, beside.messages)


def test_each_worker_has_a_model_and_phases_of_its_own(build, ten):
    algorithm = build("dpd_fvae")
    link = InProcess(ten["table"], Rng(1), device="cpu,cpu")
    own = link._job_of(1, algorithm)
    assert link._job_of(0, algorithm) is algorithm and link._job_of(1, algorithm) is own
    assert own.plan == algorithm.plan and own.plan[0] is not algorithm.plan[0]
    assert own.model is not algorithm.model
