"""kill -9 at random moments: the ledger never shows less than was released, and the run still finishes."""

import os
import random
import signal
import time

import pytest

from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import ROWS, TABLE, make_frame

SCHEMA = Schema.from_dict(TABLE)
CLIENTS = clients_from(make_frame([number // 3 for number in range(60)]), client_column="owner")
ROUNDS = 300


def work(out) -> None:
    """Begin the run or go on with it, in a process that may die at any moment."""
    folder = Folder(out)
    if folder.recipe.exists():
        request = Request.from_toml(folder.read_recipe())
        Synthesizer.of(request, SCHEMA).resume(CLIENTS, out)
    else:
        request = Request("dpd_fvae", epsilon=8, delta=1e-2, rounds=ROUNDS, arguments=ROWS)
        Synthesizer.of(request, SCHEMA).fit(CLIENTS, folder=out)


def in_a_process(out, moments: random.Random | None = None) -> None:
    child = os.fork()
    if child == 0:
        try:
            work(out)
        finally:
            os._exit(0)
    if moments is not None:
        if moments.random() < 0.8:  # else also while it reads, calibrates or looks into the ledger
            wait_for_a_release(out)
        time.sleep(moments.uniform(0.0, 0.3))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def wait_for_a_release(out) -> None:
    ledger = Folder(out).ledger
    before = ledger.stat().st_size if ledger.exists() else 0
    for _ in range(2000):
        if ledger.exists() and ledger.stat().st_size > before:
            return
        time.sleep(0.01)


def released(folder: Folder) -> int:
    """The rounds whose result can be seen from outside: in the checkpoint or in the history."""
    state = folder.restore(folder.store()) if folder.state.exists() else None
    seen = [line["version"] for line in folder.read_history()]
    return max([0 if state is None else state.version, *seen])


def kill_again_and_again(out, kills: int) -> None:
    moments, reached = random.Random(str(out)), []
    folder = Folder(out)
    for _ in range(kills):
        in_a_process(out, moments)
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
