"""kill -9 at random moments: the ledger never shows less than was released, and the run still finishes."""

import os
import random
import signal
import time

import pytest

from fedsynth.data.clients import clients_from
from fedsynth.data.linked_tables import Linked
from fedsynth.data.schema import Schema
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer
from fedsynth.training.history_sums import HistorySums
from samples import LINKED, ROWS, TABLE, make_frame, make_histories

SCHEMA = Schema.from_dict(TABLE)
CLIENTS = clients_from(make_frame([number // 3 for number in range(60)]), client_column="owner")
ROUNDS = 120


def work(out) -> None:
    """Begin the run or go on with it, in a process that may die at any moment."""
    folder = Folder(out)
    if folder.recipe.exists():
        request = Request.from_toml(folder.read_recipe())
        Synthesizer.of(request, SCHEMA).resume(CLIENTS, out)
    else:
        request = Request("dpd_fvae", epsilon=8, delta=1e-2, rounds=ROUNDS, arguments=ROWS)
        Synthesizer.of(request, SCHEMA).fit(CLIENTS, folder=out)


def in_a_process(out, moments: random.Random | None = None, *, at_once: bool = True) -> None:
    """Work in a process, killed at some moment; with `at_once` perhaps before its first round."""
    child = os.fork()
    if child == 0:
        try:
            work(out)
        finally:
            os._exit(0)
    if moments is not None:
        if (
            moments.random() < 0.8 or not at_once
        ):  # else also while it reads, calibrates or looks into the ledger
            wait_for_a_round(out, child)
        time.sleep(moments.uniform(0.0, 0.3))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def rounds_in(ledger) -> int:
    return ledger.read_bytes().count(b", round ") if ledger.exists() else 0


def wait_for_a_round(out, child: int) -> None:
    """Wait until the ledger shows one more round, or the process has ended."""
    ledger = Folder(out).ledger
    before = rounds_in(ledger)
    while rounds_in(ledger) == before:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.005)


def released(folder: Folder) -> int:
    """The rounds whose result can be seen from outside: in the checkpoint or in the history."""
    state = folder.restore(folder.store()) if folder.state.exists() else None
    seen = [line["version"] for line in folder.read_history()]
    return max([0 if state is None else state.version, *seen])


def kill_again_and_again(out, kills: int) -> None:
    moments, reached = random.Random(str(out)), []
    folder = Folder(out)
    for number in range(kills):
        in_a_process(out, moments, at_once=number < kills - 1)
        if folder.finished:
            break
        ledger = Ledger(folder.ledger)
        rounds = [line for line in ledger.lines() if ", round " in line.what]
        assert ledger.verify() == [] and len(rounds) >= released(folder)
        reached.append(len(rounds))
        if folder.path.exists() and not folder.recipe.exists():
            return  # killed before the run was there at all: only its ledger may be
    assert max(reached, default=0) > 0  # else no kill met a round
    in_a_process(out)
    ledger = Ledger(folder.ledger)
    assert folder.finished and ledger.verify() == []
    assert ledger.epsilon(1e-2) <= 8


@pytest.mark.recipe
@pytest.mark.parametrize("number", range(2))
def test_ten_kills_lose_nothing(tmp_path, number):
    kill_again_and_again(tmp_path / str(number), 5)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_two_hundred_kills_lose_nothing(tmp_path, number):
    kill_again_and_again(tmp_path / str(number), 10)


def die_in_round(number: int, out) -> None:
    """Have this process killed when the answers of a round are computed: all rounds before it are complete."""
    plain, ledger = HistorySums.messages, Ledger(Folder(out).ledger)

    def dying(sums, model, sent, *words):
        if len(ledger.lines()) == number - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(sums, model, sent, *words)

    HistorySums.messages = dying


def test_histories_go_on_after_kill_9_between_rounds_and_no_round_is_charged_twice(tmp_path):
    schema, out = Schema.from_dict(LINKED), tmp_path / "RUN"
    persons = Linked(schema).owned(make_histories([number % 5 for number in range(40)]))
    request = Request("histories", epsilon=8, delta=1e-2, arguments={"rounds": 4, "pair_rounds": 1})
    child = os.fork()
    if child == 0:
        try:
            die_in_round(3, out)
            Synthesizer.of(request, schema).fit(persons, folder=out)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    folder = Folder(out)
    assert not folder.finished and len(Ledger(folder.ledger).lines()) == released(folder) == 2
    Synthesizer.of(Request.from_toml(folder.read_recipe()), schema).resume(persons, out)
    ledger = Ledger(folder.ledger)
    assert folder.finished and ledger.verify() == []
    assert sum(line.count for line in ledger.releases()) == 4 and ledger.epsilon(1e-2) <= 8
