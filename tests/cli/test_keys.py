import json
import stat

import numpy as np
import pytest
import torch

from fedsynth.cli.main import main
from fedsynth.errors import BadInput
from fedsynth.rng import Rng
from fedsynth.transport import keys
from fedsynth.transport.he import Homomorphic
from fedsynth.transport.primitives import signed_by
from fedsynth.transport.wire import Real


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["keys", *map(str, arguments)])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("service") / "KEYS"
    assert run("create", "--sites", "berlin,lyon", "--out", out) == 0
    return out


def secret_windows(folder) -> list[bytes]:
    """Pieces of every secret in the parties' folders."""
    found = []
    for path in folder.rglob("*"):
        if path.name == keys.IDENTITY:
            found.append(keys.load_identity(path)[1].secret)
        if path.suffix == ".secret":
            secret = keys.load_keys(path).secret
            found += [secret[at : at + 32] for at in range(200, len(secret) - 32, 4999)]
    return found


def test_secrets_are_for_their_owner_alone(folder):
    secrets = [path for path in folder.rglob("*") if path.name == keys.IDENTITY or path.suffix == ".secret"]
    assert len(secrets) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nothing_secret_is_in_the_servers_folder(folder):
    files = [path for path in (folder / "server").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["he.public", "identities.json"]
    held = b"".join(path.read_bytes() for path in files)
    windows = secret_windows(folder)
    assert len(windows) > 20
    assert not [window for window in windows if window in held or window.hex().encode() in held]


def test_the_files_of_all_parties_work_together(folder):
    wire = Real(50, reach=1.0)
    berlin, lyon = (
        Homomorphic(keys=keys.load_keys(folder / site / "he.secret")).fitted(wire, 2)
        for site in ("berlin", "lyon")
    )
    server = Homomorphic(keys=keys.load_server_keys(folder / "server")).fitted(wire, 2)
    messages = [client.rounded(torch.randn(1, 50), Rng(), np.arange(1)) for client in (berlin, lyon)]
    total = server.zero(wire)
    for client, message in zip((berlin, lyon), messages, strict=True):
        total = server.add(total, client.seal(message))
    assert torch.equal(berlin.open(wire, server.close(total)), torch.cat(messages).mean(0))


def test_the_server_knows_whose_signature_it_sees(folder):
    name, identity = keys.load_identity(folder / "lyon" / "identity.key")
    known = keys.load_identities(folder / "server" / "identities.json")
    assert name == "lyon" and signed_by(known["lyon"], identity.sign(b"hello"), b"hello")
    assert not signed_by(known["berlin"], identity.sign(b"hello"), b"hello")


def test_the_fingerprint_is_shown_and_is_that_of_every_file(folder, capsys):
    run("show", folder)
    shown = capsys.readouterr().out
    fingerprints = {
        keys.load_keys(path).fingerprint.hex()
        for path in folder.rglob("he.*")
        if path.suffix in (".secret", ".public")
    }
    assert len(fingerprints) == 1
    assert fingerprints.pop() in shown.replace(" ", "")
    assert "Can open: berlin, lyon. Cannot: server" in shown


def test_the_readme_says_which_folder_goes_where(folder):
    text = (folder / "README.txt").read_text()
    assert "berlin/" in text and "lyon/" in text and "server/" in text
    assert "Any one of them that helps the server opens every message." in text


def test_one_object_of_json_is_printed(folder, capsys):
    assert run("show", folder, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["problems"] == [] and shown["clients"] == 2 and set(shown["sites"]) == {"berlin", "lyon"}


def test_a_secret_that_others_can_read_is_refused_and_shown(tmp_path, capsys):
    run("create", "--sites", "A,B", "--out", tmp_path / "K")
    (tmp_path / "K" / "A" / "he.secret").chmod(0o640)
    with pytest.raises(BadInput, match="mode 640, which others can read"):
        keys.load_keys(tmp_path / "K" / "A" / "he.secret")
    (tmp_path / "K" / "B" / "identity.key").chmod(0o604)
    with pytest.raises(BadInput, match="mode 604"):
        keys.load_identity(tmp_path / "K" / "B" / "identity.key")


def test_showing_exits_with_one_if_a_secret_lies_with_the_server(tmp_path, capsys):
    run("create", "--clients", "3", "--out", tmp_path / "K")
    stray = tmp_path / "K" / "server" / "he.secret"
    stray.write_bytes((tmp_path / "K" / "clients" / "he.secret").read_bytes())
    stray.chmod(0o600)
    assert run("show", tmp_path / "K") == 1
    assert "a secret in the server's folder" in capsys.readouterr().out
    with pytest.raises(BadInput, match="where the server can read it"):
        keys.load_server_keys(tmp_path / "K" / "server")


def test_renewed_keys_are_others_and_the_old_still_open(tmp_path):
    out = tmp_path / "K"
    first = keys.create(out, sites=["A", "B"])
    wire = Real(20, reach=1.0)
    before = Homomorphic(keys=keys.load_keys(out / "A" / "he.secret")).fitted(wire, 2)
    message = before.rounded(torch.randn(1, 20), Rng(), np.arange(1))
    sealed = before.seal(message)
    second = keys.renew(out, ["A"])
    assert second.serial == 2 and second.fingerprint != first.fingerprint
    assert second.sites["A"] != first.sites["A"] and second.sites["B"] == first.sites["B"]
    assert keys.load_identities(out / "server" / "identities.json")["A"].hex() == second.sites["A"]
    after = Homomorphic(keys=keys.load_keys(out / "A" / "he.secret")).fitted(wire, 2)
    with pytest.raises(BadInput, match="give all parties the same"):
        after.open(wire, sealed)
    old = Homomorphic(keys=keys.load_keys(out / "A" / "he-1.secret")).fitted(wire, 2)
    assert torch.equal(old.open(wire, sealed), message[0])
    assert keys.problems(out) == []


def test_with_a_key_holder_the_others_cannot_open(tmp_path):
    run("create", "--sites", "A,B,C", "--holder", "B", "--ring-bits", "16", "--out", tmp_path / "K")
    assert [path.parent.name for path in (tmp_path / "K").rglob("he.secret")] == ["B"]
    assert keys.load_keys(tmp_path / "K" / "C" / "he.public").secret is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "--clients: say how many"),
        (["--sites", "A,A"], "a name of its own"),
        (["--sites", "A,server"], "not server"),
        (["--sites", "../up,B"], "letters, digits"),
        (["--sites", "A,B", "--clients", "1"], "no fewer than the 2 sites"),
        (["--sites", "A,B", "--holder", "Z"], "known: A, B"),
        (["--clients", "4", "--scheme", "rsa"], "known: bfv, ckks"),
        (["--clients", "1000000", "--ring-bits", "31"], "no layout"),
    ],
)
def test_bad_requests_are_refused_and_write_nothing(tmp_path, capsys, options, reason):
    assert run("create", *options, "--out", tmp_path / "K") == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "K").exists()


def test_an_existing_folder_is_not_written_over(folder, capsys):
    assert run("create", "--clients", "2", "--out", folder) == 2
    assert "exists already" in capsys.readouterr().err


def test_files_that_are_no_keys_are_refused(tmp_path):
    path = tmp_path / "he.public"
    path.write_bytes(b"\x08\0\0\0\0\0\0\0garbage!")
    with pytest.raises(BadInput, match="cannot be read"):
        keys.load_keys(path)
    with pytest.raises(BadInput, match="not found"):
        keys.load_keys(tmp_path / "he.secret")
    (tmp_path / "keys.json").write_text('{"serial": 1}')
    with pytest.raises(BadInput, match="keys.json: cannot be read"):
        keys.KeyRecord.load(tmp_path)


def test_a_public_file_renamed_to_secret_is_refused(folder, tmp_path):
    path = tmp_path / "he.secret"
    path.write_bytes((folder / "server" / "he.public").read_bytes())
    path.chmod(0o600)
    with pytest.raises(BadInput, match="under a wrong name"):
        keys.load_keys(path)


def test_a_site_joins_and_another_leaves_and_all_know_the_same_identities(tmp_path, capsys):
    out = tmp_path / "KEYS"
    assert run("create", "--sites", "berlin,lyon", "--clients", "3", "--out", out) == 0
    before = keys.load_identities(out / "lyon" / "identities.json")
    assert run("renew", out, "--add", "turin", "--drop", "berlin") == 0
    for party in ("server", "lyon", "turin"):
        assert set(keys.load_identities(out / party / "identities.json")) == {"lyon", "turin"}
    name, identity = keys.load_identity(out / "turin" / "identity.key")
    known = keys.load_identities(out / "lyon" / "identities.json")
    assert name == "turin" and signed_by(known["turin"], identity.sign(b"hello"), b"hello")
    assert known["lyon"] == before["lyon"]
    assert not (
        out / "berlin" / "he.secret"
    ).exists()  # what berlin has opens nothing that is sealed from now on
    assert keys.problems(out) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--add", "lyon"], "is there already"),
        (["--add", "turin"], "sums of up to 2; make new ones with fedsynth keys create --clients 3"),
        (["--add", "server", "--drop", "lyon"], "not server or clients"),
        (["--drop", "turin"], "drop='turin': no such site"),
        (["--drop", "lyon", "--drop", "berlin"], "nobody could open sums"),
    ],
)
def test_members_that_do_not_fit_are_refused_and_nothing_changes(folder, capsys, words, said):
    before = (folder / "keys.json").read_text()
    assert run("renew", folder, *words) == 2
    assert said in capsys.readouterr().err and (folder / "keys.json").read_text() == before
