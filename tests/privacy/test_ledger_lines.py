"""A ledger's lines: what a charge becomes, lines of earlier versions, and whose total they are counted in."""

import json

import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NoOpDpEvent

from fedsynth.errors import BadInput
from fedsynth.privacy import account, chain
from fedsynth.privacy.events import event_to_json
from fedsynth.privacy.ledger import Entry, Ledger, upgraded
from fedsynth.privacy.mechanism import Charge, Release, When

EVENT, WEAKER = GaussianDpEvent(2.0), GaussianDpEvent(3.0)
CHARGE = Charge(Release("noisy sum", "record", "distributed", EVENT, count=2), EVENT, WEAKER)


def test_a_charge_becomes_a_line_of_its_holder_and_round():
    expected = Entry(EVENT, "noisy sum", "a", "record", "distributed", 6, "run", WEAKER, round=4, session=2)
    assert Entry.of(CHARGE, "a", "run", When(4, 2), 3) == expected
    assert expected.what == "noisy sum, round 4, asked again in session 2"
    noted = Entry.of(CHARGE, "server", "run", When(note="not run"))
    assert (noted.release, noted.count, noted.round, noted.session) == ("noisy sum, not run", 2, 0, 0)


OLD = {
    "holder": "server",
    "unit": "client",
    "trust": "central",
    "event": event_to_json(EVENT),
    "count": 1,
    "run": "a",
    "time": "2024-01-01T00:00:00+00:00",
}
SPOKEN = {
    "noisy sum": ("noisy sum", 0, 0),
    "noisy sum, round 12": ("noisy sum", 12, 0),
    "noisy sum, round 2, asked again in session 3": ("noisy sum", 2, 3),
    "balance, asked again in session 4": ("balance", 0, 4),
    "sum, with a comma\nand a line": ("sum, with a comma\nand a line", 0, 0),
}


@pytest.mark.parametrize("what", SPOKEN)
def test_a_line_of_before_says_in_words_what_is_a_field_now(what):
    line = upgraded({**OLD, "what": what})
    assert (line["release"], line["round"], line["session"]) == SPOKEN[what]
    assert line["version"] == 1 and {name: line[name] for name in OLD} == OLD and line["what"] == what
    assert upgraded(line) == line and upgraded({"x": 1}) == {"x": 1}


def written(path, *lines):
    """A ledger's file with these lines, as an earlier version of fedsynth wrote them."""
    linked, previous = [], chain.FIRST
    for number, line in enumerate(lines):
        linked.append(chain.link(line, number, previous))
        previous = linked[-1]["hash"]
    chain.write_lines(path, linked)
    chain.write_head(path, len(linked), previous)
    return Ledger(path)


def test_a_ledger_of_before_is_read_and_goes_on(tmp_path):
    ledger = written(tmp_path / "ledger.jsonl", *({**OLD, "what": what} for what in SPOKEN))
    assert [(line.release, line.round, line.session) for line in ledger.lines()] == list(SPOKEN.values())
    assert {line.version for line in ledger.lines()} == {1} and ledger.verify() == []
    ledger.append(EVENT, what="noisy sum")
    assert [line.version for line in Ledger(ledger.path).lines()] == [1] * 5 + [2]
    assert ledger.epsilon(1e-5) == account.epsilon(account.repeat(EVENT, 6), 1e-5)


def test_a_line_of_a_later_version_is_refused_and_one_of_the_first_may_say_so(tmp_path):
    fields = {**OLD, "what": "x", "release": "x", "round": 0, "session": 0}
    assert written(tmp_path / "first.jsonl", {**fields, "version": 1}).lines()[0].version == 1
    later = written(tmp_path / "later.jsonl", {**fields, "version": 3})
    with pytest.raises(BadInput, match="line 0 has version 3; this fedsynth reads up to 2"):
        later.lines()
    with pytest.raises(BadInput, match="unknown or missing fields"):
        written(tmp_path / "odd.jsonl", {**fields, "version": 2, "price": 3}).lines()


def test_an_empty_ledger_costs_nothing():
    assert Ledger(None).epsilon(1e-5) == 0.0 and Ledger(None).answer(0.0).epsilon == 0.0


def test_the_total_is_counted_under_the_adjacency_that_is_asked_for():
    central, local = Ledger(None), Ledger(None)
    central.append(EVENT, what="sum")
    local.append(EVENT, what="message", trust="local")
    one, two = (account.epsilon(EVENT, 1e-5, adjacency=name) for name in ("add-remove", "replace-one"))
    assert one < two
    for adjacency, of_server, of_client in (("add-remove", one, two), ("replace-one", two, two)):
        assert central.epsilon(1e-5, adjacency=adjacency) == pytest.approx(of_server)
        assert local.epsilon(1e-5, adjacency=adjacency) == pytest.approx(of_client)


def test_unless_said_otherwise_a_total_holds_against_participants():
    ledger = Ledger(None)
    ledger.append_all([Entry(EVENT, "masked sum", trust="distributed", public=WEAKER)])
    assert ledger.answer(1e-5).epsilon == pytest.approx(account.epsilon(EVENT, 1e-5))
    assert ledger.answer(1e-5, public=True).epsilon == pytest.approx(account.epsilon(WEAKER, 1e-5))


def test_the_record_of_a_repair_is_no_release(tmp_path):
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append(EVENT, what="round 1")
    with path.open("ab") as file:
        file.write(b'{"index"')
    ledger = Ledger(path)
    ledger.append(LaplaceDpEvent(3.0), what="round 2")
    repair = ledger.lines()[1]
    assert repair.what.startswith("repair: 8 bytes") and repair.count == 0 and repair.cost == NoOpDpEvent()
    assert [line.index for line in ledger.releases()] == [0, 2] and ledger.verify() == []


def test_a_crash_at_the_first_byte_of_the_first_line_leaves_a_usable_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    chain.write_head(path, 0, chain.FIRST)
    path.write_bytes(b"{")
    Ledger(path).append(EVENT, what="round 1")
    assert Ledger(path).verify() == [] and Ledger(path).lines()[-1].what == "round 1"
    assert all(json.loads(row) for row in path.read_text().splitlines())


def test_what_a_ledger_wrote_itself_is_not_read_again(tmp_path, monkeypatch):
    ledger, reads, real = Ledger(tmp_path / "ledger.jsonl"), [], chain.read
    ledger.append(EVENT, what="round 1")
    monkeypatch.setattr(chain, "read", lambda path: (reads.append(path), real(path))[1])
    for number in range(3):
        ledger.append(EVENT, what=f"round {number + 2}")
        assert len(ledger.lines()) == number + 2
    assert reads == []
    Ledger(ledger.path).append(EVENT, what="another's")
    assert len(ledger.lines()) == 5 and len(reads) == 2
