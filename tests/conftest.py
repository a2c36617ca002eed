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
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from fedsynth.data.clients import Clients, RawClients, encode_clients
from fedsynth.data.linked_tables import Linked
from fedsynth.data.schema import Schema
from fedsynth.federation.algorithm import Algorithm
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from samples import (
    IMAGE,
    KINDS,
    LINKED,
    LOCAL,
    MOMENTS,
    SIZES,
    SMALL,
    TABLE,
    TEXT,
    make_frame,
    make_histories,
)

ALONE = (
    "tests/deploy/test_real_try.py",
    "tests/deploy/test_real_inspect.py",
)  # with a federation of their own
FIRST = (  # minutes each, so that no worker is left alone with one at the end; then the other files
    "tests/deploy/test_real_",
    "tests/deploy/test_schedules.py",
    "tests/adversary/test_lying_server.py",
    *ALONE,
    "tests/deploy/",
    "tests/assess/audit/",
    "tests/inspection/",
    "tests/test_extend.py",
    "tests/recipes/",
    "tests/synthesis/",
)
LAST = ("tests/test_structure.py", "src/")  # thousands of short ones, which fill what is left
torch.set_num_threads(1)
# a busy machine makes no example wrong, and the examples are those of the tape
hypothesis_settings.register_profile(
    "tape",
    deadline=None,
    derandomize=os.environ.get("FEDSYNTH_TAPE", "1") == "1",
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("tape")
warnings.filterwarnings("ignore", module="opacus")


def _turn(file: str) -> int:
    """When a file's tests run; earlier ones take longer."""
    if file.startswith(LAST):
        return len(FIRST) + 1
    if file.startswith(ALONE):
        return FIRST.index(ALONE[0])
    return next((turn for turn, start in enumerate(FIRST) if file.startswith(start)), len(FIRST))


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: _turn(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each worker whole files in this order; those that share a federation of processes stay together."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            together = nodeid.startswith(FIRST[0]) and not nodeid.startswith(ALONE)
            return FIRST[0] if together else super()._split_scope(nodeid)

    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # the files with most tests are not the longest
    return ByFile(config, log)


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
    rows = RawClients(owner, 10, (), data=make_frame(owner).drop(columns="owner"))
    draw = np.random.default_rng(1)
    pixels = draw.integers(0, 256, (len(owner), 8, 8), dtype=np.uint8)
    images = RawClients(owner, 10, (), data=(pixels, draw.integers(0, 2, len(owner)).astype(str)))
    words = ("see", "the", "red", "cat", "run", "home")
    texts = tuple(" ".join(draw.choice(words, size)) for size in draw.integers(1, 6, len(owner)))
    linked = Linked(Schema.from_dict(LINKED)).owned(make_histories(SIZES))
    return {
        "linked": encode_clients(linked, Schema.from_dict(LINKED)),
        "text": encode_clients(RawClients(owner, 10, (), data=texts), Schema.from_dict(TEXT)),
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
