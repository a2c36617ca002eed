"""What a server holds: its memory image and its files are searched for the secret key."""

import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsynth.rng import Rng
from fedsynth.transport import keys
from fedsynth.transport.he import Homomorphic
from fedsynth.transport.he_scheme import Keys
from fedsynth.transport.wire import Real
from he_secret import secret_words

DIM, CLIENTS = 3000, 2
SERVER = Path(__file__).with_name("he_server_process.py")

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="the system shows no memory images"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("keys") / "K"
    keys.create(out, sites=["A", "B"])
    return out


def pieces(held: Keys) -> list[bytes]:
    """32 bytes at many places of the secret key, as it is stored and as SEAL works with it; none of them by chance."""
    assert held.secret is not None
    whole = [held.secret, secret_words(held)]
    found = [text[at : at + 32] for text in whole for at in range(256, len(text) - 32, len(text) // 6)]
    return [piece for piece in found if len(set(piece)) > 12]


def image(process: int) -> bytes:
    """All memory of a process of ours that can be read, but for what it shares with files."""
    parts = []
    place = Path("/proc") / str(process)
    with (place / "maps").open() as maps, (place / "mem").open("rb", 0) as memory:
        for line in maps:
            span, rights, *_, inode = line.split()[:5]
            if "w" not in rights and inode != "0":
                continue
            low, high = (int(end, 16) for end in span.split("-"))
            try:
                memory.seek(low)
                parts.append(memory.read(high - low))
            except (OSError, ValueError, OverflowError):
                continue  # the kernel's own pages
    return b"\0".join(parts)


@contextmanager
def serving(folder: Path, *planted: Path) -> Iterator[subprocess.Popen]:
    options = [str(folder / "server"), str(DIM), str(CLIENTS), *map(str, planted)]
    process = subprocess.Popen(
        [sys.executable, str(SERVER), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(600)
        process.stdout.close()


def exchanged(process: subprocess.Popen, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Both sites' messages go to the server; the average that they open, and the plain one."""
    wire = Real(DIM, reach=1.0)
    sites = [
        Homomorphic(keys=keys.load_keys(folder / site / "he.secret")).fitted(wire, CLIENTS) for site in "AB"
    ]
    messages = [site.rounded(torch.randn(1, DIM), Rng(), np.arange(1)) for site in sites]
    for site, message in zip(sites, messages, strict=True):
        sealed = site.seal(message)
        process.stdin.write(struct.pack("<I", len(sealed)) + sealed)
    process.stdin.flush()
    (length,) = struct.unpack("<I", process.stdout.read(4))
    return sites[1].open(wire, process.stdout.read(length)), torch.cat(messages).mean(0)


def test_the_server_adds_up_and_its_memory_holds_no_secret_key(folder):
    secret = keys.load_keys(folder / "A" / "he.secret")
    with serving(folder) as process:
        opened, expected = exchanged(process, folder)
        held = image(process.pid)
    assert torch.equal(opened, expected)
    assert secret.public[1000:1032] in held  # the search would see what is there
    assert len(pieces(secret)) > 10
    assert not [piece for piece in pieces(secret) if piece in held]


def test_a_planted_secret_key_is_found(folder):
    secret = keys.load_keys(folder / "A" / "he.secret")
    with serving(folder, folder / "A" / "he.secret") as process:
        exchanged(process, folder)
        held = image(process.pid)
    assert sum(piece in held for piece in pieces(secret)) > 5


def test_the_servers_files_hold_no_secret_key(folder):
    found = pieces(keys.load_keys(folder / "A" / "he.secret"))
    served = b"\0".join(path.read_bytes() for path in (folder / "server").iterdir())
    site = (folder / "A" / "he.secret").read_bytes()
    assert not [piece for piece in found if piece in served]
    assert [piece for piece in found if piece in site]
