"""A server and three sites as processes on 127.0.0.1, each started by its command."""

import json
import math
import re
import shutil
import socket
import ssl

import pandas as pd
import pytest
import torch
from real_sites import PASSPHRASE, SITES, Federation, command, listening, patients, until
from safetensors.torch import load_file

from fedsynth import Schema, Synthesizer, clients_from
from fedsynth.cli.main import main
from fedsynth.deploy.nvflare.membership import create
from fedsynth.federation.pace import FIRST_S
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import Folder

pytest_plugins = ["real_sites"]
pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def finished(federation: Federation, tmp_path_factory):
    """A run of three rounds with the operating system's noise."""
    for name in SITES:
        federation.site_file(name)
    out = tmp_path_factory.mktemp("runs") / "RUN"
    done = federation.run(out, "--rounds", "3")
    assert done.returncode == 0, done.stderr
    return out, done


def test_the_run_folder_is_that_of_any_run_and_its_statement_is_true(finished):
    out, done = finished
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "recipe.toml", "schema.json", "generator.safetensors", "ledger.jsonl", "privacy.json", "history.jsonl",
        "synthetic.parquet", "public.html", "federation.json",
    }  # fmt: skip
    told = json.loads((out / "privacy.json").read_text())
    assert told["private"] and not told["simulation"] and 0 < told["epsilon"] <= 8
    assert (told["unit"], told["trust"], told["delta"]) == ("client", "central", 1e-2)
    assert {release["what"]: release["count"] for release in told["releases"]} == {
        "class balance": 1,
        "noisy sum of clipped client updates": 3,
    }
    assert Ledger(out / "ledger.jsonl").verify() == []
    rows = pd.read_parquet(out / "synthetic.parquet")
    assert len(rows) == 100 and list(rows.columns) == ["age", "bmi", "ill"]
    assert len(Synthesizer.load(out).sample(5)) == 5


def test_the_coordinator_sees_the_rounds_and_the_sites(finished):
    _, done = finished
    assert all(f"{name}: takes part" in done.stderr for name in SITES)
    assert "round 3/3  epsilon" in done.stderr


def test_nothing_at_the_coordinator_tells_how_many_were_drawn_or_how_long_they_took(finished, federation):
    out, done = finished
    history, rounds = Folder(out).read_history(), Folder(federation.server_run()).read_rounds()
    assert [set(line) for line in history] == [{"version", "loss", "seconds", "epsilon"}] * 3
    paces = [line["seconds"] / FIRST_S for line in history]
    assert all(math.log2(pace).is_integer() for pace in paces)  # ticks, whatever the rounds took
    assert all(line["seconds"] not in paces and {"clients", "bytes_up"} <= set(line) for line in rounds)
    assert not (out / "rounds.jsonl").exists()
    told = "".join(path.read_text() for path in out.iterdir() if path.suffix in (".json", ".jsonl", ".toml"))
    for line in rounds:
        assert f'"clients": {line["clients"]}' not in told and str(line["bytes_up"]) not in told
    log = federation.kits / "server" / "console.log"
    assert "assigned task" not in log.read_text() and "got result" not in log.read_text()


def test_every_site_s_own_ledger_shows_at_least_what_it_released(finished, federation: Federation):
    out, _ = finished
    rounds = Folder(federation.server_run()).read_rounds()
    assert len(rounds) == 3 and all(line["dropped"] == 0 for line in rounds)
    for name in SITES:
        ledger = Ledger(federation.folder / name / "state" / "ledger.jsonl")
        assert ledger.verify() == []
        lines = [line for line in ledger.lines() if "round" in line.what or "update" in line.what]
        assert sum(line.count for line in lines) >= 1
        audit = (federation.folder / name / "state" / "audit.jsonl").read_text()
        assert "accepted an invitation" in audit and "finished" in audit


def test_no_row_and_no_name_of_a_patient_reaches_the_server(finished, federation: Federation):
    for path in (federation.kits / "server").rglob("*"):
        if path.is_file():
            assert b"p0-" not in path.read_bytes(), path


def test_nothing_listens_beyond_the_named_address(finished, federation: Federation):
    addresses = listening(federation.family("server")["watch"][0])
    assert f"127.0.0.1:{federation.port}" in addresses
    for name in SITES:
        addresses += listening(federation.family(name)["watch"][0])
    assert {address.rpartition(":")[0] for address in addresses} == {"127.0.0.1"}


def test_seeded_processes_and_the_simulator_give_the_same_parameters_and_ledger(federation, tmp_path):
    for name in SITES:
        federation.site_file(name, seed=5)
    out = tmp_path / "RUN"
    try:
        done = federation.run(out, "--rounds", "2", "--seed", "5")
    finally:
        for name in SITES:
            federation.site_file(name)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "privacy.json").read_text())["simulation"]
    frame = pd.concat([patients(number) for number in range(len(SITES))], ignore_index=True)
    schema = Schema.load(federation.schema).with_client("patient")
    alone = Synthesizer(
        "dpd_fvae", schema, epsilon=8, delta=1e-2, rounds=2, seed=5, hidden=(16,), latent=4, epochs=1
    )
    alone.fit(clients_from(frame, client_column="patient"), folder=tmp_path / "alone")
    there, here = (load_file(folder / "generator.safetensors") for folder in (out, tmp_path / "alone"))
    assert there.keys() == here.keys()
    for name, values in here.items():
        torch.testing.assert_close(there[name], values, rtol=0, atol=1e-6)
    ledgers = [Ledger(folder / "ledger.jsonl").releases() for folder in (out, tmp_path / "alone")]
    told = [[(line.what, line.holder, line.event, line.count) for line in lines] for lines in ledgers]
    assert told[0] == told[1]


def test_a_site_refuses_with_a_reason_and_too_few_stop_with_a_sentence(federation: Federation, tmp_path):
    federation.site_file("bern", recipes=["fvae"])
    federation.site_file("cern", epsilon=0.5)
    try:
        done = federation.run(tmp_path / "RUN", "--rounds", "1", "--minimum-sites", "2")
    finally:
        federation.site_file("bern")
        federation.site_file("cern")
    assert done.returncode == 2
    bern, cern = "refuses: recipe='dpd_fvae': not allowed here; allowed: fvae", r"cern:? refuses: .*epsilon"
    assert done.stderr.count(bern) == 1 and len(re.findall(cern, done.stderr)) == 1, "each reason once"
    assert "--resume" not in done.stderr  # nothing to wait for: somebody has to change something
    assert "at least 2 must" in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("fedsynth: ")
    assert not (tmp_path / "RUN" / "generator.safetensors").exists()
    audit = (federation.folder / "bern" / "state" / "audit.jsonl").read_text()
    assert '"refused"' in audit


@pytest.fixture
def refused(capsys):
    """The one sentence with which a command refuses."""

    def call(*words) -> str:
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        told = capsys.readouterr().err
        assert left.value.code == 2 and told.count("\n") == 1 and told.startswith("fedsynth: "), told
        return told

    return call


def test_a_foreign_kit_is_refused_by_site_and_server(federation: Federation, tmp_path, refused):
    create(SITES, "127.0.0.1", federation.port, tmp_path / "others", PASSPHRASE)
    foreign = tmp_path / "others" / "sites" / "ada"
    config = federation.folder / "ada" / "site.toml"
    assert "a certificate of another authority" in refused("site", "start", foreign, "--config", config)
    context = ssl.create_default_context(cafile=str(federation.kit("ada") / "startup" / "rootCA.pem"))
    context.check_hostname = False
    context.load_cert_chain(foreign / "startup" / "client.crt", foreign / "startup" / "client.key")
    try:
        with (
            socket.create_connection(("127.0.0.1", federation.port), timeout=600) as plain,
            context.wrap_socket(plain) as secured,
        ):
            secured.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = secured.recv(1)
    except (ssl.SSLError, ConnectionError):
        answer = b""
    assert answer == b""  # not even a page that is not there
    federation.coordinator().reach()  # while a kit of the consortium is answered


def test_what_is_wrong_with_a_party_s_files_is_one_sentence(federation: Federation, tmp_path, refused):
    folder = shutil.copytree(federation.folder / "ada", tmp_path / "ada")
    config, kit = folder / "site.toml", federation.kit("ada")
    assert "the kit of the server" in refused("site", "start", federation.kit("server"), "--config", config)
    assert "cannot be listened on" in refused("federation", "serve", federation.kit("server"))
    stray = federation.kit("server") / "local" / "he.secret"
    stray.write_bytes(b"")
    assert "a secret where the server can read it" in refused("federation", "serve", federation.kit("server"))
    stray.unlink()
    rows = (folder / "rows.csv").read_text()
    (folder / "rows.csv").write_text(rows.replace(",yes", ",perhaps"))
    assert re.search("'ill'.*perhaps", refused("site", "start", kit, "--config", config))
    (folder / "rows.csv").unlink()
    assert "rows.csv does not exist" in refused("site", "start", kit, "--config", config)
    config.write_text(config.read_text().replace("[budget]", "[buget]"))
    told = refused("site", "start", kit, "--config", config)
    assert "[buget]: no such table; did you mean 'budget'?" in told and "[budget] epsilon: missing" in told


def test_status_says_who_is_connected(federation: Federation):
    asked = lambda: command("federation", "status", str(federation.kits), "--json")  # noqa: E731
    whole = dict.fromkeys(SITES, True)
    until(
        "all sites", lambda: (said := asked()).returncode == 0 and json.loads(said.stdout)["sites"] == whole
    )
    told = json.loads(asked().stdout)
    assert all(pid for path, pid in told["here"].items() if not path.endswith("coordinator"))
