"""The server remembers how much of its ledger each site showed: an older copy does not pass for it."""

import json

import pytest

from fedsynth.deploy.link.ledger_heads import RESTORE, LedgerHeads
from fedsynth.deploy.link.messages import Accept


def accept(proof: str) -> Accept:
    return Accept("run", "", 1, 0, False, "9:zz", proof)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "heads.json"


def test_a_site_that_is_new_may_show_anything(path):
    heads = LedgerHeads(path)
    assert heads.known("north") == 0 and heads.problem("north", accept("")) == ""
    assert not path.exists()


def test_only_the_hash_of_the_last_known_line_passes(path):
    heads = LedgerHeads(path)
    heads.note("north", "3:abc")
    assert heads.known("north") == 3 and heads.known("south") == 0
    assert heads.problem("north", accept("abc")) == "" == heads.problem("south", accept("abd"))
    for proof in ("", "abd", "3:abc"):
        assert heads.problem("north", accept(proof)) == (
            f"its ledger is not the one of which it showed 3 lines before: {RESTORE}"
        )


@pytest.mark.parametrize("shown", ["2:older", "3:other", "", "x:y", "-5:y", "0:none"])
def test_what_is_not_longer_changes_nothing(path, shown):
    heads = LedgerHeads(path)
    heads.note("north", "3:abc")
    heads.note("north", shown)
    assert heads.known("north") == 3 and heads.problem("north", accept("abc")) == ""


def test_it_is_written_down_and_read_again(path):
    heads = LedgerHeads(path)
    heads.note("north", "3:abc")
    assert LedgerHeads(path).known("north") == 0  # not before it is saved
    heads.save()
    again = LedgerHeads(path)
    assert again.known("north") == 3 and again.problem("north", accept("abc")) == ""
    assert json.loads(path.read_text()) == {"north": [3, "abc"]}


def test_nothing_new_is_not_written_again(path):
    heads = LedgerHeads(path)
    heads.save()
    assert not path.exists()
    heads.note("north", "3:abc")
    heads.save()
    path.unlink()
    heads.save()
    assert not path.exists()
    LedgerHeads(None).save()
    unsaved = LedgerHeads(None)
    unsaved.note("north", "1:a")
    unsaved.save()
    assert unsaved.known("north") == 1


def test_two_jobs_of_one_server_keep_the_longer_of_what_either_saw(path):
    one, other = LedgerHeads(path), LedgerHeads(path)
    one.note("north", "7:long")
    one.note("south", "1:s")
    other.note("north", "4:short")
    other.note("east", "2:e")
    one.save()
    other.save()
    read = LedgerHeads(path)
    assert [read.known(site) for site in ("north", "south", "east")] == [7, 1, 2]
    assert read.problem("north", accept("long")) == "" and other.known("north") == 7


def test_a_site_is_forgotten_by_name(path):
    heads = LedgerHeads(path)
    heads.note("north", "3:abc")
    heads.note("south", "2:s")
    heads.save()
    assert LedgerHeads(path).forget("north") and not LedgerHeads(path).forget("north")
    read = LedgerHeads(path)
    assert read.known("north") == 0 and read.known("south") == 2
