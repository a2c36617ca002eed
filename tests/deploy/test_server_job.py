import json
import shutil
import threading
import time

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch
from dp_accounting import GaussianDpEvent
from safetensors.torch import load_file

from fedsynth.cli.sample import write_sample
from fedsynth.deploy.copies import note_copy
from fedsynth.deploy.environment import NOTICES
from fedsynth.deploy.job import JobEnded, Regroup
from fedsynth.deploy.link.ledger_heads import LedgerHeads
from fedsynth.deploy.link.patience import TooFewSites
from fedsynth.deploy.server_job import ServerJob
from fedsynth.deploy.site.activity_log import ActivityLog
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.errors import Incompatible
from fedsynth.privacy.chain import head_path
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.queue_channel import QueueChannel
from fedsynth.synthesis.released_files import checked_run, problems_of
from fedsynth.synthesis.synthesizer import Synthesizer

SITES = ("ada", "bern", "cern")
TOLD = "told by the server"
SCHEMA = {
    "version": 1,
    "kind": "table",
    "label": "ill",
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 99},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ],
}


def site_file(folder, number, *, seed=3, epsilon=1000.0, recipes=("dpd_fvae",), column="patient"):
    """A folder with rows, schema and site.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(number)
    rows = {"patient": [f"p{number}-{row // 4}" for row in range(40)], "age": rng.integers(20, 90, 40)}
    frame = pd.DataFrame({**rows, "ill": np.where(rng.random(40) < 0.5, "yes", "no")})
    (frame if column else frame.drop(columns="patient")).to_csv(folder / "rows.csv", index=False)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    keys = {
        "data": {"file": "rows.csv", "schema": "schema.json"} | ({"client_column": column} if column else {}),
        "budget": {"epsilon": epsilon, "delta": 1e-2},
        "policy": {"recipes": list(recipes), "minimum_cohort": 1},
        "state": {"folder": "state"},
    } | ({} if seed is None else {"test": {"seed": seed}})
    (folder / "site.toml").write_text(tomli_w.dumps(keys))
    return folder / "site.toml"


class Fragile(QueueChannel):
    """The engine ends the job after so many messages."""

    def __init__(self, sites, left):
        super().__init__(sites)
        self.left = left

    def receive(self, timeout_s):
        self.left -= 1
        if self.left < 0:
            raise JobEnded
        return super().receive(timeout_s)


@pytest.fixture
def world(tmp_path):
    """Sites in this process, and a way to conduct a run over them."""

    class World:
        run = tmp_path / "runs" / "r1"
        news: list[dict] = []
        lines: list[dict] = []

        def files(self, **more):
            return {name: site_file(tmp_path / name, number, **more) for number, name in enumerate(SITES)}

        def channel(self, files, left=10**9):
            """Sites as after a restart of their processes."""
            sites = {name: SiteFile.load(path).site().handle for name, path in files.items()}
            return Fragile(sites, left)

        def tell(self, line=None, **news):
            self.lines += [] if line is None else [line]
            self.news += [news] if news else []

        def conduct(self, channel, *, run=None, regroup=None, minimum=2, **request):
            asked = {
                "run": (run or self.run).name,
                "minimum_sites": minimum,
                "round_s": 60.0,
                "schema": SCHEMA,
                "request": {
                    "recipe": "dpd_fvae", "epsilon": 8.0, "delta": 1e-2, "rounds": 4, "seed": 3,
                    "arguments": {"hidden": [8], "latent": 2, "epochs": 1}, **request,
                },
            }  # fmt: skip
            ServerJob().conduct(asked, channel, run or self.run, self.tell, regroup or threading.Event())

    return World()


def test_a_job_that_ends_anywhere_is_continued_to_the_same_result(world, tmp_path):
    files = world.files()
    whole = tmp_path / "runs" / "whole"
    channel = world.channel(files)
    world.conduct(channel, run=whole)
    messages = 10**9 - channel.left
    for name in SITES:  # as if nothing had happened
        shutil.rmtree(tmp_path / name / "state")
    (tmp_path / "runs" / "ledgers.json").unlink()
    ended = 0
    for left in range(2, messages + 30, 3):
        try:
            world.conduct(world.channel(files, left))
            break
        except JobEnded:
            ended += 1
    assert ended >= 2
    first, second = (load_file(run / "generator.safetensors") for run in (whole, world.run))
    for name, values in first.items():
        torch.testing.assert_close(second[name], values, rtol=0, atol=1e-6)
    history = [json.loads(line) for line in (world.run / "history.jsonl").read_text().splitlines()]
    assert [line["version"] for line in history] == [1, 2, 3, 4]
    told = json.loads((world.run / "privacy.json").read_text())
    assert told["simulation"] and not told["private"]


def test_seeded_sites_make_a_simulation_even_if_the_server_is_not_seeded(world):
    world.conduct(world.channel(world.files()), seed=None, rounds=1)
    assert json.loads((world.run / "privacy.json").read_text())["simulation"]


def test_with_system_noise_the_statement_is_private_and_says_what_the_server_knows(world):
    world.conduct(world.channel(world.files(seed=None)), seed=None, rounds=2)
    told = json.loads((world.run / "privacy.json").read_text())
    assert told["private"] and told["epsilon"] <= 8
    assert any("The server knows how many clients each site has" in caveat for caveat in told["caveats"])
    assert {path.name for path in ServerJob().results(world.run)} == {
        "recipe.toml", "schema.json", "ledger.jsonl", "ledger.jsonl.head", "history.jsonl", "privacy.json",
        "generator.safetensors",
    }  # fmt: skip


def test_the_server_seals_and_the_coordinators_copy_is_whole(world, tmp_path):
    world.conduct(world.channel(world.files(seed=None)), seed=None, rounds=1)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in ServerJob().results(world.run):
        shutil.copy(path, copy / path.name)
    assert problems_of(copy) == [] and checked_run(copy).sealed
    write_sample(Synthesizer.load(copy), copy)  # what the coordinator draws goes on in its copy of the ledger
    assert problems_of(copy) == [] and "synthetic.parquet" in checked_run(copy).hashes
    (copy / "generator.safetensors").write_bytes(b"other bytes")
    assert problems_of(copy) and problems_of(world.run) == []


def test_a_job_that_was_killed_before_the_seal_is_closed_without_asking_anybody(world):
    files = world.files()
    world.conduct(world.channel(files), rounds=1)
    path = world.run / "ledger.jsonl"
    releases = [line.entry for line in Ledger(path).releases()]
    path.unlink()
    head_path(path).unlink()
    Ledger(path).append_all(releases)
    (world.run / "state").mkdir()
    world.conduct(world.channel(files, left=0), rounds=1)
    assert problems_of(world.run) == [] and checked_run(world.run).sealed
    assert not (world.run / "state").exists()


def test_a_finished_run_asks_nobody_again(world):
    files = world.files()
    world.conduct(world.channel(files), rounds=1)
    world.conduct(world.channel(files, left=0), rounds=1)
    assert world.news[-1] == {"rounds": 1}


def test_a_job_stops_after_a_round_to_let_a_site_come_back(world):
    files = world.files()
    regroup = threading.Event()
    regroup.set()
    with pytest.raises(Regroup):
        world.conduct(world.channel(files), regroup=regroup)
    assert [line["version"] for line in world.lines] == [1]
    world.conduct(world.channel(files))
    assert [line["version"] for line in world.lines] == [1, 2, 3, 4]


def test_a_job_whose_memory_grows_makes_way_for_the_next(world, monkeypatch):
    grown = iter(range(2**30, 2**40, 100 * 2**20))
    monkeypatch.setattr("fedsynth.deploy.server_job.resident_bytes", lambda: next(grown))
    files = world.files()
    with pytest.raises(Regroup):
        world.conduct(world.channel(files))
    assert [line["version"] for line in world.lines] == [1, 2, 3]
    world.conduct(world.channel(files))
    assert [line["version"] for line in world.lines] == [1, 2, 3, 4]


def test_the_run_is_calibrated_to_the_sites_that_agree(world, tmp_path):
    files = world.files()
    site_file(tmp_path / "cern", 2, recipes=("fvae",))
    world.conduct(world.channel(files), rounds=1)
    sites = [news["sites"] for news in world.news if "sites" in news][-1]
    assert sites["cern"].startswith("refuses: recipe='dpd_fvae': not allowed here")
    assert sites["ada"] == "takes part"
    begun = (tmp_path / "ada" / "state" / "audit.jsonl").read_text().splitlines()
    assert any('"began"' in line for line in begun)


def test_a_spent_budget_leaves_a_site_out_and_too_few_stop(world, tmp_path):
    files = world.files()
    site_file(tmp_path / "bern", 1, epsilon=0.1)
    site_file(tmp_path / "cern", 2, epsilon=0.1)
    with pytest.raises(TooFewSites, match="at least 2 must.*bern refuses"):
        world.conduct(world.channel(files), rounds=1)
    assert not (world.run / "generator.safetensors").exists()


def test_lost_rounds_that_sites_paid_for_end_a_run_early_and_not_never(world):
    files = world.files(seed=None)
    for left in (12, 12):  # each time a round is lost after the sites have paid for it
        with pytest.raises(JobEnded):
            world.conduct(world.channel(files, left), seed=None)
    world.conduct(world.channel(files), seed=None)
    told = json.loads((world.run / "privacy.json").read_text())
    history = (world.run / "history.jsonl").read_text().splitlines()
    assert told["private"] and told["epsilon"] <= 8 and 1 <= len(history) <= 4


def test_a_run_of_counts_that_lost_a_round_ends_with_a_generator_that_draws(world):
    files = world.files(seed=None, recipes=("marginals",))
    counts = {"recipe": "marginals", "seed": None, "rounds": 5, "arguments": {}}
    with pytest.raises(JobEnded):  # after the sites have paid for the third round
        world.conduct(world.channel(files, left=14), **counts)
    world.conduct(world.channel(files), **counts)
    history = (world.run / "history.jsonl").read_text().splitlines()
    assert 1 <= len(history) < 5, "a round was lost for good"
    assert len(Synthesizer.load(world.run).sample(20)) == 20
    said = [news["sites"]["server"] for news in world.news if "server" in news.get("sites", {})]
    assert said and said[-1].endswith(f"training ends with the model of round {len(history)}")


def test_what_the_schema_cost_is_in_the_run_s_ledger_first(world, tmp_path):
    earlier = Ledger(tmp_path / "schema.ledger.jsonl")
    earlier.append(GaussianDpEvent(20.0), what="bounds", holder="server", unit="client")
    asked = {
        "run": "r1", "minimum_sites": 2, "round_s": 60.0, "schema": SCHEMA,
        "earlier": {"lines": earlier.path.read_text(), "head": head_path(earlier.path).read_text()},
        "request": {"recipe": "dpd_fvae", "epsilon": 8.0, "delta": 1e-2, "rounds": 1, "seed": 3},
    }  # fmt: skip
    ServerJob().conduct(asked, world.channel(world.files()), world.run, world.tell, threading.Event())
    assert Ledger(world.run / "ledger.jsonl").lines()[0].what == "bounds"


def test_one_client_may_be_a_whole_site(world):
    world.conduct(world.channel(world.files(column=None)), rounds=1, accept=["delta"])
    sites = [news["sites"] for news in world.news if "sites" in news][-1]
    assert sites == dict.fromkeys(SITES, "takes part")


def test_pooled_recipes_are_refused(world):
    with pytest.raises(Incompatible, match="needs all rows in one place"):
        world.conduct(world.channel(world.files()), recipe="central_vae", arguments={})


def test_a_site_whose_ledger_is_older_than_what_it_showed_is_refused_and_told_why(world, tmp_path):
    files, state = world.files(seed=None), tmp_path / "ada" / "state"
    world.conduct(world.channel(files), seed=None, rounds=1)
    shutil.copytree(state, tmp_path / "backup")
    world.conduct(world.channel(files), run=tmp_path / "runs" / "r2", seed=None, rounds=1)
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)  # restored: what the second run cost is not in it
    world.news.clear()
    world.conduct(world.channel(files), run=tmp_path / "runs" / "r3", seed=None, rounds=1)
    told = [one["sites"]["ada"] for one in world.news if "ada" in one.get("sites", {})]
    assert any("its ledger is shorter than the" in what and "restored" in what for what in told)
    assert LedgerHeads(tmp_path / "runs" / "ledgers.json").forget("ada")
    world.news.clear()
    world.conduct(world.channel(files), run=tmp_path / "runs" / "r4", seed=None, rounds=1)
    assert any(one.get("sites", {}).get("ada") == "takes part" for one in world.news)


def test_a_clone_that_spent_on_a_ledger_of_its_own_is_refused_and_told_why(world, tmp_path):
    files, state = world.files(seed=None), tmp_path / "ada" / "state"
    world.conduct(world.channel(files), seed=None, rounds=1)
    shutil.rmtree(state)
    site = SiteFile.load(files["ada"]).site()
    for number in range(50):
        site.ledger.append(GaussianDpEvent(100.0), what=f"elsewhere {number}")
    world.news.clear()
    world.conduct(world.channel(files), run=tmp_path / "runs" / "r2", seed=None, rounds=1)
    told = [one["sites"]["ada"] for one in world.news if "ada" in one.get("sites", {})]
    assert told[-1].startswith("is refused: its ledger is not the one of which it showed")
    assert any(line["what"] == "told by the server" for line in site.audit.lines())
    ours = [line for line in site.ledger.lines() if not line.what.startswith("elsewhere")]
    assert ours == [], "nothing was spent at the clone"


def test_a_site_whose_copy_was_refused_hears_of_it_and_so_does_the_coordinator(world, tmp_path, monkeypatch):
    monkeypatch.setenv(NOTICES, str(tmp_path / "notices.log"))
    for site in ("bern", "bern", "elsewhere"):
        note_copy(site)
    old = {"site": "cern", "time": time.time() - 30 * 24 * 3600}
    with (tmp_path / "copies.jsonl").open("a") as file:
        file.write(f"{json.dumps(old)}\nhalf a line")
    world.conduct(world.channel(world.files()), rounds=3)
    spoken = {(site, what) for news in world.news for site, what in news.get("sites", {}).items()}
    assert {site for site, what in spoken if "second process" in what} == {"bern"}
    heard = {site: [line["what"] for line in audit_of(tmp_path / site)].count(TOLD) for site in SITES}
    assert heard == {"ada": 0, "bern": 1, "cern": 0}


def audit_of(folder):
    return ActivityLog(folder / "state" / "audit.jsonl").lines()
