"""Small clients, small models and small runs for the tests of every room."""

from __future__ import annotations

import os
import random
import warnings
from hashlib import sha256

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth.data.clients import Clients, RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.federation.algorithm import Algorithm
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from samples import IMAGE, KINDS, LOCAL, MOMENTS, SIZES, SMALL, TABLE, TEXT, make_frame

torch.set_num_threads(1)
warnings.filterwarnings("ignore", module="opacus")


class Tape:
    """Random bytes in the place of the operating system's, the same ones for the same test.

    Noise that a test draws is then today's as it was yesterday's. `FEDSYNTH_TAPE=2 make test` plays another one.
    """

    def rewind(self, name: str) -> None:
        seed = sha256(f"{os.environ.get('FEDSYNTH_TAPE', '1')} {name}".encode()).digest()
        self._bytes = np.random.Generator(np.random.SFC64(int.from_bytes(seed, "little"))).bytes
        torch.manual_seed(int.from_bytes(seed[:7], "little"))
        np.random.seed(int.from_bytes(seed[:4], "little"))
        random.seed(seed)

    def __call__(self, count: int) -> bytes:
        return self._bytes(count)


@pytest.fixture(scope="session", autouse=True)
def tape():
    playing, real = Tape(), os.urandom
    playing.rewind("session")
    os.urandom = playing
    yield playing
    os.urandom = real


@pytest.fixture(scope="module", autouse=True)
def tape_of_the_file(tape, request):
    tape.rewind(request.node.nodeid)


@pytest.fixture(autouse=True)
def tape_of_the_test(tape, tape_of_the_file, request):
    tape.rewind(request.node.nodeid)


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema.from_dict(TABLE)


@pytest.fixture(scope="session")
def image_schema() -> Schema:
    return Schema.from_dict(IMAGE)


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    """40 clients with three rows each."""
    return make_frame(np.repeat(np.arange(40), 3))


@pytest.fixture(scope="session")
def ten() -> dict[str, Clients]:
    """Ten clients of unequal size, one of them empty, with rows or with images."""
    owner = np.repeat(np.arange(10), SIZES)
    rows = RawClients(owner, 10, (), frame=make_frame(owner).drop(columns="owner"))
    draw = np.random.default_rng(1)
    pixels = draw.integers(0, 256, (len(owner), 8, 8), dtype=np.uint8)
    images = RawClients(owner, 10, (), images=pixels, labels=draw.integers(0, 2, len(owner)).astype(str))
    words = ("see", "the", "red", "cat", "run", "home")
    texts = tuple(" ".join(draw.choice(words, size)) for size in draw.integers(1, 6, len(owner)))
    return {
        "text": encode_clients(RawClients(owner, 10, (), texts=texts), Schema.from_dict(TEXT)),
        "table": encode_clients(rows, Schema.from_dict(TABLE)),
        "image": encode_clients(images, Schema.from_dict(IMAGE)),
    }


def build(
    name: str, kind: str = "table", *, private: bool = True, clients: int = 10, **settings: object
) -> Algorithm:
    """A small algorithm, its noise given and not calibrated."""
    recipe = recipe_named(name)
    task = Task(Schema.from_dict(KINDS[kind]), clients, private=private)
    wanted = {
        **SMALL,
        "rounds": 3,
        "rate": 0.8,
        "noise_multiplier": 1.0,
        "records": 38,
        **LOCAL,
        **MOMENTS,
        **settings,
    }
    known = recipe.arguments()
    return recipe.build(task, recipe.values({key: value for key, value in wanted.items() if key in known}))


@pytest.fixture(scope="session", name="build")
def build_fixture():
    return build
