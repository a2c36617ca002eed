"""`fedsynth site check`: a line for each thing that can be wrong, red where it is, with what to do."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from real_sites import PASSPHRASE, free_port
from test_server_job import site_file

from fedsynth.cli.main import main
from fedsynth.deploy.nvflare.membership import create
from fedsynth.deploy.site.site_file import SiteFile


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("kits") / "kits", free_port()
    create(("ada", "bern"), "127.0.0.1", port, folder, PASSPHRASE)
    return folder, port


class Answering(BaseHTTPRequestHandler):
    clock = None

    def do_GET(self):
        self.send_error(426)

    def date_time_string(self, timestamp=None):
        return self.clock or super().date_time_string(timestamp)

    def log_message(self, *words):
        pass


@pytest.fixture
def server(kits):
    """A server of this consortium that answers like the engine's, with a clock that can be set."""
    folder, port = kits
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    startup = folder / "server" / "startup"
    context.load_cert_chain(startup / "server.crt", startup / "server.key")
    context.load_verify_locations(startup / "rootCA.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    listening = HTTPServer(("127.0.0.1", port), Answering)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield Answering
    Answering.clock = None
    listening.shutdown()
    thread.join()
    listening.server_close()


def checked(capsys, *words) -> tuple[int, dict[str, dict]]:
    """The exit code and the findings by name."""
    with pytest.raises(SystemExit) as left:
        main(["site", "check", *map(str, words), "--json"])
    told = json.loads(capsys.readouterr().out)
    found = {one["what"]: one for one in told["checks"]}
    assert told["ok"] == all(one["ok"] for one in found.values())
    return left.value.code or 0, found


def test_a_site_that_is_well_gets_a_good_line_for_each_thing(kits, server, tmp_path, capsys):
    folder, port = kits
    code, found = checked(capsys, folder / "sites" / "ada", "--config", site_file(tmp_path / "ada", 0))
    assert code == 0, found
    assert list(found) == [
        "versions", "keys", "site.toml", "permissions", "disk", "memory", "budget", "server", "clock",
        "transports", "rows",
    ]  # fmt: skip
    assert found["rows"]["words"] == "10 clients; all rows fit the schema"
    assert found["budget"]["words"] == "epsilon 1000 of 1000 is left at delta 0.01"
    assert found["server"]["words"] == f"127.0.0.1:{port} answers and takes this kit's certificate"
    assert found["clock"]["words"].startswith("within ")


def test_what_is_wrong_is_said_with_what_to_do_and_the_rest_is_checked_all_the_same(kits, tmp_path, capsys):
    folder, _ = kits
    config = site_file(tmp_path / "ada", 0)
    state = SiteFile.load(config).site().folder
    state.chmod(0o755)
    (state / "ledger.jsonl").write_text("{}\n")
    rows = tmp_path / "ada" / "rows.csv"
    rows.write_text(rows.read_text().replace("yes", "maybe"))
    code, found = checked(capsys, folder / "sites" / "ada", "--config", config)
    assert code == 2
    wrong = {name: one["words"] for name, one in found.items() if not one["ok"]}
    assert set(wrong) == {"permissions", "budget", "server", "clock", "rows"}
    assert f"run chmod -R go-rwx {state}" in wrong["permissions"]
    assert "restore the state folder from its newest copy" in wrong["budget"]
    assert "is it started?" in wrong["server"] and "maybe" in wrong["rows"]


def test_a_site_whose_server_does_not_answer_yet_is_started_again_by_its_service(kits, tmp_path, capsys):
    kit = kits[0] / "sites" / "ada"
    assert "RestartPreventExitStatus=2" in (kit / "fedsynth-ada.service").read_text().splitlines()
    with pytest.raises(SystemExit) as left:
        main(["site", "start", str(kit), "--config", str(site_file(tmp_path / "ada", 0)), "--wait", "0"])
    assert left.value.code == 3 and "is it started?" in capsys.readouterr().err


def test_a_clock_that_is_off_is_red(kits, server, tmp_path, capsys):
    server.clock = "Thu, 01 Jan 2026 00:00:00 GMT"
    config = site_file(tmp_path / "ada", 0)
    code, found = checked(capsys, kits[0] / "sites" / "ada", "--config", config)
    assert code == 2 and "turn time synchronization on" in found["clock"]["words"]


def test_the_health_check_of_a_site_that_does_not_run_is_red(kits, tmp_path, capsys):
    config = site_file(tmp_path / "ada", 0)
    code, found = checked(capsys, kits[0] / "sites" / "ada", "--config", config, "--running")
    assert code == 2 and not found["process"]["ok"] and "fedsynth site start" in found["process"]["words"]
    assert not found["connection"]["ok"] and "rows" not in found and found["keys"]["ok"]


def test_a_fault_that_many_checks_meet_is_said_once(kits, tmp_path, capsys):
    config = site_file(tmp_path / "ada", 0)
    config.write_text(config.read_text().replace("client_column", "client_colum"))
    code, found = checked(capsys, tmp_path / "nowhere", "--config", config)
    assert code == 2 and "client_colum: no such key" in found["site.toml"]["words"]
    assert "nowhere" in found["keys"]["words"]
    after = {name: found[name]["words"] for name in ("permissions", "disk", "budget", "transports", "rows")}
    assert set(after.values()) == {"not looked at, because of site.toml"}
    assert {found[name]["words"] for name in ("server", "clock")} == {"not looked at, because of keys"}
