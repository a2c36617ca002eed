"""Files are replaced whole: a process that is killed at any moment leaves the old content or the new."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedsynth.data.atomic import OWNER_ONLY, replacing, write_file
from fedsynth.errors import BadInput, CannotWrite

SOURCE = Path(__file__).parents[2] / "src" / "fedsynth"
WRITERS = ["checkpoint", "progress", "head", "identity", "keys", "kit", "statement", "schema", "renewal"]

# Each writer writes twice into its folder; the second time the process dies at the rename ("kill"), or renames and
# waits for the disk are recorded, with the functions that they come from.
SCRIPT = """
import json, os, sys
from dataclasses import replace
from pathlib import Path

import torch

from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.deploy.nvflare.kits import write_json as write_kit
from fedsynth.deploy.site.state import RunFolder, SiteProgress
from fedsynth.federation.state import ServerState
from fedsynth.privacy import chain
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import statement
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import renewing
from fedsynth.transport import keys
from fedsynth.transport.he_scheme import Keys, Parameters
from fedsynth.transport.primitives import Identity


def checkpoint(place, turn):
    run = Folder(place)
    run.state.mkdir(exist_ok=True)
    run.checkpoint(ServerState(turn, {"a": torch.zeros(3)}), run.store())
    return run.state / "checkpoint.safetensors"


def progress(place, turn):
    RunFolder(place).save(SiteProgress(session=turn))
    return place / "standing.bin"


def head(place, turn):
    chain.write_head(place / "ledger.jsonl", turn, "hash")
    return place / "ledger.jsonl.head"


def identity(place, turn):
    keys._identity(place, str(turn), Identity(bytes(32)))
    return place / keys.IDENTITY


def key_file(place, turn):
    keys._store(place / keys.SECRET, Keys(Parameters("bfv", 4096, (54, 55), 41), bytes([turn]), bytes([turn])))
    return place / keys.SECRET


def kit(place, turn):
    write_kit(place / "kit.json", {"turn": turn})
    return place / "kit.json"


def privacy(place, turn):
    stated = statement(Ledger(None), delta=1e-5, adjacency="add-remove", unit="client")
    replace(stated, text=str(turn)).save(place / "privacy.json")
    return place / "privacy.json"


def schema(place, turn):
    Schema(columns=(Column("x", "integer", min=0, max=turn + 1),)).save(place / "schema.json")
    return place / "schema.json"


def renewal(place, turn):
    run = Folder(place)
    if not turn:
        (place / "synthetic.csv").write_text("0")
        Ledger(run.ledger).seal({})
    with renewing(run, "synthetic.csv") as path:
        path.write_text(str(turn))
    return place / "synthetic.csv"


WRITERS = {"checkpoint": checkpoint, "progress": progress, "head": head, "identity": identity, "keys": key_file,
           "kit": kit, "statement": privacy, "schema": schema, "renewal": renewal}
how, root = sys.argv[1], Path(sys.argv[2])
results = {}
for name, writer in WRITERS.items():
    place = root / name
    place.mkdir()
    target = writer(place, 0)
    before = target.read_bytes()
    events = []

    def hook(event, arguments):
        if event == "os.rename" and os.fspath(arguments[1]) == str(target):
            if how == "kill":
                os._exit(9)
            callers, frame = [], sys._getframe()
            while frame is not None:
                callers.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}")
                frame = frame.f_back
            events.append(["rename", callers])

    if how == "kill":
        child = os.fork()
        if not child:
            sys.addaudithook(hook)
            writer(place, 1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        whole = target.read_bytes() == before
        writer(place, 1)
        results[name] = [code, whole, target.read_bytes() != before]
    else:
        real, names = os.fsync, {}

        def noted(handle):
            events.append(["sync", os.readlink(f"/proc/self/fd/{handle}")])
            real(handle)

        if name == next(iter(WRITERS)):
            sys.addaudithook(hook)  # for good: it reads the target and the events of the writer at hand
        os.fsync = noted
        writer(place, 1)
        os.fsync = real
        results[name] = [events, str(target), target.stat().st_mode & 0o777]
print(json.dumps(results))
"""


def child(how, place):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how, str(place)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    return child("kill", tmp_path_factory.mktemp("killed"))


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return child("watch", tmp_path_factory.mktemp("watched"))


@pytest.mark.parametrize("writer", WRITERS)
def test_a_process_killed_between_write_and_rename_leaves_the_old_content(killed, writer):
    code, whole, written_later = killed[writer]
    assert (code, whole, written_later) == (9, True, True)


@pytest.mark.parametrize("writer", WRITERS)
def test_content_is_durable_before_the_rename_and_the_name_after_it(watched, writer):
    events, target, _ = watched[writer]
    rename = next(i for i, (kind, _) in enumerate(events) if kind == "rename")
    assert any(caller == "atomic.py:put" for caller in events[rename][1])
    folder = str(Path(target).parent)
    kind, path = events[rename - 1]
    assert kind == "sync" and Path(path).parent == Path(folder) and path != target
    assert events[rename + 1] == ["sync", folder]


@pytest.mark.parametrize("writer", ["checkpoint", "identity", "keys"])
def test_a_file_with_secrets_is_its_owners(watched, writer):
    assert watched[writer][2] == OWNER_ONLY


def test_nothing_else_renames_files_or_waits_for_the_disk():
    """`os.rename` and `Path.rename` of what exists already (an old key, a folder) are no replacements."""
    users = {
        str(file.relative_to(SOURCE)): word
        for file in SOURCE.rglob("*.py")
        for word in ("os.replace(", "fresh.replace(", "temporary.replace(", "fsync(")
        if word in file.read_text()
    }
    assert users == {"data/atomic.py": "fsync(", "simulator/store.py": "fsync("}


def test_a_block_that_fails_leaves_no_trace(tmp_path):
    path = tmp_path / "a.txt"
    write_file(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_the_rest_of_a_killed_process_with_our_number_is_no_obstacle(tmp_path):
    with replacing(tmp_path / "a.txt") as temporary:
        name = temporary.name
        temporary.write_text("x")
    (tmp_path / name).write_text("torn")
    write_file(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_the_mode_is_there_before_the_first_byte_whatever_the_umask(tmp_path, monkeypatch):
    modes, real = [], os.fdopen
    monkeypatch.setattr(
        os,
        "fdopen",
        lambda handle, *rest: modes.append(stat.S_IMODE(os.fstat(handle).st_mode)) or real(handle, *rest),
    )
    before = os.umask(0)
    try:
        write_file(tmp_path / "secret", b"x", OWNER_ONLY)
    finally:
        os.umask(before)
    assert modes == [OWNER_ONLY] and stat.S_IMODE((tmp_path / "secret").stat().st_mode) == OWNER_ONLY


def test_a_disk_error_is_a_sentence_for_users_and_an_error_of_the_system_for_sites(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite) as caught:
        write_file(tmp_path / "a", "x")
    assert (
        str(caught.value)
        == f"{tmp_path / 'a'}: cannot be written (No space left on device); choose another place"
    )
    assert isinstance(caught.value, BadInput) and caught.value.errno == 28 and not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(BadInput, match="create it first"):
        write_file(tmp_path / "no" / "a", "x")
