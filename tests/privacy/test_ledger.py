"""The ledger: durable before the release, found out when changed, and usable after any crash."""

import json
import multiprocessing
import os
import random
import select
import signal
import time

import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent

from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy import account, chain
from fedsynth.privacy.account import EpsilonDeltaDpEvent, compose, repeat
from fedsynth.privacy.ledger import SEAL, Entry, Ledger
from fedsynth.privacy.ledger import plain as as_json

ROUND = PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0))


def written(path, count=4):
    ledger = Ledger(path)
    for number in range(count):
        ledger.append(ROUND, what=f"round {number + 1}", run="a")
    return ledger


def rows(path):
    return path.read_bytes().splitlines(keepends=True)


def test_a_line_holds_what_the_interface_names(tmp_path):
    line = written(tmp_path / "ledger.jsonl", 1).lines()[0]
    stored = json.loads((tmp_path / "ledger.jsonl").read_text())
    names = {"index", "time", "previous", "hash", "holder", "unit", "trust", "event", "count", "what", "run"}
    assert set(stored) == names | {"version", "release", "round", "session"}
    assert (line.index, line.holder, line.unit, line.trust, line.count) == (
        0,
        "server",
        "client",
        "central",
        1,
    )
    assert line.cost == ROUND


def test_the_line_is_on_disk_before_append_returns(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), real(handle)))
    path = tmp_path / "ledger.jsonl"
    written(path, 1)
    assert path.stat().st_ino in synced and tmp_path.stat().st_ino in synced


def test_a_second_run_goes_on_where_the_first_stopped(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first, second = written(path, 2), Ledger(path)
    second.append(ROUND, what="round 1", run="b")
    first.append(ROUND, what="round 3", run="a")
    assert [line.index for line in Ledger(path).lines()] == [0, 1, 2, 3]
    assert Ledger(path).verify() == []


@pytest.mark.parametrize("number", range(4))
def test_a_changed_line_is_found(tmp_path, number):
    path = tmp_path / "ledger.jsonl"
    written(path)
    lines = rows(path)
    lines[number] = lines[number].replace(b'"count":1', b'"count":0')
    path.write_bytes(b"".join(lines))
    problems = Ledger(path).verify()
    assert problems and problems[0].startswith(f"line {number}") and "changed" in problems[0]
    with pytest.raises(NotPrivate, match="cannot be trusted"):
        Ledger(path).append(ROUND, what="round")


@pytest.mark.parametrize("number", range(4))
def test_a_cut_line_is_found(tmp_path, number):
    path = tmp_path / "ledger.jsonl"
    written(path)
    lines = rows(path)
    path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
    problems = Ledger(path).verify()
    assert any("cut" in problem for problem in problems)


def test_a_cut_tail_is_found_even_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "ledger.jsonl"
    written(path)
    for keep in (len(path.read_bytes()) - 1, len(path.read_bytes()) - 30):
        path.write_bytes(path.read_bytes()[:keep])
        assert any("missing" in problem for problem in Ledger(path).verify())


def test_reordered_lines_are_found(tmp_path):
    path = tmp_path / "ledger.jsonl"
    written(path)
    lines = rows(path)
    path.write_bytes(b"".join([lines[0], lines[2], lines[1], lines[3]]))
    assert any("reordered" in problem for problem in Ledger(path).verify())


def test_a_line_whose_hash_was_made_to_fit_is_found_by_the_next(tmp_path):
    path = tmp_path / "ledger.jsonl"
    written(path)
    lines = [json.loads(line) for line in rows(path)]
    lines[1]["count"] = 0
    lines[1]["hash"] = chain.digest(lines[1])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert any("does not follow" in problem for problem in Ledger(path).verify())


def test_a_missing_or_broken_head_is_named(tmp_path):
    path = tmp_path / "ledger.jsonl"
    written(path)
    chain.head_path(path).write_text("nonsense")
    assert "cannot be read" in Ledger(path).verify()[0]
    chain.head_path(path).unlink()
    assert "is missing" in Ledger(path).verify()[0]


def test_a_crash_at_any_byte_of_the_last_line_leaves_a_usable_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    written(path, 2)
    before, head = path.read_bytes(), chain.head_path(path).read_bytes()
    Ledger(path).append(ROUND, what="round 3")
    after = path.read_bytes()
    for size in range(len(before), len(after) + 1, 7):
        path.write_bytes(after[:size])
        chain.head_path(path).write_bytes(head)
        assert Ledger(path).verify() == []
        Ledger(path).append(ROUND, what="round 4")
        assert Ledger(path).verify() == []
        whats = [line.what for line in Ledger(path).lines()]
        assert whats[:2] == ["round 1", "round 2"] and whats[-1] == "round 4"


def test_an_unfinished_line_is_removed_with_a_record_and_a_whole_one_is_counted(tmp_path):
    path = tmp_path / "ledger.jsonl"
    written(path, 1)
    head = chain.head_path(path).read_bytes()
    Ledger(path).append(ROUND, what="round 2")
    whole = path.read_bytes()
    for cut, kept in ((-1, "round 2"), (-9, "repair")):
        path.write_bytes(whole[:cut])
        chain.head_path(path).write_bytes(head)
        ledger = Ledger(path)
        ledger.append(ROUND, what="round 3")
        assert kept in ledger.lines()[1].what


def test_a_crash_between_line_and_head_is_tolerated(tmp_path):
    path = tmp_path / "ledger.jsonl"
    written(path, 2)
    head = chain.head_path(path).read_bytes()
    Ledger(path).append(ROUND, what="round 3")
    chain.head_path(path).write_bytes(head)
    assert Ledger(path).verify() == []
    assert len(Ledger(path).lines()) == 3


def _release_until_killed(path, pipe):
    ledger = Ledger(path)
    while True:
        ledger.append(ROUND, what="round")
        os.write(pipe, b".")  # the release leaves


def _kill_once(path, rng):
    reading, writing = os.pipe()
    child = multiprocessing.get_context("fork").Process(target=_release_until_killed, args=(path, writing))
    child.start()
    os.close(writing)
    if rng.random() < 0.7:  # otherwise it may die before its first line
        select.select([reading], [], [], 10)
    time.sleep(rng.uniform(0, 0.03))
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    released = 0
    while chunk := os.read(reading, 65536):
        released += len(chunk)
    os.close(reading)
    return released


def _survives(path, times):
    rng, released = random.Random(3), 0
    for _ in range(times):
        released += _kill_once(path, rng)
        ledger = Ledger(path)
        assert ledger.verify() == []
        counted = sum(line.count for line in ledger.lines())
        assert counted >= released
        released = counted
    assert released > 0


def test_kill_at_ten_random_moments_never_loses_a_release(tmp_path):
    _survives(tmp_path / "ledger.jsonl", 10)


@pytest.mark.slow
def test_kill_at_two_hundred_random_moments_never_loses_a_release(tmp_path):
    _survives(tmp_path / "ledger.jsonl", 200)


def _append_some(path):
    ledger = Ledger(path)
    for _ in range(20):
        ledger.append(ROUND, what="round")


def test_several_writers_take_turns(tmp_path):
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_some, args=(path,)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(Ledger(path).lines()) == 80
    assert Ledger(path).verify() == []


def test_several_runs_compose():
    ledger = Ledger(None)
    ledger.append(ROUND, what="rounds", count=30, run="a")
    ledger.append(ROUND, what="rounds", count=12, run="b")
    ledger.append(LaplaceDpEvent(4.0), what="class counts", run="b")
    assert ledger.composed() == compose([repeat(ROUND, 30), repeat(ROUND, 12), LaplaceDpEvent(4.0)])
    expected = account.epsilon(compose([repeat(ROUND, 42), LaplaceDpEvent(4.0)]), 1e-5)
    assert ledger.epsilon(1e-5) == pytest.approx(expected)


def test_local_clients_are_as_badly_off_as_the_one_who_spent_most():
    ledger = Ledger(None)
    ledger.append(LaplaceDpEvent(2.0), what="class counts")
    for client, count in (("a", 1), ("b", 5), ("c", 2)):
        ledger.append(EpsilonDeltaDpEvent(0.3), what="vote", holder=client, trust="local", count=count)
    worst = compose([LaplaceDpEvent(2.0), repeat(EpsilonDeltaDpEvent(0.3), 5)])
    assert ledger.epsilon(1e-5) == pytest.approx(account.epsilon(worst, 1e-5))
    assert ledger.composed(holder="c") == repeat(EpsilonDeltaDpEvent(0.3), 2)


def test_a_guarantee_for_records_is_none_for_clients():
    ledger = Ledger(None)
    ledger.append(ROUND, what="step", unit="record")
    ledger.append(ROUND, what="round", unit="client")
    with pytest.raises(BadInput, match="clients and for records"):
        ledger.epsilon(1e-5)
    assert ledger.epsilon(1e-5, unit="client") == float("inf")
    assert account.epsilon(ROUND, 1e-5) < ledger.epsilon(1e-5, unit="record") < float("inf")


@pytest.mark.parametrize("event", [ROUND, GaussianDpEvent(3.0), LaplaceDpEvent(3.0)])
def test_a_clients_release_costs_its_records_as_much_as_replacing_the_client(event):
    ledger = Ledger(None)
    ledger.append(event, what="class balance", unit="client")
    alone = account.epsilon(event, 1e-5, adjacency="replace-one")
    assert ledger.epsilon(1e-5, unit="record") == pytest.approx(alone, rel=1e-9)
    assert alone > 1.2 * account.epsilon(event, 1e-5)


def test_a_total_for_records_adds_their_own_steps_to_the_replaced_client():
    ledger = Ledger(None)
    ledger.append(GaussianDpEvent(2.0), what="step", unit="record", count=4)
    ledger.append(GaussianDpEvent(3.0), what="class balance", unit="client")
    together = (4 / 2.0**2 + 1 / (3.0 / 2) ** 2) ** -0.5  # replacing moves the sum by two clips
    expected = account.epsilon(GaussianDpEvent(together), 1e-5)
    assert ledger.epsilon(1e-5, unit="record") == pytest.approx(expected, rel=1e-9)


def test_an_open_release_costs_everything():
    ledger = Ledger(None)
    ledger.append(NonPrivateDpEvent(), what="raw counts")
    assert ledger.epsilon(1e-5) == float("inf")


def test_the_ledger_in_memory_keeps_the_same_chain():
    ledger = written(None, 3)
    assert ledger.verify() == [] and ledger.lines()[2].previous == ledger.lines()[1].hash
    assert ledger.head == ledger.lines()[2].hash


def test_many_lines_are_written_with_one_wait(tmp_path, monkeypatch):
    waits = []
    real = chain.write_lines
    monkeypatch.setattr(
        chain, "write_lines", lambda path, lines: (waits.append(len(lines)), real(path, lines))[1]
    )
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append_all(
        [Entry(EpsilonDeltaDpEvent(0.1), "vote", holder=f"client {n}", trust="local") for n in range(50)]
    )
    assert waits == [50] and len(ledger.lines()) == 50


def test_a_nameless_release_is_refused():
    with pytest.raises(BadInput, match="has a name"):
        Ledger(None).append(ROUND, what="")


def test_a_copy_has_the_same_chain_and_does_not_go_into_another_ledger(tmp_path):
    ledger = written(None, 3)
    Ledger(tmp_path / "ledger.jsonl").adopt(ledger)
    assert Ledger(tmp_path / "ledger.jsonl").head == ledger.head
    with pytest.raises(BadInput, match="lines already"):
        Ledger(tmp_path / "ledger.jsonl").adopt(ledger)


IN_SHARES = Entry(
    GaussianDpEvent(1.0), "masked sum", "site", "record", "distributed", 2, "a", public=GaussianDpEvent(2.0)
)


def test_noise_in_shares_costs_the_public_less_than_a_participant():
    ledger = Ledger(None)
    (line,) = ledger.append_all([IN_SHARES])
    ledger.append(GaussianDpEvent(3.0), what="sum", unit="record", holder="site")
    known, unknown = (ledger.answer(1e-5, public=public).epsilon for public in (False, True))
    costs = [compose([repeat(GaussianDpEvent(z), 2), GaussianDpEvent(3.0)]) for z in (1.0, 2.0)]
    assert [known, unknown] == [pytest.approx(account.epsilon(cost, 1e-5)) for cost in costs]
    assert line.to_the_public.cost == repeat(GaussianDpEvent(2.0), 2) != line.cost == IN_SHARES.cost


def test_a_line_can_be_written_into_another_ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    plain = Entry(ROUND, "round", "client", "client", "local", 3, "b")
    assert [line.entry for line in ledger.append_all([IN_SHARES, plain])] == [IN_SHARES, plain]
    assert [line.entry for line in Ledger(ledger.path).lines()] == [IN_SHARES, plain]
    stored = [json.loads(row) for row in rows(ledger.path)]
    assert [as_json(line) for line in ledger.lines()] == stored and "public" not in stored[1]


def test_the_last_seal_names_the_files_and_costs_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(ROUND, what="step", unit="record")
    spent, files = ledger.epsilon(1e-5), {"generator.pt": "ab", "schema.json": "cd"}
    assert ledger.files() is None
    ledger.seal({"generator.pt": "00"})
    line = ledger.seal(files)
    ledger.append(ROUND, what="nothing", unit="record", count=0)
    assert ledger.files() == line.files == files and line.what == SEAL
    assert ledger.epsilon(1e-5) == spent and [release.what for release in ledger.releases()] == ["step"]
    assert Ledger(ledger.path).files() == files


def test_releases_that_did_not_happen_cost_nobody_anything():
    ledger = Ledger(None)
    ledger.append(ROUND, what="nothing", unit="record", count=0)
    assert ledger.epsilon(1e-5, unit="client") == ledger.epsilon(1e-5, unit="record") == 0
    with pytest.raises(BadInput, match="0 or more"):
        ledger.append(ROUND, what="less than nothing", count=-1)


def test_what_would_follow_is_counted_and_not_written():
    ledger, next_one = written(None, 2), Entry(ROUND, "round 3")
    expected = account.epsilon(repeat(ROUND, 3), 1e-5)
    assert ledger.answer(1e-5, following=[next_one]).epsilon == pytest.approx(expected)
    assert len(ledger.lines()) == 2 and ledger.lines(1) == ledger.lines()[1:]
    rdp = ledger.answer(1e-5, accountant="rdp").epsilon
    assert rdp == pytest.approx(account.epsilon(repeat(ROUND, 2), 1e-5, accountant="rdp"))
    assert rdp > ledger.epsilon(1e-5)


def test_releases_are_picked_by_unit_and_holder():
    ledger = Ledger(None)
    ledger.append(ROUND, what="step", unit="record", holder="a")
    ledger.append(LaplaceDpEvent(2.0), what="counts", unit="client", holder="a")
    assert ledger.composed(unit="record") == ROUND and ledger.composed("a", "client") == LaplaceDpEvent(2.0)
    assert ledger.composed("b") == compose([])


def test_a_full_disk_at_the_first_line_leaves_a_usable_ledger(tmp_path, monkeypatch):
    def full(path, lines):
        raise OSError("no space left on device")

    ledger = Ledger(tmp_path / "deep" / "ledger.jsonl")
    monkeypatch.setattr(chain, "write_lines", full)
    with pytest.raises(OSError, match="no space"):
        ledger.append(ROUND, what="round 1")
    monkeypatch.undo()
    assert Ledger(ledger.path).verify() == [] and ledger.append(ROUND, what="round 1").index == 0
    assert Ledger(ledger.path).verify() == []


def test_the_lock_is_taken_once_for_what_belongs_together_and_given_back(tmp_path, monkeypatch):
    ledger, taken, real = Ledger(tmp_path / "ledger.jsonl"), [], chain.exclusive
    monkeypatch.setattr(chain, "exclusive", lambda path: (taken.append(path), real(path))[1])
    for _ in range(2):
        with ledger.locked():
            ledger.append(ROUND, what="round")
            ledger.append(ROUND, what="round")
    ledger.append(ROUND, what="round")
    assert taken == [ledger.path] * 3
