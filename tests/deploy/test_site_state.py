"""What a site writes down of a run: all of it comes back, and nothing else stays."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedsynth.deploy.site.state import RunFolder, SiteProgress, Waiting, public, run_path
from fedsynth.errors import BadInput


def waiting(name, version=0, clients=(0, 2), job="round"):
    return Waiting(f"{job} {version} 0", f"order of {name}", name, 3, version, np.array(clients))


def same(one, other):
    plain = ("key", "order", "name", "session", "version")
    assert (one.session, one.since, one.over) == (other.session, other.since, other.over)
    assert one.floors.tolist() == other.floors.tolist()
    assert [[getattr(w, name) for name in plain] + w.clients.tolist() for w in one.waiting] == [
        [getattr(w, name) for name in plain] + w.clients.tolist() for w in other.waiting
    ]


def test_the_kind_of_work_is_the_beginning_of_its_key():
    assert waiting("a", job="balance").job == "balance" and waiting("a", 7).job == "round"


def test_a_used_result_keeps_its_clients_away_and_no_others():
    progress = SiteProgress(1, 0, False, (waiting("a", 1), waiting("b", 2, (5,)), waiting("c", 4, (2,))))
    assert progress.floors.dtype == np.int64 and progress.floor(np.array([0, 9])) == 0
    after = progress.used({"a", "b"}, separation=3)
    assert after.floors.tolist() == [4, 0, 4, 0, 0, 5] and [one.name for one in after.waiting] == ["c"]
    assert after.floors.dtype == np.int64
    assert [after.floor(np.array(clients)) for clients in ([0], [1], [1, 5], [6])] == [4, 0, 5, 0]
    later = after.used({"c"}, separation=1)
    assert later.floors.tolist() == [4, 0, 5, 0, 0, 5] and later.waiting == ()
    assert after.used(set(), 3).floors.tolist() == after.floors.tolist()
    earlier = SiteProgress(1, 0, False, (waiting("d", 0, (5,)),), after.floors)
    assert earlier.used({"d"}, 1).floors.tolist() == after.floors.tolist()  # a floor never falls


def test_settled_results_are_taken_away():
    progress = SiteProgress(2, 1, True, (waiting("a"), waiting("b")))
    same(progress.without({"a"}), SiteProgress(2, 1, True, (waiting("b"),)))


def test_what_was_saved_comes_back_after_a_restart(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "one")
    assert not folder.exists
    folder.create(b"the plan", SiteProgress())
    assert folder.exists and folder.begin() == b"the plan"
    blank, clients = {"part": torch.zeros(3)}, np.array([0, 2, 4])
    memory = {"part": torch.arange(9.0).reshape(3, 3)}
    folder.store.write(clients, memory)
    folder.store.commit(clients[:2])
    progress = SiteProgress(4, 2, True, (waiting("a", 3), waiting("b", 3, (4,))), np.array([5, 0, 6]))
    folder.keep("a", b"result a")
    folder.keep("b", b"result b")
    folder.save(progress)
    folder.store.write(np.array([0]), {"part": torch.full((1, 3), 9.0)})  # not saved
    folder.close()
    again = RunFolder(tmp_path / "runs" / "one")
    same(again.load(), progress)
    assert torch.equal(again.store.read(clients, blank)["part"], memory["part"])
    again.store.discard()
    assert again.store.read(clients, blank)["part"][2].tolist() == [0.0, 0.0, 0.0]
    assert (again.result("a"), again.result("b")) == (b"result a", b"result b")


def test_results_that_are_not_waited_for_are_removed(tmp_path):
    folder = RunFolder(tmp_path / "one")
    folder.create(b"plan", SiteProgress())
    for name in "ab":
        folder.keep(name, name.encode())
    folder.save(SiteProgress(waiting=(waiting("b"),)))
    assert [file.name for file in (tmp_path / "one" / "results").iterdir()] == ["b.bin"]
    folder.create(b"later plan", SiteProgress(2))
    assert folder.begin() == b"later plan" and folder.load().session == 2
    assert not list((tmp_path / "one" / "results").iterdir())


def test_a_folder_without_a_standing_or_without_a_plan_is_no_run(tmp_path):
    for missing in ("begin.bin", "standing.bin"):
        folder = RunFolder(tmp_path / missing)
        folder.create(b"plan", SiteProgress())
        (tmp_path / missing / missing).unlink()
        assert not folder.exists


def test_a_standing_of_before_has_no_floors(tmp_path):
    from fedsynth.deploy.link.codec import Envelope, decode, encode

    folder = RunFolder(tmp_path / "one")
    folder.create(b"plan", SiteProgress(3, floors=np.array([7])))
    file = tmp_path / "one" / "standing.bin"
    envelope = decode(file.read_bytes())
    tensors = {name: value for name, value in envelope.tensors.items() if name != "floors"}
    file.write_bytes(encode(Envelope(envelope.kind, envelope.fields, tensors)))
    same(folder.load(), SiteProgress(3))


def test_private_parts_go_when_a_run_is_over_and_the_rest_stays(tmp_path):
    folder = RunFolder(tmp_path / "one")
    folder.create(b"plan", SiteProgress())
    folder.keep("a", b"result")
    folder.forget()
    assert sorted(file.name for file in (tmp_path / "one").iterdir()) == ["begin.bin", "standing.bin"]
    folder.forget()  # once more does no harm
    assert folder.exists


def test_closing_gives_the_file_back_and_a_new_store_is_opened(tmp_path):
    folder = RunFolder(tmp_path / "one")
    store = folder.store
    folder.close()
    folder.close()
    assert store._file.closed and folder.store is not store and not folder.store._file.closed
    other = folder.store
    folder.forget()
    assert other._file.closed


@pytest.mark.parametrize("run", ["", "a" * 81, "../etc", "a/b", "a.b", "jürg", "-", "_-"])
def test_a_name_that_could_lead_elsewhere_is_refused(run):
    with pytest.raises(BadInput, match="expected up to 80 letters"):
        run_path(Path("state"), run)


@pytest.mark.parametrize("run", ["a", "a" * 80, "run-7_b", "2024"])
def test_a_run_lies_under_its_name(run):
    assert run_path(Path("state"), run) == Path("state/runs") / run


def test_what_is_named_secret_is_not_sent():
    state = {"sums": torch.ones(1), "turn": torch.zeros(1), "values": torch.ones(2)}
    assert set(public(state, ("sums", "turn"))) == {"values"}
    assert public(state, ()) == state
