"""A running site's metrics: what a scrape shows, and what it does not."""

import json
import os
import socket
import time
import urllib.error
import urllib.request

import psutil
import pytest
from dp_accounting import GaussianDpEvent
from real_sites import PASSPHRASE, free_port, until
from test_server_job import site_file

from fedsynth.data.lock import alone
from fedsynth.deploy.nvflare import metrics as module
from fedsynth.deploy.nvflare.kits import Kit
from fedsynth.deploy.nvflare.membership import create
from fedsynth.deploy.nvflare.metrics import Metrics, served
from fedsynth.deploy.nvflare.node import Node
from fedsynth.deploy.site.activity_log import ActivityLog
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Entry, Ledger


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kits") / "kits"
    create(("ada", "bern"), "127.0.0.1", free_port(), folder, PASSPHRASE)
    return folder


@pytest.fixture
def metrics(kits, tmp_path):
    config = site_file(tmp_path / "ada", 0)
    (tmp_path / "ada" / "state").mkdir(mode=0o700)
    metrics = Metrics(Kit.load(kits / "sites" / "ada", "site"), config, os.getpid())
    metrics._budget_at = time.monotonic()  # computing it takes a process of some seconds: in one test alone
    return metrics


def scrape(port: int, path: str = "/metrics") -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.read().decode().splitlines()
    pairs = [line.removeprefix("fedsynth_site_").split(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def test_a_scrape_shows_rounds_memory_contact_and_budget_and_follows_the_site_s_files(metrics, tmp_path):
    state = tmp_path / "ada" / "state"
    audit = ActivityLog(state / "audit.jsonl")
    with served(metrics, 0) as port:
        first = scrape(port)
        assert (first["rounds_total"], first["connected"]) == (0, 0)
        assert "last_contact_timestamp_seconds" not in first
        assert first["memory_bytes"] > 2**20
        audit.note("began", run="r", session=1, recipe="dpd_fvae")
        audit.note("answered", run="r", job="opening", version=0, session=1)
        for version in range(3):
            audit.note("answered", run="r", job="round", version=version, session=1)
        audit.note("refused", run="r", code="budget", reason="too much")
        second = scrape(port)
        assert (second["rounds_total"], second["runs_begun_total"], second["refusals_total"]) == (3, 1, 1)
        told = json.loads((state / "audit.jsonl").read_text().splitlines()[-1])["time"]
        assert second["last_contact_timestamp_seconds"] == pytest.approx(
            module.datetime.fromisoformat(told).timestamp(), abs=1e-3
        )
        with (state / "audit.jsonl").open("a") as torn:
            torn.write('{"what": "answe')
        assert scrape(port)["rounds_total"] == 3


@pytest.mark.slow
def test_the_budget_is_computed_aside_and_shown_when_it_is_known(metrics):
    metrics._budget_at = float("-inf")
    with served(metrics, 0) as port:
        full = until("the budget", lambda: "budget_epsilon" in (now := scrape(port)) and now)
        assert full["budget_epsilon"] == full["budget_epsilon_left"] == 1000


def test_the_budget_left_is_what_the_ledger_leaves(tmp_path, capsys, monkeypatch):
    config = site_file(tmp_path / "ada", 0)
    described = SiteFile.load(config)
    described.folder.mkdir(mode=0o700)
    ledger = Ledger(described.folder / "ledger.jsonl")
    described.policy.budget.spend_all(ledger, [Entry(GaussianDpEvent(1.0), "a release")])
    monkeypatch.setattr("sys.argv", ["metrics", str(config), str(ledger.path)])
    module.main()
    told = json.loads(capsys.readouterr().out)
    assert (
        told["budget_epsilon_left"] == described.policy.budget.left(ledger) < told["budget_epsilon"] == 1000
    )


def test_no_value_of_a_row_nor_a_patient_s_name_nor_how_many_there_are_is_shown(metrics):
    names = {line.split(" ")[0] for line in metrics.text().splitlines() if not line.startswith("#")}
    assert names <= {f"fedsynth_site_{name}" for name in module._HELP}
    assert not any("{" in name or "client" in name or "patient" in name for name in names)


def test_it_listens_on_this_machine_alone_and_shows_nothing_else(metrics):
    with served(metrics, 0) as port:
        own = [link.laddr.ip for link in psutil.Process().net_connections("tcp") if link.laddr.port == port]
        assert set(own) == {"127.0.0.1"}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            scrape(port, "/")


def test_a_connection_to_the_server_counts_as_contact(metrics):
    address = ("127.0.0.1", metrics.kit.port)
    with socket.create_server(address), socket.create_connection(address):
        assert "fedsynth_site_connected 1\n" in metrics.text()
    assert "fedsynth_site_last_contact_timestamp_seconds" in metrics.text()


def test_a_port_that_is_taken_is_said_before_the_site_starts(metrics):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = Node(metrics.kit, print, site_file=metrics.site_file, metrics_port=port)
        with pytest.raises(BadInput, match=f"metrics port {port}: .* name another with --metrics-port"):
            node.run()


def test_there_are_none_unless_site_toml_names_a_port(tmp_path):
    config = site_file(tmp_path / "ada", 0)
    assert SiteFile.load(config).metrics_port is None
    plain = config.read_text()
    config.write_text(plain + "\n[metrics]\nport = 9464\n")
    assert SiteFile.load(config).metrics_port == 9464
    config.write_text(plain + "\n[metrics]\nport = 0\n")
    with pytest.raises(BadInput, match=r"\[metrics\] port=0: expected a port between 1 and 65535"):
        _ = SiteFile.load(config).metrics_port


def test_a_copy_of_a_kit_is_refused_the_state_folder_of_a_site_that_runs(metrics, kits, tmp_path):
    said = "another process already runs a site with this state folder"
    with alone(tmp_path / "ada" / "state" / "running.lock", ""), pytest.raises(BadInput, match=said):
        Node(metrics.kit, print, site_file=metrics.site_file).run()
