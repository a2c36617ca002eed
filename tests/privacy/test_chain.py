"""The file under a ledger: one spelling, one chain, what a crash may leave and what only somebody can have done."""

import hashlib
import json
import os

import pytest
from filelock import FileLock, Timeout

from fedsynth.privacy import chain

LINE = {"b": 1, "a": "é", "c": [1.5, None]}
SPELLED = b'{"a":"\\u00e9","b":1,"c":[1.5,null]}'


def chained(count=3):
    lines, previous = [], chain.FIRST
    for number in range(count):
        lines.append(chain.link({"what": f"round {number}"}, number, previous))
        previous = lines[-1]["hash"]
    return lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def synced(monkeypatch):
    """The files and folders that were waited for."""
    waited, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: waited.append(os.fstat(handle).st_ino) or real(handle))
    return waited


def test_a_hash_is_that_of_one_spelling_without_itself():
    assert chain.digest({**LINE, "hash": "ignored"}) == hashlib.sha256(SPELLED).hexdigest()
    with pytest.raises(ValueError):
        chain.digest({"a": float("nan")})


def test_a_line_knows_its_place_and_the_hash_before_it():
    line = chain.link({"what": "x"}, 4, "before")
    assert list(line) == ["index", "what", "previous", "hash"]
    assert (line["index"], line["previous"], line["hash"]) == (4, "before", chain.digest(line))


def test_what_was_written_is_read_and_the_chain_holds(path):
    lines = chained()
    written = chain.write_lines(path, lines[:2]) + chain.write_lines(path, lines[2:])
    assert chain.read(path) == chain.Contents(tuple(lines), b"", (), written)
    assert written == path.stat().st_size and path.read_bytes().endswith(b"\n")


def test_a_file_that_is_not_there_or_empty_has_nothing(path):
    assert chain.read(path) == chain.Contents()
    path.write_bytes(b"")
    assert chain.read(path) == chain.Contents()


def test_a_line_without_its_newline_is_torn_and_no_line(path):
    size = chain.write_lines(path, chained(1))
    with path.open("ab") as file:
        file.write(b'{"index":1')
    contents = chain.read(path)
    assert (len(contents.lines), contents.torn, contents.size, contents.problems) == (
        1,
        b'{"index":1',
        size,
        (),
    )
    path.write_bytes(b'{"index":0')
    assert chain.read(path) == chain.Contents((), b'{"index":0', (), 0)


@pytest.mark.parametrize("text", [b"nonsense", b"[1]", b"3", b"", b"\xff"])
def test_a_line_that_is_no_object_is_named_and_the_others_are_still_read(path, text):
    first, second, third = chained()
    chain.write_lines(path, [first])
    with path.open("ab") as file:
        file.write(text + b"\n")
    chain.write_lines(path, [second, third])
    contents = chain.read(path)
    assert contents.lines == (first, {}, second, third)
    assert contents.problems[0] == "line 1: it is not JSON; somebody changed it"
    assert len(contents.problems) == 3 and contents.size == path.stat().st_size


def test_an_empty_first_line_is_a_line(path):
    path.write_bytes(b"\n")
    contents = chain.read(path)
    assert contents.size == 1 and contents.lines == ({},) and contents.problems


def test_a_changed_line_is_told_from_a_moved_one():
    first, second, third = chained()
    changed = {**second, "what": "less"}
    assert chain.check([first, changed, third]) == [
        "line 1: its content does not match its hash; somebody changed it"
    ]
    assert chain.check([first, third]) == ["line 1: it does not follow line 0; lines were cut or reordered"]
    renamed = chain.link({"what": "x"}, 7, first["hash"])
    assert chain.check([first, renamed]) == ["line 1: it calls itself 7; lines were cut or reordered"]
    assert chain.check([chain.link({}, 0, "elsewhere")])[0].startswith("line 0: it does not follow")
    assert chain.check([first, second, third]) == []


def test_the_head_names_the_last_line_in_one_step(path, synced):
    chain.write_head(path, 3, "abc")
    head = chain.head_path(path)
    assert head.name == "ledger.jsonl.head" and head.read_bytes() == b'{"count":3,"hash":"abc"}'
    assert [entry.name for entry in path.parent.iterdir()] == [head.name]
    assert synced == [head.stat().st_ino, path.parent.stat().st_ino]
    synced.clear()
    chain.write_head(path, 4, "abd")
    assert json.loads(head.read_text())["count"] == 4
    assert synced == [head.stat().st_ino, path.parent.stat().st_ino]  # another file has the name now


def test_lines_are_on_disk_and_so_is_the_name_of_a_new_file(path, synced):
    chain.write_lines(path, chained(1))
    assert synced == [path.stat().st_ino, path.parent.stat().st_ino]
    synced.clear()
    chain.write_lines(path, chained(2)[1:])
    assert synced == [path.stat().st_ino]


def headed(path, lines, count, last):
    chain.write_head(path, count, last)
    return chain.check_head(path, tuple(lines))


def test_a_cut_tail_is_counted(path):
    lines = chained()
    assert headed(path, lines[:1], 3, lines[2]["hash"]) == [
        "the last 2 of 3 lines are missing; somebody cut them off"
    ]
    assert headed(path, lines, 3, lines[2]["hash"]) == []
    assert headed(path, lines, 2, lines[1]["hash"]) == []  # a crash between line and head
    assert headed(path, [], 0, chain.FIRST) == [] and headed(path, lines[:1], 0, chain.FIRST) == []


def test_a_rewritten_end_is_named(path):
    lines = chained()
    other = chain.link({"what": "less"}, 2, lines[1]["hash"])
    assert headed(path, [*lines[:2], other], 3, lines[2]["hash"]) == [
        "line 2: it is not the line that ledger.jsonl.head names; the end was rewritten"
    ]


def test_a_missing_head_is_only_harmless_before_the_first_line(path):
    assert chain.check_head(path, ()) == []
    assert chain.check_head(path, tuple(chained(1))) == [
        "ledger.jsonl.head is missing; a cut tail could not be noticed"
    ]


@pytest.mark.parametrize(
    "content", ["", "3", "[]", "{}", '{"count":1}', '{"count":"x","hash":"y"}', '{"count":null,"hash":"y"}']
)
def test_a_head_that_says_nothing_is_named(path, content):
    chain.head_path(path).write_text(content)
    assert chain.check_head(path, tuple(chained(1))) == [
        "ledger.jsonl.head cannot be read; a cut tail could not be noticed"
    ]


def torn(path, tail):
    lines = chained(2)
    chain.write_lines(path, lines[:1])
    with path.open("ab") as file:
        file.write(tail)
    contents = chain.read(path)
    return chain.finish_torn(path, contents, 1, lines[0]["hash"]), lines


def test_a_whole_line_that_lacks_its_newline_is_kept(path, synced):
    following = json.dumps(chained(2)[1]).encode()
    kept, lines = torn(path, following)
    assert kept and chain.read(path).lines == tuple(lines) and chain.read(path).torn == b""
    assert synced[-1] == path.stat().st_ino and len(synced) == 3


@pytest.mark.parametrize("tail", [b'{"index":1', b"[]", b"7", json.dumps(chained(3)[2]).encode()])
def test_what_is_no_next_line_is_cut_away(path, tail, synced):
    kept, lines = torn(path, tail)
    assert not kept and path.read_bytes().count(b"\n") == 1 and chain.read(path).lines == (lines[0],)
    assert synced[-1] == path.stat().st_ino and len(synced) == 3


@pytest.mark.parametrize(
    "change",
    [{"index": 5}, {"previous": "x"}, {"hash": "x"}, {"what": "y"}],
    ids=lambda change: next(iter(change)),
)
def test_a_line_that_is_not_the_next_is_seen(change):
    first, second = chained(2)
    assert not chain.check_next(second, 1, first["hash"])
    changed = {**second, **change}
    if "index" in change or "previous" in change:
        changed["hash"] = chain.digest(changed)
    assert chain.check_next(changed, 1, first["hash"])


def free(path):
    try:
        with FileLock(path.with_name(path.name + ".lock"), timeout=0):
            return True
    except Timeout:
        return False


def test_one_writer_at_a_time_and_the_lock_goes_with_it(path):
    with chain.exclusive(path):
        assert not free(path)
    assert free(path)
    with pytest.raises(RuntimeError), chain.exclusive(path):
        raise RuntimeError
    assert free(path)
