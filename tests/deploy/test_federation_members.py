"""Members come, go and get new keys without a new consortium; a certificate that was taken back is refused."""

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest
from cryptography import x509
from real_sites import PASSPHRASE, command, free_port, until

from fedsynth.deploy.nvflare.authority import Authority, make_request
from fedsynth.deploy.nvflare.kits import Kit
from fedsynth.deploy.nvflare.membership import create
from fedsynth.errors import BadInput

SITES = ("ada", "bern")


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    out = tmp_path_factory.mktemp("members") / "kits"
    create(SITES, "127.0.0.1", free_port(), out, PASSPHRASE)
    return out


@pytest.fixture
def kits(consortium, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSYNTH_PASSPHRASE", PASSPHRASE)
    return shutil.copytree(consortium, tmp_path / "kits")


def done(*words) -> dict:
    """The JSON of a command that succeeds."""
    ended = command("federation", *map(str, words), "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def refused(*words) -> str:
    ended = command(*map(str, words))
    assert ended.returncode == 2, ended.stdout
    return ended.stderr


def serial(kits, place) -> int:
    return x509.load_pem_x509_certificate(
        (kits / place / "startup" / "client.crt").read_bytes()
    ).serial_number


def void(kits, place="server") -> set[int]:
    """The serial numbers that a kit's list names."""
    signed = x509.load_pem_x509_crl((kits / place / "startup" / "revoked.pem").read_bytes())
    root = x509.load_pem_x509_certificate((kits / "server" / "startup" / "rootCA.pem").read_bytes())
    assert signed.is_signature_valid(root.public_key())
    return {one.serial_number for one in signed}


def test_a_site_is_added_and_the_others_keep_their_keys(kits):
    before = {path: path.read_bytes() for path in kits.rglob("*.key")}
    assert done("add", kits, "cern")["party"] == "cern"
    assert Kit.load(kits / "sites" / "cern", "site").sites == ("ada", "bern", "cern")
    assert Kit.load(kits, "coordinator").sites == ("ada", "bern", "cern")
    assert all(path.read_bytes() == content for path, content in before.items()) and not void(kits)
    assert "cern: is a member already" in refused("federation", "add", kits, "cern")
    assert "expected lower-case letters" in refused("federation", "add", kits, "C ERN")


def test_kits_that_were_handed_over_and_deleted_need_not_be_there(kits):
    shutil.rmtree(kits / "sites")
    shutil.rmtree(kits / "server")
    done("add", kits, "cern")
    handed = json.loads((kits / "server" / "kit.json").read_text())
    assert (
        handed["sites"] == ["ada", "bern", "cern"]
        and not (kits / "server" / "startup" / "server.key").exists()
    )
    Kit.load(kits / "sites" / "cern", "site")


def test_a_lost_kit_is_replaced_and_its_certificate_void_everywhere(kits):
    old, other = serial(kits, "sites/ada"), serial(kits, "sites/bern")
    done("replace", kits, "ada")
    new = serial(kits, "sites/ada")
    for place in ("server", "coordinator", "sites/ada", "sites/bern"):
        assert void(kits, place) == {old}
    assert new != old and serial(kits, "sites/bern") == other
    assert Kit.load(kits / "sites" / "ada", "site").sites == SITES


def test_a_site_that_leaves_is_void_and_may_come_back(kits):
    old = serial(kits, "sites/ada")
    done("add", kits, "cern")
    assert done("revoke", kits, "ada") == {"site": "ada", "revoked": 1}
    assert void(kits) == {old} and Kit.load(kits, "coordinator").sites == ("bern", "cern")
    assert not (kits / "sites" / "ada").exists()
    assert "ada: no such party" in refused("federation", "revoke", kits, "ada")
    assert "no federation works without it" in refused("federation", "revoke", kits, "server")
    done("add", kits, "ada")
    assert serial(kits, "sites/ada") not in void(kits) == {old}


def test_rotation_leaves_the_old_certificate_valid_until_it_ends(kits):
    old = serial(kits, "sites/ada")
    done("renew", kits, "--party", "ada")
    assert serial(kits, "sites/ada") != old and not void(kits)
    done("replace", kits, "ada")
    assert old in void(kits) and len(void(kits)) == 2  # both of those before


def test_a_site_makes_its_own_key_and_the_authority_never_has_it(kits, tmp_path):
    own = tmp_path / "cern"
    asked = command("site", "request", "cern", "--out", str(own), "--json")
    assert asked.returncode == 0, asked.stderr
    key = (own / "startup" / "client.key").read_bytes()
    assert (own / "startup" / "client.key").stat().st_mode & 0o777 == 0o600
    answer = done("add", kits, "cern", "--request", own / "cern.csr")
    assert answer["fingerprint"] == json.loads(asked.stdout)["fingerprint"]
    assert not any(key in path.read_bytes() for path in kits.rglob("*") if path.is_file())
    assert not (kits / "sites" / "cern" / "startup" / "client.key").exists()
    shutil.copytree(kits / "sites" / "cern", own, dirs_exist_ok=True)  # as tar -x does
    Kit.load(own, "site")
    shutil.copy(kits / "sites" / "ada" / "startup" / "client.key", own / "startup" / "client.key")
    with pytest.raises(BadInput, match="client.key: not the key of client.crt"):
        Kit.load(own, "site")


def test_a_request_of_another_site_or_that_is_none_changes_nothing(kits, tmp_path):
    path = make_request("cern", tmp_path / "own")
    before = (kits / "authority" / "issued.json").read_text()
    assert "a request of cern, not of dora" in refused("federation", "add", kits, "dora", "--request", path)
    assert "a request of cern, not of ada" in refused("federation", "replace", kits, "ada", "--request", path)
    assert "it is of one site" in refused("federation", "renew", kits, "--request", path)
    path.write_text("no request")
    assert "no certificate request" in refused("federation", "add", kits, "cern", "--request", path)
    assert "startup: exists already" in refused("site", "request", "cern", "--out", tmp_path / "own")
    assert (kits / "authority" / "issued.json").read_text() == before and not void(kits)


def test_the_authority_s_key_opens_with_its_passphrase_alone(kits, tmp_path, monkeypatch):
    assert b"ENCRYPTED" in (kits / "authority" / "root.key").read_bytes()
    monkeypatch.delenv("FEDSYNTH_PASSPHRASE")
    assert "has a passphrase: name a file" in refused("federation", "add", kits, "cern")
    secret = tmp_path / "passphrase"
    secret.write_text("wrong horse battery\n")
    secret.chmod(0o600)
    words = ["federation", "add", kits, "cern", "--passphrase-file", secret]
    assert "not the passphrase of the authority's key" in refused(*words)
    assert not (kits / "sites" / "cern").exists()
    secret.write_text(PASSPHRASE + "\n")
    secret.chmod(0o644)
    assert "other users may read it" in refused(*words)
    secret.chmod(0o600)
    assert command(*map(str, words)).returncode == 0


def test_create_makes_a_passphrase_and_shows_it_once(tmp_path):
    words = ["--sites", "ada,bern", "--host", "127.0.0.1", "--out", str(tmp_path / "kits"), "--json"]
    ended = command("federation", "create", *words)
    assert ended.returncode == 0 and set(json.loads(ended.stdout)) == {"server", "coordinator", "ada", "bern"}
    shown = ended.stderr.strip().rpartition("shown this once: ")[2]
    Authority.open(tmp_path / "kits" / "authority", shown)
    short = tmp_path / "short"
    short.write_text("short")
    short.chmod(0o600)
    words = ["--sites", "a,b", "--host", "h", "--out", tmp_path / "other", "--passphrase-file", short]
    assert "expected 12 characters or more" in refused("federation", "create", *words)


@contextmanager
def served(kits):
    """The server of these kits as a process; the file with the lines that it says."""
    words = ["-m", "fedsynth.deploy.nvflare.node", str(kits / "server"), "server", "127.0.0.1"]
    log = kits / "server.log"
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, *words], stdout=file, stderr=file)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(120)


@pytest.mark.recipe
def test_a_running_server_refuses_a_revoked_kit_at_its_next_connection_and_takes_the_new_one(kits, tmp_path):
    stolen = Kit.load(shutil.copytree(kits / "sites" / "ada", tmp_path / "ada"), "site")
    bern = Kit.load(kits / "sites" / "bern", "site")

    def answered(kit: Kit) -> bool:
        try:
            return bool(kit.reach())
        except BadInput:
            return False

    with served(kits) as log:
        until("the server", lambda: answered(stolen))
        done("replace", kits, "ada")  # writes the list into the server's kit, which runs here
        until("the new list", lambda: "void certificates" in log.read_text())
        until("the server again", lambda: answered(bern))
        with pytest.raises(BadInput, match="refuses this kit's certificate|hangs up without an answer"):
            stolen.reach()
        assert answered(Kit.load(kits / "sites" / "ada", "site"))
