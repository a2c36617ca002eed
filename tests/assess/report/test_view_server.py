import json
import threading
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest
from small_run import make_run

from fedsynth.assess.report.public import write_public
from fedsynth.assess.report.runs import find_runs
from fedsynth.assess.report.server import open_server
from fedsynth.errors import BadInput


@contextmanager
def serving(folder, host="127.0.0.1"):
    server, address = open_server(folder, host, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], address
    finally:
        server.shutdown()
        server.server_close()


def ask(port, target, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(
        method, target, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    write_public(make_run(folder))
    (folder / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def port(runs):
    with serving(runs) as (port, _):
        yield port


def test_the_list_names_every_run(port):
    status, text, _ = ask(port, "/")
    assert status == 200 and "dpd_fvae" in text


def test_runs_can_be_read_as_json(port):
    assert json.loads(ask(port, "/runs.json")[1])["runs"][0]["name"] == "run"


def test_a_page_of_a_run_is_given_away_by_its_key(port, runs):
    key = next(iter(find_runs(runs)))
    status, text, headers = ask(port, f"/run/{key}/public.html")
    assert status == 200 and text == (runs / "run" / "public.html").read_text()
    assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts; default-src 'none'")


@pytest.mark.parametrize(
    "target",
    [
        "/secret.txt", "/../secret.txt", "/run/../secret.txt", "/run/%2e%2e/secret.txt", "/run/KEY/history.jsonl",
        "/run/KEY/../../secret.txt", "/run/KEY/ledger.jsonl", "/run/KEY/report.html", "/run//etc/passwd",
        "/run/KEY/..%2f..%2fsecret.txt", "/run/KEY/public.html/../ledger.jsonl", "/run/unknown/public.html",
        "//etc/passwd",
    ],
)  # fmt: skip
def test_nothing_else_is_given_away(port, runs, target):
    status, text, _ = ask(port, target.replace("KEY", next(iter(find_runs(runs)))))
    assert status == 404 and "secret" not in text


def test_a_link_to_a_file_elsewhere_is_not_followed(tmp_path):
    run = make_run(tmp_path / "runs")
    (tmp_path / "secret.html").write_text("secret")
    (run / "report.html").symlink_to(tmp_path / "secret.html")
    with serving(tmp_path / "runs") as (port, _):
        assert ask(port, f"/run/{next(iter(find_runs(tmp_path / 'runs')))}/report.html")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_possible(port, method):
    assert ask(port, "/", method)[0] == 501


def test_the_head_of_a_page_has_no_body(port):
    status, text, headers = ask(port, "/", "HEAD")
    assert (status, text) == (200, "") and int(headers["Content-Length"]) > 1000


def test_the_policy_allows_no_foreign_source(port):
    headers = ask(port, "/")[2]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"


def test_a_foreign_name_that_points_to_this_machine_is_refused(port):
    status, text, _ = ask(port, "/", Host="evil.example")
    assert status == 403 and "dpd_fvae" not in text


def test_beyond_this_machine_a_token_is_needed(runs):
    with serving(runs, "0.0.0.0") as (port, address):
        token = address.partition("token=")[2]
        assert len(token) >= 32
        for target in ("/", "/runs.json", "/?token=", "/?token=wrong", f"/?token={token}x"):
            status, text, headers = ask(port, target)
            assert status == 403 and "dpd_fvae" not in text and "Set-Cookie" not in headers
        status, _, headers = ask(port, f"/?token={token}")
        assert status == 200 and "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
        assert ask(port, "/runs.json", Cookie=headers["Set-Cookie"].partition(";")[0])[0] == 200
        assert ask(port, "/", Cookie="fedsynth=wrong")[0] == 403


def test_the_token_is_another_each_time(runs):
    made = [open_server(runs, "0.0.0.0", 0) for _ in range(2)]
    for server, _ in made:
        server.server_close()
    assert made[0][1].partition("token=")[2] != made[1][1].partition("token=")[2]


def test_a_taken_port_is_told(runs, port):
    with pytest.raises(BadInput, match="choose another --port"):
        open_server(runs, "127.0.0.1", port)
