"""Thousands of schedules of servers and participants that lie: what leaves a site is covered by its own ledger.

Epsilon is worked out from the bytes that a site sent, with the sums that the adversary can open and the noise that is
in them; the ledger has to say as much, and no more than the policy and the run's terms allow. A failure names its
schedule: `played(tape, kind, seed)` plays it again.
"""

import pytest
from schedule import KINDS, remembered_epsilons, schedules

OFTEN = {
    "clear sums": 500,
    "clear sums of sampled clients": 250,
    "local noise": 300,
    "local noise, a row replaced": 300,
    "masked sums of two sites": 250,
    "masked sums of three sites, two in a sum": 150,
    "masked sums with a participant that helps": 200,
    "masked sums of three, one helps": 150,
}
HAPPENS = (
    "sum",
    "result",
    "refuse",
    "policy",
    "session",
    "stale",
    "message",
    "budget",
)  # or nothing is tested


@pytest.fixture(scope="module", autouse=True)
def fast():
    with remembered_epsilons():
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_covers_what_left_whatever_was_said(kind, tape):
    seen = schedules(tape, kind, range(OFTEN[kind]))
    assert seen["schedule"] == OFTEN[kind]
    assert all(seen[what] for what in HAPPENS), seen


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_times_as_many_schedules(kind, tape):
    schedules(tape, kind, range(OFTEN[kind], 11 * OFTEN[kind]))
