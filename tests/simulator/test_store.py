import numpy as np
import pytest
import torch

from fedsynth.simulator.store import ClientStore, DeviceStore

BLANK = {"encoder": torch.zeros(3), "encoder/steps": torch.zeros(1)}


def memory(*values):
    column = torch.tensor(values, dtype=torch.float32)[:, None]
    return {"encoder": column.expand(-1, 3), "encoder/steps": column}


def held(store, *ids):
    read = store.read(np.array(ids), BLANK)
    assert torch.equal(read["encoder"][:, :1], read["encoder/steps"])
    return read["encoder/steps"].flatten().tolist()


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    return ClientStore(tmp_path / "clients.bin" if request.param == "file" else None)


def test_a_client_that_never_took_part_has_the_blank_memory(store):
    assert store.read(np.array([4]), {"encoder": torch.full((3,), 7.0)})["encoder"].tolist() == [[7.0] * 3]


def test_each_client_reads_what_it_wrote(store):
    store.write(np.array([3, 900]), memory(1.5, 2.5))
    store.commit()
    store.write(np.array([900, 4]), memory(3.5, 4.5))
    store.commit()
    assert held(store, 900, 3, 4, 5) == [3.5, 1.5, 4.5, 0.0]


def test_the_order_in_which_a_memory_is_named_does_not_matter(store):
    blank = {"b": torch.zeros(2), "a": torch.zeros(1)}
    store.write(np.array([1]), {"a": torch.ones(1, 1), "b": torch.full((1, 2), 2.0)})
    store.commit()
    read = store.read(np.array([1]), blank)
    assert read["a"].tolist() == [[1.0]] and read["b"].tolist() == [[2.0, 2.0]]


def test_a_round_that_was_not_committed_leaves_the_last_one_whole(tmp_path):
    store = ClientStore(tmp_path / "clients.bin")
    store.write(np.array([1, 2]), memory(1.0, 2.0))
    store.commit()
    index = store.index()
    store.write(np.array([1, 2, 3]), memory(10.0, 20.0, 30.0))
    reopened = ClientStore(tmp_path / "clients.bin")
    reopened.restore(index)
    assert held(reopened, 1, 2, 3) == [1.0, 2.0, 0.0]


def test_a_commit_without_its_checkpoint_leaves_the_checkpoint_whole(tmp_path):
    store = ClientStore(tmp_path / "clients.bin")
    store.write(np.array([1, 2]), memory(1.0, 2.0))
    store.commit()
    index = store.index()
    store.write(np.array([1, 2]), memory(10.0, 20.0))
    store.commit()
    reopened = ClientStore(tmp_path / "clients.bin")
    reopened.restore(index)
    assert held(reopened, 1, 2) == [1.0, 2.0]


def test_the_file_does_not_grow_with_the_rounds(tmp_path):
    store = ClientStore(tmp_path / "clients.bin")
    for version in range(20):
        store.write(np.arange(5), memory(*[float(version)] * 5))
        store.commit()
    assert (tmp_path / "clients.bin").stat().st_size <= 2 * 5 * 4 * 4


def test_nothing_to_remember_costs_nothing(store):
    store.write(np.array([1]), {})
    store.commit()
    assert store.read(np.array([1]), {}) == {}


def test_what_waits_survives_a_restart_and_is_kept_or_forgotten_by_client(tmp_path):
    blank = {"x": torch.zeros(2)}
    store = ClientStore(tmp_path / "clients.bin")
    ids = np.arange(3)
    store.write(ids, {"x": torch.ones(3, 2)})
    store.commit()
    store.write(ids, {"x": torch.full((3, 2), 2.0)})
    index = {**store.index(), **store.waiting()}
    store.close()
    again = ClientStore(tmp_path / "clients.bin")
    again.restore(index)
    again.commit(np.array([0]))
    again.discard(np.array([1]))
    assert again.read(ids, blank)["x"][:, 0].tolist() == [2.0, 1.0, 2.0]  # 2 still waits
    again.discard()
    assert again.read(ids, blank)["x"][:, 0].tolist() == [2.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "most", [2**30, 3 * 16, 0]
)  # bytes of three clients; the store of a GPU, on a CPU here
def test_a_device_keeps_no_more_than_it_may_and_forgets_nothing(most):
    store = DeviceStore("cpu", most)
    for ids, values in (([3, 900], [1.5, 2.5]), ([900, 4], [3.5, 4.5]), ([7, 8], [5.5, 6.5]), ([3], [9.5])):
        store.read(np.array(ids), BLANK)
        store.write(np.array(ids), memory(*values))
        store.commit()
        assert sum(rows.nbytes for rows in store._rows.values()) <= most
    assert held(store, 900, 3, 4, 7, 8, 5) == [3.5, 9.5, 4.5, 5.5, 6.5, 0.0]
    store.restore({})
    assert held(store, 900, 3) == [0.0, 0.0]
