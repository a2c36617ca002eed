"""The server's half: whatever does not fit is refused and its sender left out, and too little noise opens nothing."""

import os

import pytest
from cohort import Cohort

from fedsynth.errors import BadInput
from fedsynth.transport.agreement import STAGES, Aborted
from fedsynth.transport.bits import frame, unframe
from fedsynth.transport.primitives import KEY, KeyPair


def test_every_stage_asks_those_who_answered_the_one_before():
    cohort = Cohort(7, 4)
    assert cohort.server.requests() == dict.fromkeys(range(7), b"")
    drops = {"advertise": [6], "share": [5], "mask": [4]}
    for stage, left in (("share", 6), ("mask", 5), ("confirm", 4), ("reveal", 4)):
        cohort.run_until(stage, drops)
        assert list(cohort.server.requests()) == list(range(left))


@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "reveal"])
def test_a_second_answer_is_refused_and_changes_nothing(stage):
    cohort = Cohort(4, 3)
    cohort.run_until(stage)
    sent = cohort.answer(0, cohort.server.requests()[0])
    cohort.server.take(0, sent)
    with pytest.raises(BadInput, match="party 0"):
        cohort.server.take(0, sent)
    for party in (1, 2, 3):
        cohort.server.take(party, cohort.answer(party, cohort.server.requests()[party]))
    cohort.server.close()
    for _ in STAGES[STAGES.index(stage) + 1 :]:
        cohort.run_stage()
    assert cohort.server.open().tolist() == cohort.plain_sum(range(4)).tolist()


@pytest.mark.parametrize(("missed", "stage"), list(zip(STAGES, STAGES[1:], strict=False)))
def test_who_missed_a_stage_is_out_of_the_next(missed, stage):
    cohort, other = Cohort(5, 3), Cohort(5, 3)
    other.run_until(stage)
    answer = other.answer(1, other.server.requests()[1])  # in its form all right
    cohort.run_until(stage, {missed: [1]})
    with pytest.raises(BadInput, match="party 1"):
        cohort.server.take(1, answer)
    for _ in STAGES[STAGES.index(stage) :]:
        cohort.run_stage()
    assert cohort.server.open().tolist() == cohort.plain_sum().tolist()


@pytest.mark.parametrize(
    ("stage", "broken", "reason"),
    [
        ("advertise", lambda sent: sent + b"\0", "not signed"),
        ("advertise", lambda sent: sent[:-1], "not signed"),
        ("share", lambda sent: frame([unframe(sent)[0][:-1], *unframe(sent)[1:]]), "without a commitment"),
        ("share", lambda sent: frame([*unframe(sent), unframe(sent)[1][:-1]]), ""),
        ("share", lambda sent: frame([*unframe(sent), unframe(sent)[1] + frame([b""])]), "expected 4"),
        ("confirm", lambda sent: os.urandom(len(sent)), "no valid confirmation"),
        ("reveal", lambda sent: frame([b"\0\0\0\x09" + unframe(sent)[0][4:]]), "party 9 is not the one"),
        ("reveal", lambda sent: frame([unframe(sent)[0] + b"\0"]), "not the one it was given"),
    ],
)
def test_an_answer_that_does_not_fit_leaves_its_sender_out(stage, broken, reason):
    cohort = Cohort(5, 3)
    opened = cohort.run(changes={stage: {2: broken}})
    assert reason in cohort.refused[2]
    assert (2 in cohort.server.survivors) == (stage in ("confirm", "reveal"))
    assert opened.tolist() == cohort.plain_sum().tolist()


@pytest.mark.parametrize(("least", "opens"), [(6, True), (7, False)])
def test_a_sum_with_too_little_noise_in_it_is_not_opened(least, opens):
    cohort = Cohort(4, 3, members={0: 2, 1: 2, 2: 2, 3: 9}, least=least)
    if opens:
        assert cohort.run({"mask": [3]}).tolist() == cohort.plain_sum([0, 1, 2]).tolist()
        return
    with pytest.raises(Aborted, match="6 clients are in the sum, 7 are needed"):
        cohort.run({"mask": [3]})


def test_shares_that_do_not_make_the_key_of_a_party_that_left_open_nothing():
    cohort = Cohort(5, 3)
    cohort.run_until("reveal", {"mask": [4]})
    cohort.run_stage()
    cohort.server._keys[4] = KeyPair.fresh().public + cohort.server._keys[4][KEY:]
    with pytest.raises(Aborted, match="party 4 gave out do not make its secret"):
        cohort.server.open()


def test_too_few_shares_of_one_party_open_nothing():
    cohort = Cohort(4, 3)
    cohort.run_until("reveal")
    cohort.run_stage()
    shares = cohort.server._shares[2, b"own"]
    for holder in sorted(shares)[:2]:
        del shares[holder]
    with pytest.raises(Aborted, match="2 shares of party 2's masks, 3 are needed"):
        cohort.server.open()


def test_a_sum_is_not_opened_before_enough_parties_revealed_shares():
    cohort = Cohort(4, 3)
    cohort.run_until("reveal")
    for party in (0, 1):
        cohort.server.take(party, cohort.answer(party, cohort.server.requests()[party]))
    with pytest.raises(Aborted, match="2 parties revealed shares, 3 are needed"):
        cohort.server.open()
