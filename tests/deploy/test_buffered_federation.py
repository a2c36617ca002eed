"""Buffers over sites: the slowest is not waited for, everybody pays for its own uses, and a job may end anywhere."""

import json
import threading
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import tomli_w

from fedsynth.cli.main import main
from fedsynth.data.schema import Schema
from fedsynth.deploy.job import JobEnded
from fedsynth.deploy.link.messages import Result, Work, read
from fedsynth.deploy.server_job import ServerJob
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.errors import BadInput, Incompatible
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.queue_channel import QueueChannel
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.request import Request
from fedsynth.transport import keys

NAMES = ("ada", "bern", "cern")
SCHEMA = {
    "version": 1, "kind": "table", "label": "ill",
    "columns": [{"name": "age", "type": "integer", "min": 0, "max": 99},
                {"name": "ill", "type": "binary", "categories": ["no", "yes"]}],
}  # fmt: skip
VAE = {"hidden": (4,), "latent": 2, "epochs": 1, "buffer": 3, "concurrency": 6, "rounds": 5}
FEW = {**VAE, "buffer": 2, "concurrency": 3, "momentum": 0.0}  # each site is one client


class Paced(QueueChannel):
    """Sites in this process; one of them works only when four other messages have been answered."""

    def __init__(self, handles, slow, left):
        super().__init__(handles)
        self.slow, self.left, self.turn, self.seen = slow, left, 0, []
        self.waiting, self.most = Counter(), Counter()  # pieces of work at each site

    def send(self, site, payload):
        message = read(payload)
        if isinstance(message, Work) and message.job == "round":
            self.waiting[site] += 1
            self.most[site] = max(self.most[site], self.waiting[site])
        super().send(site, payload)

    def receive(self, timeout_s):
        self.left -= 1
        if self.left < 0:
            raise JobEnded
        later = [site == self.slow and read(payload).kind == "work" for site, payload in self._queue]
        self.turn += 1
        if any(later) and not all(later):
            chosen = self._queue[later.index(self.turn % 5 == 0)]
            self._queue.remove(chosen)
            self._queue.appendleft(chosen)
        got = super().receive(timeout_s)
        if got is not None:
            message = read(got[1])
            self.seen.append((got[0], message))
            self.waiting[got[0]] -= isinstance(message, Result) and self.waiting[got[0]] > 0
        return got


class World:
    """Three sites, of which cern is slow."""

    def __init__(self, folder, *, recipe, transport="clear", column=None, seed=None):
        self.folder, self.out = folder, folder / "runs" / "r1"
        if transport != "clear":
            keys.create(folder / "keys", sites=NAMES, clients=3)
        unit = "record" if recipe == "pp_fedgan" else "client"
        for number, name in enumerate(NAMES):
            (folder / name).mkdir()
            draw = np.random.default_rng(number)
            rows = {
                "patient": [f"p{number}-{row // 4}" for row in range(20)],
                "age": draw.integers(20, 80, 20),
            }
            frame = pd.DataFrame({**rows, "ill": draw.choice(["no", "yes"], 20)})
            (frame if column else frame.drop(columns="patient")).to_csv(
                folder / name / "rows.csv", index=False
            )
            (folder / name / "schema.json").write_text(json.dumps(SCHEMA))
            settings = {
                "data": {"file": "rows.csv", "schema": "schema.json"}
                | ({"client_column": column} if column else {}),
                "budget": {"epsilon": 100.0, "delta": 1e-2, "unit": unit},
                "policy": {"recipes": [recipe], "transports": [transport], "minimum_cohort": 2},
                **({"keys": {"folder": str(folder / "keys" / name)}} if transport != "clear" else {}),
                "state": {"folder": "state"},
            } | ({} if seed is None else {"test": {"seed": seed}})
            (folder / name / "site.toml").write_text(tomli_w.dumps(settings))
        self.request = {
            "recipe": recipe,
            "transport": transport,
            "seed": seed,
            "delta": 1e-3,
            "epsilon": 20.0,
        }
        self.news, self.channel = [], None

    def conduct(self, left=10**9, minimum=2, **changes):
        sites = {name: SiteFile.load(self.folder / name / "site.toml").site().handle for name in NAMES}
        self.channel = Paced(sites, "cern", left)
        request = Request(**{**self.request, "accept": ("delta",), **changes}).to_toml()
        asked = {"run": "r1", "request": request, "schema": Schema.from_dict(SCHEMA).to_dict()}
        asked |= {"minimum_sites": minimum, "round_s": 60.0}
        tell = lambda line=None, **news: self.news.append(news)  # noqa: E731
        ServerJob().conduct(asked, self.channel, self.out, tell, threading.Event())

    def uses(self):
        """How often each client was charged for each version that it began with, by the sites' own books."""
        found = Counter()
        for name in NAMES:
            ledger = Ledger(self.folder / name / "state" / "ledger.jsonl")
            assert ledger.verify() == []
            for line in (line for line in ledger.lines() if ", round " in line.what):
                found[f"{name}, {line.holder}", line.what.rpartition(", round ")[2]] += 1
        return found

    def server_uses(self):
        lines = Ledger(self.out / "ledger.jsonl").lines()
        return Counter(line.holder for line in lines if ", round " in line.what)

    def answers(self):
        return [(site, message) for site, message in self.channel.seen if isinstance(message, Result)]


def command(*words) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("sealed"), recipe="fvae", transport="he")
    world.conduct(trust="local", arguments={**FEW, "rounds": 6})
    return world


def test_a_sealed_buffer_ends_in_a_statement_and_a_model_that_a_key_holder_opens(sealed, tmp_path):
    told = json.loads((sealed.out / "privacy.json").read_text())
    assert told["private"] and 0 < told["epsilon"] <= 20
    assert (told["unit"], told["trust"], told["adjacency"]) == ("client", "local", "zero-out")
    secret = sealed.folder / "keys" / "ada" / keys.SECRET
    assert command("keys", "open", sealed.out, "--key", secret, "--out", tmp_path / "g") == 0
    assert len(Folder(sealed.out).read_history()) == 6


def test_the_slow_site_is_used_less_often_and_never_waited_for(sealed):
    by_site = Counter(site for site, message in sealed.answers() if message.blob)
    assert by_site["cern"] < min(by_site["ada"], by_site["bern"])
    late = [message.version for site, message in sealed.answers() if site == "cern" and message.blob]
    history = Folder(sealed.out).read_rounds()
    assert late and all(line["clients"] == 2 and line["dropped"] == 0 for line in history)
    uses = sealed.server_uses()
    assert len(uses) == 3 and sum(uses.values()) == 12  # two a version, and none for who is still at work


def test_a_site_that_answers_from_an_old_version_is_in_a_later_one(sealed):
    """The slow site began with version 0, and the server had stepped before its answer came."""
    order = [(site, message.version) for site, message in sealed.answers() if message.blob]
    reached = [max(version for _, version in order[: at + 1]) for at in range(len(order))]
    assert any(
        site == "cern" and version < then for (site, version), then in zip(order, reached, strict=True)
    )


def test_every_use_is_in_the_books_of_site_and_server(sealed):
    paid, uses = sealed.uses(), sealed.server_uses()
    assert set(paid.values()) == {1}
    by_site = Counter(holder.partition(",")[0] for holder, _ in paid)
    assert all(by_site[name] >= uses[str(number)] for number, name in enumerate(NAMES))
    assert sum(by_site.values()) - sum(uses.values()) <= 1  # of whoever was still at work


@pytest.mark.parametrize(("left", "transport"), [(14, "clear"), (17, "clear"), (20, "clear"), (20, "he")])
def test_a_job_that_ends_in_the_middle_of_a_buffer_charges_nobody_twice(left, transport, tmp_path):
    world = World(tmp_path, recipe="fvae", transport=transport)
    settings = {"trust": "local", "arguments": FEW}
    with pytest.raises(JobEnded):
        world.conduct(left, **settings)
    before = world.uses()
    world.conduct(**settings)
    paid = world.uses()
    assert before and set(paid.values()) == {1} and set(before) <= set(paid)
    assert sum(world.server_uses().values()) == 2 * VAE["rounds"]
    assert sum(paid.values()) <= 2 * VAE["rounds"] + 1  # all that was charged was used, or is under way
    told = json.loads((world.out / "privacy.json").read_text())
    assert told["private"] and told["trust"] == "local" and told["epsilon"] <= 20


def test_noise_at_the_server_goes_over_buffers_of_many_clients(tmp_path):
    world = World(tmp_path, recipe="dpd_fvae", column="patient")
    world.conduct(arguments={**VAE, "separation": 2})
    told = json.loads((world.out / "privacy.json").read_text())
    assert told["private"] and told["epsilon"] <= 20 and told["adjacency"] == "zero-out"
    works = [message for site, message in world.answers() if message.tensors["messages"].shape[1] != 2]
    assert all(len(message.tensors["ids"]) == 1 for message in works)
    assert all(line["clients"] == 3 for line in Folder(world.out).read_rounds())
    most = max(world.server_uses().values())
    assert most <= 2 and max(Counter(holder for holder, _ in world.uses()).values()) <= 2


@pytest.mark.parametrize("left", [16, 22])
def test_with_noise_at_the_server_a_lost_job_costs_uses_and_no_more_than_was_agreed(left, tmp_path):
    world = World(tmp_path, recipe="dpd_fvae", column="patient")
    with pytest.raises(JobEnded):
        world.conduct(left, arguments={**VAE, "turns": 3})
    world.conduct(arguments={**VAE, "turns": 3})
    told = json.loads((world.out / "privacy.json").read_text())
    assert told["private"] and told["epsilon"] <= 20
    assert max(Counter(holder for holder, _ in world.uses()).values()) <= 3


def test_when_turns_run_out_training_ends_with_a_sentence(tmp_path):
    world = World(tmp_path, recipe="fvae")
    world.conduct(trust="local", arguments={**FEW, "turns": 2})
    told = [news["sites"]["server"] for news in world.news if "server" in news.get("sites", {})]
    assert told[-1] == "after round 3: too few clients have budget left to fill a buffer; training ends"
    assert (world.out / "generator.safetensors").exists()


def test_a_buffer_smaller_than_what_sites_open_is_refused(tmp_path):
    world = World(tmp_path, recipe="fvae", transport="he")
    with pytest.raises(
        BadInput, match="buffer=2: sites open no sealed average over fewer than 3 clients; set buffer=3"
    ):
        world.conduct(minimum=3, trust="local", arguments=FEW)


def test_masked_sums_need_an_agreed_cohort(tmp_path):
    world = World(tmp_path, recipe="pp_fedgan", transport="secagg")
    with pytest.raises(
        Incompatible, match="opens sums of an agreed cohort, and a buffer takes who comes first"
    ):
        world.conduct()


def test_works_of_many_clients_are_not_all_sent_to_a_site_at_once(tmp_path):
    world = World(tmp_path, recipe="dpd_fvae", column="patient")
    world.conduct(arguments={**VAE, "rounds": 2, "concurrency": 12})
    assert set(world.channel.most.values()) == {2}
