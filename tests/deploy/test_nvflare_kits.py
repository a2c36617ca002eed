import datetime
import json
import os
import shutil
import socket
import ssl
import threading
from importlib import import_module

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.security.security import FLAuthorizer
from real_sites import PASSPHRASE, free_port

from fedsynth.cli.federation import kits_in
from fedsynth.data.lock import alone
from fedsynth.deploy.nvflare.authority import Authority
from fedsynth.deploy.nvflare.kits import ALLOWED, RIGHTS, Kit, Unreachable, brought_up_to_date
from fedsynth.deploy.nvflare.membership import create, renew
from fedsynth.deploy.nvflare.node import check_port, running, stop
from fedsynth.deploy.nvflare.session import write_job
from fedsynth.errors import BadInput

SITES = ("st-mary", "charite", "ucl")
PORT = free_port()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("kits") / "kits"
    create(SITES, "127.0.0.1", PORT, out, PASSPHRASE)
    return out


@pytest.fixture
def kits(made, tmp_path):
    return shutil.copytree(made, tmp_path / "kits")


def test_every_party_has_a_kit_of_its_own_that_loads(kits):
    for name in SITES:
        kit = Kit.load(kits / "sites" / name, "site")
        assert (kit.name, kit.host, kit.port, kit.sites) == (name, "127.0.0.1", PORT, SITES)
    assert Kit.load(kits / "server", "server").role == "server"
    assert Kit.load(kits, "coordinator").folder == (kits / "coordinator").resolve()
    assert kits_in(kits)[0] == kits / "server" and len(kits_in(kits)) == 5


def test_nobody_else_can_read_a_private_key_and_no_kit_holds_the_authority_s(kits):
    keys = list(kits.rglob("*.key"))
    assert len(keys) == 6 and all(key.stat().st_mode & 0o777 == 0o600 for key in keys)
    secrets = [path for path in kits.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(secrets) == sorted(keys)
    others = [path for path in keys if path.parent != kits / "authority"]
    assert all(b"BEGIN PRIVATE KEY" in path.read_bytes() for path in others)
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in (kits / "authority" / "root.key").read_bytes()
    assert (kits / "authority").stat().st_mode & 0o777 == 0o700
    Kit.load(kits / "sites" / "ucl", "site").key.chmod(0o644)
    with pytest.raises(BadInput, match="other users may read this private key; run chmod 600"):
        Kit.load(kits / "sites" / "ucl", "site")


@pytest.mark.parametrize("party", ["server", "sites/ucl"])
def test_a_kit_refuses_shipped_code_and_classes_that_are_not_ours(kits, party):
    resources = json.loads((kits / party / "local" / "resources.json").read_text())
    assert all(name.startswith("fedsynth.") for name in resources["class_allow_list"])
    assert resources["class_list_enforcement_mode"] == "enforce"
    rights = json.loads((kits / party / "local" / "authorization.json").read_text())["permissions"]
    assert rights == {"lead": RIGHTS} and RIGHTS["byoc"] == RIGHTS["shell_commands"] == "none"


def test_the_coordinator_may_stop_a_run_but_not_look_at_who_has_work_or_at_the_server_s_log(kits):
    rights = json.loads((kits / "server" / "local" / "authorization.json").read_text())
    coordinator = Person("coordinator", "consortium", "lead")
    authorizer = FLAuthorizer("consortium", rights)

    def may(right):
        return authorizer.authorize(AuthzContext(right=right, user=coordinator, submitter=coordinator))[0]

    hidden = (
        "download_job", "download_job_components", "get_job_log", "configure_job_log", "show_stats", "show_errors",
    )  # fmt: skip
    assert not any(may(right) for right in hidden)
    assert all(
        may(right) for right in ("submit_job", "abort_job", "list_jobs", "app_command", "check_status")
    )


def test_the_server_logs_no_message_that_shows_who_was_sent_work(kits):
    """At the level INFO the engine logs each task with its site and time."""
    level = json.loads((kits / "server" / "local" / "log_config.json").read_text())["loggers"]["root"][
        "level"
    ]
    assert level == "WARNING"


def test_a_site_sends_no_logs(kits):
    resources = json.loads((kits / "sites" / "ucl" / "local" / "resources.json").read_text())
    assert resources["allow_log_streaming"] is False
    assert not [part for part in resources["components"] if "log" in part["path"].lower()]


def test_the_server_s_stores_lie_in_its_kit(kits):
    kit = Kit.load(kits / "server", "server")
    brought_up_to_date(kit)
    text = (kits / "server" / "local" / "resources.json").read_text()
    assert "/tmp/nvflare" not in text and text.count(str(kit.folder / "store")) == 2


def test_a_wrong_or_missing_kit_is_named(kits, tmp_path):
    with pytest.raises(BadInput, match="the kit of the server, but that of a site is needed"):
        Kit.load(kits / "server", "site")
    with pytest.raises(BadInput, match=r"not a start-up kit \(no kit.json\)"):
        Kit.load(tmp_path / "nowhere", "server")
    (kits / "server" / "startup" / "server.key").unlink()
    with pytest.raises(BadInput, match="server.key: missing from the kit of the server"):
        Kit.load(kits / "server", "server")
    (kits / "sites" / "ucl" / "kit.json").write_text("{}")
    with pytest.raises(BadInput, match="take a fresh copy of the kit"):
        Kit.load(kits / "sites" / "ucl", "site")


def test_a_certificate_of_another_consortium_is_refused(kits, tmp_path):
    create(SITES, "127.0.0.1", PORT, tmp_path / "others", PASSPHRASE)
    for name in ("client.crt", "client.key"):
        shutil.copy(
            tmp_path / "others" / "sites" / "ucl" / "startup" / name, kits / "sites" / "ucl" / "startup"
        )
    with pytest.raises(BadInput, match="not signed by this consortium's authority"):
        Kit.load(kits / "sites" / "ucl", "site")


def test_a_site_cannot_take_another_s_name(kits):
    path = kits / "sites" / "ucl" / "kit.json"
    path.write_text(path.read_text().replace('"name": "ucl"', '"name": "charite"'))
    with pytest.raises(BadInput, match="made for 'ucl', but the kit says that it is 'charite'"):
        Kit.load(kits / "sites" / "ucl", "site")


def sign_again(kits, party, begins, ends):
    """The party's certificate once more, signed by the same authority, with other dates."""
    path = kits / party / "startup" / "client.crt"
    old = x509.load_pem_x509_certificate(path.read_bytes())
    key = Authority.open(kits / "authority", PASSPHRASE).key
    builder = x509.CertificateBuilder().subject_name(old.subject).issuer_name(old.issuer)
    builder = builder.public_key(old.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(begins).not_valid_after(ends)
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def test_an_expired_certificate_is_refused_and_renewed(kits):
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    sign_again(kits, "sites/ucl", now - 9 * day, now - day)
    with pytest.raises(BadInput, match=r"expired on \d{4}-\d\d-\d\d; ask for a new kit"):
        Kit.load(kits / "sites" / "ucl", "site")
    sign_again(kits, "sites/ucl", now + day, now + 9 * day)
    with pytest.raises(BadInput, match="is this clock right"):
        Kit.load(kits / "sites" / "ucl", "site")
    old = (kits / "sites" / "ucl" / "startup" / "client.key").read_bytes()
    other = (kits / "sites" / "charite" / "startup" / "client.key").read_bytes()
    (kits / "sites" / "ucl" / "local" / "mine.txt").write_text("stays")
    renew(kits, PASSPHRASE, ["ucl"])
    assert Kit.load(kits / "sites" / "ucl", "site").expires > now + 300 * day
    assert (kits / "sites" / "ucl" / "startup" / "client.key").read_bytes() != old
    assert (kits / "sites" / "charite" / "startup" / "client.key").read_bytes() == other
    assert (kits / "sites" / "ucl" / "local" / "mine.txt").read_text() == "stays"
    with pytest.raises(BadInput, match="did you mean 'charite'"):
        renew(kits, PASSPHRASE, ["charit"])


@pytest.mark.parametrize(
    ("sites", "host", "port", "said"),
    [
        (("a",), "h", 8002, "at least two sites"),
        (("a", "B c"), "h", 8002, "lower-case letters"),
        (("a", "server"), "h", 8002, "this name is taken"),
        (("a", "a"), "h", 8002, "named twice"),
        (("a", "b"), "h", 0, "between 1 and 65535"),
        (("a", "b"), "h h", 8002, "a host name or an IPv4 address"),
    ],
)
def test_bad_names_are_refused_before_anything_is_written(tmp_path, sites, host, port, said):
    with pytest.raises(BadInput, match=said):
        create(sites, host, port, tmp_path / "kits", PASSPHRASE)
    assert not (tmp_path / "kits").exists()


def test_kits_are_never_written_over(kits):
    with pytest.raises(BadInput, match="exists already"):
        create(SITES, "127.0.0.1", PORT, kits, PASSPHRASE)


def test_a_port_in_use_and_a_foreign_address_are_said(kits):
    kit = Kit.load(kits / "server", "server")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", PORT))
        taken.listen()
        with pytest.raises(
            BadInput, match=f"127.0.0.1:{PORT} cannot be listened on .* stop what listens there"
        ):
            check_port(kit)
    with pytest.raises(BadInput, match="--listen"):
        check_port(kit, "192.0.2.1")  # set aside for documentation: no machine has it
    assert check_port(kit) == "127.0.0.1"


def test_a_server_that_is_not_there_is_said(kits):
    with pytest.raises(Unreachable, match=f"127.0.0.1:{PORT} cannot be reached .*; is it started"):
        Kit.load(kits / "sites" / "ucl", "site").reach()


@pytest.mark.parametrize(
    ("shown", "asks_for", "said"),
    [
        ("others/server", "kits", "a certificate of another authority"),
        ("kits/sites/charite", "kits", "the certificate of 'charite', not of the server"),
        ("kits/server", "others", "refuses this kit's certificate"),
        ("kits/server", "kits", None),
    ],
)
def test_both_sides_must_show_a_certificate_of_the_consortium(kits, tmp_path, shown, asks_for, said):
    create(SITES, "127.0.0.1", PORT, tmp_path / "others", PASSPHRASE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = next((tmp_path / shown / "startup").glob("*er.crt"), None) or (
        tmp_path / shown / "startup" / "client.crt"
    )
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    context.load_verify_locations(tmp_path / asks_for / "server" / "startup" / "rootCA.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        plain.bind(("127.0.0.1", PORT))
        plain.listen()

        def answer_once():
            connection, _ = plain.accept()
            try:
                with context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(100)
                    secured.sendall(b"HTTP/1.0 404\r\n\r\n")
            except (ssl.SSLError, OSError):
                connection.close()

        thread = threading.Thread(target=answer_once)
        thread.start()
        kit = Kit.load(kits / "sites" / "ucl", "site")
        if said is None:
            kit.reach()
        else:
            with pytest.raises(BadInput, match=said):
                kit.reach()
        thread.join()


def test_nothing_runs_from_a_fresh_kit(kits):
    assert running(kits / "server") is None and not stop(kits / "server")


def test_a_process_of_a_container_is_not_mistaken_for_one_of_this_machine(tmp_path):
    with alone(tmp_path / "running.lock", ""):
        (tmp_path / "running.pid").write_text(f"{os.getpid()} pid:[1]")
        with pytest.raises(BadInput, match="runs in a container; stop it there"):
            stop(tmp_path)


def test_a_job_names_classes_that_exist_and_that_kits_allow(tmp_path):
    write_job(tmp_path, {})
    for role, file in (("server", "config_fed_server.json"), ("site", "config_fed_client.json")):
        keys = json.loads((tmp_path / "app" / "config" / file).read_text())
        named = [part["path"] for part in (*keys["components"], *keys.get("workflows", ()))]
        named += [part["executor"]["path"] for part in keys.get("executors", ())]
        for path in named:
            module, _, name = path.rpartition(".")
            assert hasattr(import_module(module), name)
            assert any(path.startswith(allowed) for allowed in ALLOWED[role])


def test_a_kit_of_before_allows_the_classes_of_the_installed_version(kits):
    for kit in (Kit.load(kits / "server", "server"), Kit.load(kits / "sites" / "ucl", "site")):
        path = kit.folder / "local" / "resources.json"
        keys = json.loads(path.read_text())
        path.write_text(json.dumps({**keys, "class_allow_list": ["fedsynth.engines.nvflare_executor."]}))
        brought_up_to_date(kit)
        assert json.loads(path.read_text())["class_allow_list"] == list(ALLOWED[kit.role])
