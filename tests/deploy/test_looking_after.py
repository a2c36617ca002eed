"""Commands that look after a federation and its sites: end, forget, and what `try` refuses."""

import json

import pandas as pd
import pytest
from real_sites import PASSPHRASE, command, free_port
from test_server_job import SCHEMA, world  # noqa: F401

from fedsynth.data.schema import Schema
from fedsynth.deploy.coordinator import Assignment, Coordinator, CoordinatorPatience
from fedsynth.deploy.job import JobEnded
from fedsynth.deploy.link.ledger_heads import LedgerHeads
from fedsynth.deploy.nvflare.kits import Kit
from fedsynth.deploy.nvflare.membership import create
from fedsynth.deploy.server_job import LEDGERS
from fedsynth.deploy.site.reservations import Reservations
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.request import Request


def test_a_run_that_its_server_gave_up_is_ended_and_nothing_stays_reserved(world):  # noqa: F811
    files = world.files()
    with pytest.raises(JobEnded):
        world.conduct(world.channel(files, left=14))
    described = SiteFile.load(files["ada"])
    ledger = Ledger(described.folder / "ledger.jsonl")
    reserved, before = Reservations(described.folder / "reserved.json", ledger), len(ledger.lines())
    assert reserved.names() == ["r1"]
    ended = command("site", "end", "r1", "--config", str(files["ada"]), "--json")
    assert ended.returncode == 0, ended.stderr
    after = Ledger(ledger.path)
    told = json.loads(ended.stdout)
    assert told == {"ended": "r1", "epsilon_left": described.policy.budget.left(after)}
    assert reserved.names() == [] and len(after.lines()) > before
    assert any("planned and not run" in line.what for line in after.lines())
    again = command("site", "end", "r1", "--config", str(files["ada"]))
    assert again.returncode == 2 and "this site is in no run of that name" in again.stderr


def test_a_server_forgets_the_ledger_of_the_named_site_alone(tmp_path):
    create(("ada", "bern"), "127.0.0.1", free_port(), tmp_path / "kits", PASSPHRASE)
    server = tmp_path / "kits" / "server"
    (server / "runs").mkdir(exist_ok=True)
    heads = LedgerHeads(server / "runs" / LEDGERS)
    for site in ("ada", "bern"):
        heads.note(site, "5:abc")
    heads.save()
    done = command("federation", "forget", str(server), "ada", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"site": "ada", "forgotten": True})
    left = LedgerHeads(heads.path)
    assert (left.known("ada"), left.known("bern")) == (0, 5)
    assert "ada has shown no ledger yet" in command("federation", "forget", str(server), "ada").stdout
    wrong = command("federation", "forget", str(server), "adda")
    assert wrong.returncode == 2 and "adda: no such site; did you mean 'ada'" in wrong.stderr


def test_try_refuses_a_schema_with_the_site_column_before_anything_is_written(tmp_path):
    site = {"name": "site", "type": "categorical", "categories": ["a", "b"]}
    (tmp_path / "schema.json").write_text(json.dumps({**SCHEMA, "columns": [*SCHEMA["columns"], site]}))
    rows = pd.DataFrame({"age": [30, 40, 50, 60], "ill": ["no", "yes"] * 2, "site": ["a", "a", "b", "b"]})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    words = [
        "--schema",
        str(tmp_path / "schema.json"),
        "--site-column",
        "site",
        "--out",
        str(tmp_path / "try"),
    ]
    refused = command("federation", "try", str(tmp_path / "rows.csv"), *words)
    assert refused.returncode == 2
    assert "--site-column site: the schema has it as a column to be made" in refused.stderr
    assert not (tmp_path / "try").exists()


@pytest.mark.parametrize("words", [["jobs"], ["abort", "1f0c"]])
def test_jobs_and_abort_say_that_the_server_is_not_there(tmp_path, words):
    create(("ada", "bern"), "127.0.0.1", free_port(), tmp_path / "kits", PASSPHRASE)
    refused = command("federation", words[0], str(tmp_path / "kits"), *words[1:])
    assert refused.returncode == 2 and "cannot be reached" in refused.stderr


def test_whoever_interrupts_a_run_whose_server_is_gone_is_told_and_not_kept(tmp_path):
    create(("ada", "bern"), "127.0.0.1", free_port(), tmp_path / "kits", PASSPHRASE)
    kit = Kit.load(tmp_path / "kits", "coordinator")
    said: list[str] = []
    request = Request("marginals", epsilon=1.0)
    assignment = Assignment.new(
        kit, request, Schema.from_dict(SCHEMA), 2, CoordinatorPatience(server_s=1e6), {}
    )
    coordinator = Coordinator(
        kit, tmp_path, assignment, lambda *_: None, said.append, patience=CoordinatorPatience(server_s=1e6)
    )
    coordinator.cancel()
    assert len(said) == 1 and "cannot be reached" in said[0]
    assert said[0].endswith("a job of this run that is alive there was not stopped")
