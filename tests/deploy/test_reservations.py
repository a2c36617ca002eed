"""What runs were promised at a site: counted down by their own lines alone, and kept over a restart."""

import stat
from dataclasses import replace

import pytest

from fedsynth.deploy.site.reservations import Reservations
from fedsynth.privacy.account import EpsilonDeltaDpEvent
from fedsynth.privacy.ledger import Entry, Ledger

ROUND = Entry(EpsilonDeltaDpEvent(0.1, 1e-6), "a noisy sum", "server", "record", "distributed", 3, "trial")


@pytest.fixture
def reserved(tmp_path):
    return Reservations(tmp_path / "reserved.json", Ledger(tmp_path / "ledger.jsonl"))


def spend(tmp_path, *entries):
    Ledger(tmp_path / "ledger.jsonl").append_all(list(entries))


def again(tmp_path):
    return Reservations(tmp_path / "reserved.json", Ledger(tmp_path / "ledger.jsonl"))


def test_what_was_reserved_comes_back_as_it_was(reserved, tmp_path):
    assert reserved.names() == [] and reserved.left("trial") == [] and reserved.of_others("trial") == []
    other = replace(ROUND, run="other", holder="client a", unit="client", trust="local", count=1)
    reserved.put("trial", [ROUND])
    reserved.put("other", [other, ROUND])
    assert again(tmp_path).names() == ["other", "trial"]
    assert again(tmp_path).left("trial") == [ROUND] == again(tmp_path).of_others("other")
    assert again(tmp_path).left("other") == [other, ROUND]
    assert stat.S_IMODE((tmp_path / "reserved.json").stat().st_mode) == 0o600


def test_a_new_plan_takes_the_place_of_the_one_before(reserved):
    reserved.put("trial", [ROUND])
    reserved.put("trial", [replace(ROUND, count=1)])
    assert [entry.count for entry in reserved.left("trial")] == [1]
    reserved.drop("nobody")
    reserved.drop("trial")
    assert reserved.names() == [] and reserved.of_others("nobody") == []


def test_lines_of_the_run_count_down_and_never_below_nothing(reserved, tmp_path):
    spend(tmp_path, replace(ROUND, count=1))  # before it was reserved
    reserved.put("trial", [ROUND, replace(ROUND, holder="client a")])
    spend(tmp_path, replace(ROUND, count=2))
    assert [(one.holder, one.count) for one in reserved.left("trial")] == [("server", 1), ("client a", 3)]
    spend(tmp_path, replace(ROUND, count=5), replace(ROUND, holder="client a", release="something else"))
    assert [(one.holder, one.count) for one in reserved.left("trial")] == [("client a", 3)]


def test_the_same_release_in_two_parts_of_a_plan_is_counted_once(reserved, tmp_path):
    reserved.put("trial", [replace(ROUND, count=1), ROUND])
    spend(tmp_path, replace(ROUND, count=2))
    assert [one.count for one in reserved.left("trial")] == [2]
    reserved.put("long", [replace(ROUND, run="long", count=count) for count in (1, 3, 3)])
    spend(tmp_path, replace(ROUND, run="long", count=5))
    assert [one.count for one in reserved.of_others("trial")] == [2]


def test_a_run_whose_name_begins_alike_takes_nothing_of_what_another_was_promised(reserved, tmp_path):
    reserved.put("trial", [ROUND])
    spend(tmp_path, replace(ROUND, run="trial-2"))
    assert reserved.of_others("third") == [ROUND]


def test_all_runs_of_an_agreement_share_what_it_reserved(reserved, tmp_path):
    first = replace(ROUND, run="look-1")
    reserved.put("look", [first])
    spend(
        tmp_path, replace(first, count=1), replace(first, run="look-2", count=1), replace(first, run="looked")
    )
    assert [one.count for one in reserved.left("look")] == [1]
