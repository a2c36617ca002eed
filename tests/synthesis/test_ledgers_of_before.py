"""Ledgers whose lines had no version say rounds and sessions in words: they cost and decide what they did."""

import json
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.deploy.site.payer import SitePayer
from fedsynth.errors import BadInput
from fedsynth.federation.client_uses import ClientUses
from fedsynth.privacy import chain
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.events import event_to_json
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.privacy.mechanism import When
from fedsynth.privacy.statement import statement
from fedsynth.rng import Rng
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.resume_uses import with_paid_uses

NOISE = {"type": "GaussianDpEvent", "noise_multiplier": 5.0}
REST = "noisy update, rounds 4 to 6, planned and not run: what was released ended training"
SAMPLED = {
    "type": "PoissonSampledDpEvent",
    "sampling_probability": 0.5,
    "event": {**NOISE, "noise_multiplier": 4.0},
}
# what, holder, event, count, run, and the release, round and session that the words stand for
LINES = [
    ("bounds", "server", {**NOISE, "noise_multiplier": 9.0}, 1, "schema", ("bounds", 0, 0)),
    ("class balance", "server", {**NOISE, "noise_multiplier": 8.0}, 1, "run", ("class balance", 0, 0)),
    ("noisy update, round 1", "0", NOISE, 1, "run", ("noisy update", 1, 0)),
    ("noisy update, round 1", "1", NOISE, 1, "run", ("noisy update", 1, 0)),
    ("noisy update, round 2", "1", NOISE, 1, "run", ("noisy update", 2, 0)),
    ("noisy update, round 2", "2", NOISE, 1, "run", ("noisy update", 2, 0)),
    ("noisy update, round 3", "0", NOISE, 1, "run", ("noisy update", 3, 0)),
    ("noisy update, round 3", "2", NOISE, 1, "run", ("noisy update", 3, 0)),
    (REST, "client", NOISE, 2, "run", (REST, 0, 0)),
    ("noisy sum, round 2, asked again in session 3", "server", SAMPLED, 1, "site", ("noisy sum", 2, 3)),
    (
        "class balance, , asked again in session 2",
        "server",
        {**NOISE, "noise_multiplier": 8.0},
        1,
        "site",
        ("class balance", 0, 2),
    ),
    ("hashes of the released files", "server", {"type": "NoOpDpEvent"}, 0, "", None),
]
LAST = (
    "9f5239106573607f64a9e1dcc9fa331cd0beea8acf17392c71151d8fa1d8ccfe"  # the hash that the old writer gave it
)


def old_file(path, lines):
    """Write lines without a version, as fedsynth did."""
    previous, text = chain.FIRST, ""
    for index, line in enumerate(lines):
        placed = chain.link(line, index, previous)
        previous = placed["hash"]
        text += json.dumps(placed, sort_keys=True, separators=(",", ":")) + "\n"
    path.write_text(text)
    chain.head_path(path).write_text(json.dumps({"count": len(lines), "hash": previous}))
    return Ledger(path)


def old_lines():
    for number, (what, holder, event, count, run, _) in enumerate(LINES):
        fields = {
            "what": what,
            "holder": holder,
            "unit": "client",
            "trust": "central",
            "count": count,
            "run": run,
        }
        files = {} if count else {"files": {"privacy.json": "ab" * 32}}
        yield {**fields, "event": event, **files, "time": f"2026-05-01T08:00:{number + 1:02d}+00:00"}


@pytest.fixture
def old(tmp_path):
    return old_file(tmp_path / "ledger.jsonl", list(old_lines()))


def test_an_old_ledger_is_whole_and_costs_what_it_did(old):
    assert old.verify() == [] and old.head == LAST
    assert old.epsilon(1e-5) == pytest.approx(1.8630551335646703, abs=1e-9)
    assert old.files() == {"privacy.json": "ab" * 32}


@pytest.mark.parametrize("number", range(len(LINES) - 1))
def test_words_are_read_as_the_fields_that_they_stood_for(old, number):
    line = old.lines()[number]
    assert (line.version, (line.release, line.round, line.session)) == (1, LINES[number][-1])
    assert line.what == LINES[number][0]


def test_new_lines_follow_old_ones_and_the_whole_is_verified(old):
    written = old.append_all([Entry(GaussianDpEvent(5.0), "noisy update", "1", run="run", round=4)])[0]
    assert (written.version, written.what, written.round) == (2, "noisy update, round 4", 4)
    assert Ledger(old.path).verify() == [] and Ledger(old.path).lines()[-1] == written
    assert Ledger(old.path).lines()[-2].hash == written.previous == LAST


def test_a_line_of_a_later_version_is_refused(old):
    line = {**json.loads(old.path.read_text().splitlines()[0]), "version": 3}
    path = old.path.with_name("later.jsonl")
    chain.write_lines(path, [chain.link({k: v for k, v in line.items() if k != "hash"}, 0, chain.FIRST)])
    chain.write_head(path, 0, chain.FIRST)
    with pytest.raises(BadInput, match="line 0 has version 3; this fedsynth reads up to 2"):
        Ledger(path).lines()


ENTRIES = st.lists(
    st.builds(
        Entry,
        st.just(GaussianDpEvent(6.0)),
        st.sampled_from(["noisy update", "rows with age above 50", "x, round", "round 3", "a, round 1, b"]),
        st.sampled_from(["server", "client", "0", "3", "client ada"]),
        st.just("client"),
        st.sampled_from(["central", "local"]),
        st.integers(0, 3),
        st.sampled_from(["run", "other"]),
        round=st.integers(0, 4),
        session=st.integers(0, 2),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(ENTRIES)
def test_the_same_releases_in_words_and_in_fields_are_told_and_priced_alike(tmp_path_factory, entries):
    place = tmp_path_factory.mktemp("ledger")
    new = Ledger(place / "new.jsonl")
    new.append_all(entries)
    gone = ("version", "release", "round", "session", "hash", "previous", "index")
    stored = [json.loads(text) for text in new.path.read_text().splitlines()] if entries else []
    words = [{name: value for name, value in line.items() if name not in gone} for line in stored]
    old = old_file(place / "old.jsonl", words)
    assert [line.entry for line in old.lines()] == entries == [line.entry for line in new.lines()]
    terms = {"delta": 1e-5, "unit": "client"}
    assert statement(old, **terms) == statement(new, **terms)
    for line, told in zip(old.lines(), words, strict=True):  # as it was decided by words
        number = told["what"].partition(", asked again")[0].rpartition(", round ")[2]
        assert line.round == (int(number) if number.isdigit() and ", round " in told["what"] else 0)


def both(tmp_path, entries):
    new = Ledger(None)
    new.append_all(entries)
    words = ("what", "holder", "unit", "trust", "count", "run")
    lines = [
        {**{name: getattr(e, name) for name in words}, "event": event_to_json(e.event), "time": ""}
        for e in entries
    ]
    return new, old_file(tmp_path / "ledger.jsonl", lines)


@pytest.mark.parametrize("version", range(4))
def test_a_server_started_again_counts_the_same_uses(build, tmp_path, version):
    algorithm = build("dpd_fvae", buffer=2, concurrency=4, turns=3)
    (charge,) = algorithm.charges()
    used = [(1, "4"), (1, "5"), (2, "5"), (2, "6"), (3, "4"), (3, "6")]
    entries = [Entry.of(charge, client, "run", When(number)) for number, client in used]
    state = replace(algorithm.init(Rng(1)), version=version)
    counts = [
        ClientUses.from_tensors(
            with_paid_uses(state, algorithm, ledger, "run", asked_again=True).standing, 10
        ).uses.tolist()
        for ledger in both(tmp_path, entries)
    ]
    local = charge.release.trust == "local"
    assert (
        counts[0]
        == counts[1]
        == [
            sum(client == str(number) and (turn <= version or not local) for turn, client in used)
            for number in range(10)
        ]
    )


def test_a_payer_and_a_site_owe_the_same(build, tmp_path):
    algorithm = build("dpd_fvae")
    charge = algorithm.charges()[0]
    entries = [Entry.of(charge, charge.holder, "run", When(number)) for number in (1, 2)]
    entries.append(Entry.of(charge, charge.holder, "run", When(2, session=3)))
    new, old = both(tmp_path, entries)
    assert Payer(new, "run")._rounds_paid(charge) == Payer(old, "run")._rounds_paid(charge)
    budget, names = Budget(1e9, 1e-5, charge.release.unit), ("a", "b")
    sites = [SitePayer("run", algorithm, ledger, budget, None, names) for ledger in (new, old)]
    assert [site.rounds for site in sites] == [3, 3]
    owed = [site.pay(algorithm, 3, np.array([0, 1])) for site in sites]
    assert owed[0] == owed[1] and 2 not in [entry.round for entry in owed[0]]
    assert [site.pay(algorithm, 1, np.array([0]), 3) for site in sites] == [[], []]
