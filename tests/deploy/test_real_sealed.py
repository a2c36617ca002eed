"""Sealed sums over real processes: the server holds no secret key in memory or on disk, a key-holder opens the end."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from real_sites import COMMAND, SITES, Federation, command, until
from safetensors.torch import load_file

from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.deploy.participation import compose, terms_of
from fedsynth.federation.loop import learn_balance, run
from fedsynth.models.model import layouts
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.request import Request
from fedsynth.transport import keys
from he_secret import secret_words

pytest_plugins = ["real_sites"]
pytestmark = pytest.mark.recipe
ROUNDS = 25  # long enough for a look at the server's memory while it adds up
PAGE = bytes(2**16)


def without_zeros(memory: bytes) -> bytes:
    """The same with little left of pages never used, as most of a thread's stack is: they take long to search."""
    pages = (memory[at : at + len(PAGE)] for at in range(0, len(memory), len(PAGE)))
    return b"".join(bytes(64) if page == PAGE else page for page in pages)


def image(process: int) -> bytes:
    """All memory of a process of ours that can be written to."""
    parts, place = [], Path("/proc") / str(process)
    with (place / "maps").open() as maps, (place / "mem").open("rb", 0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            low, high = (int(end, 16) for end in span.split("-"))
            if "w" not in rights:
                continue
            try:
                memory.seek(low)
                parts.append(without_zeros(memory.read(high - low)))
            except (OSError, ValueError, OverflowError):
                continue
    return b"\0".join(parts)


@pytest.fixture(scope="module")
def finished(federation: Federation, tmp_path_factory):
    """A run over sealed sums, and the memory of the server's processes while it ran."""
    folder = tmp_path_factory.mktemp("sealed")
    keys.create(folder / "keys", sites=SITES)
    files = {}
    for name in SITES:
        files[name] = {
            "data": {"file": "sealed-rows.csv", "schema": str(federation.schema)},
            "budget": {"epsilon": 9.0, "delta": 1e-3},
            "policy": {
                "recipes": ["fvae"], "transports": ["he"], "minimum_cohort": 3, "without_privacy": True,
            },
            "keys": {"folder": str(folder / "keys" / name)},
            "state": {"folder": "sealed-state"},
            "test": {"seed": 5},
        }  # fmt: skip
        frame = pd.read_csv(federation.folder / name / "rows.csv").drop(columns="patient")
        frame.to_csv(federation.folder / name / "sealed-rows.csv", index=False)
    out = folder / "RUN"
    words = ["run", "--federation", federation.kits, "--schema", federation.schema, "--recipe", "fvae"]
    small = ["hidden=8", "latent=2", "momentum=0", "rate=1"]
    settings = [part for pair in small for part in ("--set", pair)]
    how = ["--no-privacy", "--transport", "he", "--rounds", ROUNDS, "--seed", "5", "--minimum-sites", "3"]
    with federation.with_site_files(files):
        process = federation.begin_run(
            out, words=[*COMMAND, *map(str, [*words, *settings, *how, "--out", out])]
        )
        runs = federation.kits / "server" / "runs"
        until(
            "a sealed state",
            lambda: any(map(_sealed, runs.glob("*/state/checkpoint.safetensors"))),
            every_s=0.05,
        )
        family = federation.family("server")
        looked_at = [*family["engine"], *family["job"]]
        for one in looked_at:
            one.suspend()  # else it may be over before it was read
        images = [image(one.pid) for one in looked_at]
        for one in looked_at:
            one.resume()
        told = process.communicate(timeout=1800)[0]
        yield out, folder / "keys", process.returncode, told, images


def _sealed(checkpoint: Path) -> bool:
    try:
        return "memory/sealed" in load_file(checkpoint)
    except Exception:  # replaced while it was read
        return False


def pieces(folder: Path) -> list[bytes]:
    """32 bytes at many places of the secret key, as it is stored and as it is worked with."""
    held = keys.load_keys(folder / "ada" / keys.SECRET)
    whole = [held.secret, secret_words(held)]
    found = [text[at : at + 32] for text in whole for at in range(256, len(text) - 32, len(text) // 6)]
    return [piece for piece in found if len(set(piece)) > 12]


def test_the_server_s_processes_hold_no_secret_key_while_they_add_up(finished):
    _, folder, code, told, images = finished
    assert code == 0, told
    assert "keys open" in told
    public = keys.load_keys(folder / "server" / keys.PUBLIC).public
    assert len(images) >= 2 and any(
        public[1000:1032] in held for held in images
    )  # the search sees what is there
    searched = pieces(folder)
    assert len(searched) > 10
    assert not [piece for piece in searched for held in images if piece in held]


def test_the_server_s_files_hold_no_secret_key_and_no_open_generator(finished, federation: Federation):
    _, folder, *_ = finished
    searched = pieces(folder)
    for path in (federation.kits / "server").rglob("*"):
        if path.is_file():
            held = path.read_bytes()
            assert not any(piece in held for piece in searched), path
    site = (folder / "ada" / keys.SECRET).read_bytes()
    assert any(piece in site for piece in searched)


def test_the_statement_says_what_one_colluding_client_can_do(finished):
    out, *_ = finished
    told = json.loads((out / "privacy.json").read_text())
    assert any("any one client that helps the server" in caveat for caveat in told["caveats"])
    assert not (out / "generator.safetensors").exists() and (out / "generator.sealed").exists()


def test_what_a_key_holder_opens_is_what_the_simulator_computes(finished, federation: Federation, tmp_path):
    out, folder, *_ = finished
    made, secret = tmp_path / "generator.safetensors", folder / "cern" / keys.SECRET
    words = ["keys", "open", str(out), "--key", str(secret), "--out", str(made)]
    done = command(*words)
    assert done.returncode == 0, done.stderr
    schema = Schema.load(federation.schema)
    request = Request.from_toml(tomllib.loads((out / "recipe.toml").read_text()))
    terms = terms_of(request, schema, request.arguments, clients=3, minimum_cohort=3)
    algorithm, rng = compose(terms, schema, keys.load_keys(secret)), Rng(5)
    frames = [pd.read_csv(federation.folder / name / "sealed-rows.csv") for name in SITES]
    owner = np.repeat(np.arange(3), [len(frame) for frame in frames])
    raw = RawClients(owner, 3, SITES, data=pd.concat(frames, ignore_index=True))
    link = InProcess(encode_clients(raw, schema), rng, chunk=1)
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)
    state = run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, ROUNDS)
    shapes = layouts(algorithm.model)["decoder"]
    opened = load_file(made)
    for name, expected in shapes.split(state.parts["decoder"]).items():
        torch.testing.assert_close(opened[f"decoder.{name}"], expected, rtol=0, atol=1e-5)
