"""Start-up kits: a folder for each party with its own key, its certificate and rules that the others cannot change.

The consortium's own authority signs all certificates. A kit refuses shipped code, allows fedsynth's classes alone,
sends no logs to anybody, and keeps its stores in its own folder.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import re
import shutil
import socket
import ssl
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID
from nvflare.lighter.entity import Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner

from fedsynth.data.atomic import OWNER_ONLY, write_file
from fedsynth.data.configuration import build, check, keys_of, read_file
from fedsynth.deploy.nvflare.service_files import write_service_files
from fedsynth.errors import BadInput, nearest

PROJECT = "fedsynth"
COORDINATOR = "coordinator@fedsynth.org"  # the engine wants the form of an address; it is only a name
AUTHORITY_DAYS = 3650
ALLOWED = {
    "server": ("fedsynth.deploy.nvflare.controller.", "fedsynth.deploy.server_job."),
    "site": ("fedsynth.deploy.nvflare.executor.", "fedsynth.deploy.site_job."),
}
RIGHTS = {
    "submit_job": "any",
    "manage_job": "n:submitter",
    "download_job": "none",  # it holds the server's log
    "configure_job_log": "none",
    "app_command": "n:submitter",
    "view": "any",
    "show_stats": "none",  # which sites have work now
    "show_errors": "none",
    "clone_job": "none",
    "operate": "none",
    "shell_commands": "none",
    "byoc": "none",
    "server-predeployed-flwr": "none",
}
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_README = {
    "server": (
        "Start it with\n\n    fedsynth federation serve {folder}\n\n"
        "It listens on {host}:{port} and nowhere else. `runs/` keeps checkpoints and ledgers: back it up."
    ),
    "site": (
        "Start it with\n\n    fedsynth site start {folder} --config site.toml\n\n"
        "It connects out to {host}:{port}; no port needs to be opened here. Your rows, site.toml and the state "
        "folder that it names never leave this machine."
    ),
    "coordinator": "Start a run with\n\n    fedsynth run --federation {folder} --schema schema.json ... --out RUN",
}


class Unreachable(BadInput):
    """The server does not answer; it may later."""


@dataclass(frozen=True)
class Kit:
    """One party's folder."""

    folder: Path
    role: str  # server, site or coordinator
    name: str
    host: str
    port: int
    sites: tuple[str, ...]

    @classmethod
    def load(cls, folder: Path | str, role: str) -> Kit:
        """Read a kit, and refuse one that is of another role, incomplete, expired or of another consortium."""
        place = Path(folder)
        if role == "coordinator" and (place / "coordinator" / "kit.json").exists():
            place = place / "coordinator"
        path = place / "kit.json"
        if not path.is_file():
            raise BadInput(
                f"{place}: not a start-up kit (no kit.json); expected a folder that `fedsynth federation create` made"
            )
        try:
            keys = read_file(path)
            check(keys, {name: key for name, key in keys_of(cls).items() if name != "folder"}, path)
        except BadInput as error:
            raise BadInput(f"{error}; take a fresh copy of the kit") from None
        kit = build(cls, keys, folder=place.resolve())
        if kit.role != role:
            raise BadInput(f"{place}: the kit of the {kit.title}, but that of a {role} is needed here")
        kit.check()
        return kit

    @property
    def title(self) -> str:
        """How messages name it."""
        return f"site {self.name}" if self.role == "site" else self.role

    @property
    def startup(self) -> Path:
        """The folder of keys and certificates."""
        return self.folder / "startup"

    @property
    def certificate(self) -> Path:
        """The party's certificate."""
        return self.startup / ("server.crt" if self.role == "server" else "client.crt")

    @property
    def key(self) -> Path:
        """The party's private key."""
        return self.certificate.with_suffix(".key")

    @property
    def expires(self) -> datetime.datetime:
        """When the certificate ends."""
        return _certificate(self.certificate).not_valid_after_utc

    def check(self) -> None:
        """Refuse keys that others can read, and certificates that are expired or not this consortium's."""
        for path in (self.certificate, self.key, self.startup / "rootCA.pem"):
            if not path.is_file():
                raise BadInput(
                    f"{path}: missing from the kit of the {self.title}; take a fresh copy of the kit"
                )
        if self.key.stat().st_mode & 0o077:
            raise BadInput(f"{self.key}: other users may read this private key; run chmod 600 {self.key}")
        own, authority = _certificate(self.certificate), _certificate(self.startup / "rootCA.pem")
        expected = COORDINATOR if self.role == "coordinator" else self.name
        if _common_name(own) != expected:
            raise BadInput(
                f"{self.certificate}: made for {_common_name(own)!r}, but the kit says that it is {self.name!r}; "
                "nobody can speak for another party: take a fresh copy of the kit"
            )
        now = datetime.datetime.now(datetime.UTC)
        if own.not_valid_after_utc < now:
            raise BadInput(
                f"{self.certificate}: expired on {own.not_valid_after_utc:%Y-%m-%d}; ask for a new kit "
                "(fedsynth federation renew)"
            )
        if own.not_valid_before_utc > now + datetime.timedelta(minutes=5):
            raise BadInput(
                f"{self.certificate}: valid from {own.not_valid_before_utc} on; is this clock right?"
            )
        try:
            own.verify_directly_issued_by(authority)
        except (ValueError, InvalidSignature):
            raise BadInput(
                f"{self.certificate}: not signed by this consortium's authority (rootCA.pem); "
                "take a fresh copy of the kit"
            ) from None

    def reach(self, timeout_s: float = 5.0) -> str:
        """Shake hands with the server, both sides showing their certificate, or say in a sentence why not.

        Returns the beginning of the server's answer, which is no page.
        """
        where = f"the server at {self.host}:{self.port}"
        context = ssl.create_default_context(cafile=str(self.startup / "rootCA.pem"))
        context.check_hostname = False  # the engine's server is known by its signed name, checked below
        context.load_cert_chain(self.certificate, self.key)
        try:
            with (
                socket.create_connection((self.host, self.port), timeout=timeout_s) as plain,
                context.wrap_socket(plain) as secured,
            ):
                shown = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
                if _common_name(shown) != "server":
                    raise BadInput(
                        f"{where} shows the certificate of {_common_name(shown)!r}, not of the server"
                    )
                # under TLS 1.3 a refused client certificate shows only when something is read
                secured.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answer = secured.recv(1024)
                if not answer:
                    raise Unreachable(
                        f"{where} hangs up without an answer: it is stopping, or refuses this kit's certificate"
                    )
                return answer.decode("latin-1")
        except ssl.SSLCertVerificationError as error:
            raise BadInput(
                f"{where} shows a certificate of another authority ({error.verify_message}); is this the right kit?"
            ) from None
        except ssl.SSLError as error:
            raise BadInput(
                f"{where} refuses this kit's certificate ({error.reason}); ask for a new kit"
            ) from None
        except TimeoutError:
            raise Unreachable(
                f"{where} does not answer within {timeout_s:g} s; check the address and the firewall"
            ) from None
        except OSError as error:
            raise Unreachable(
                f"{where} cannot be reached ({error.strerror or error}); is it started?"
            ) from None


def create(sites: Sequence[str], host: str, port: int, out: Path) -> list[Kit]:
    """Make an authority and a kit for the server, the coordinator and each site."""
    _check(sites, host, port)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out}: exists already; choose another --out, or `fedsynth federation renew {out}`")
    out.mkdir(parents=True, exist_ok=True)
    return _issue(tuple(sites), host, port, out)


def renew(out: Path, names: Sequence[str] = ()) -> list[Kit]:
    """New keys and certificates for these parties (default: all); what they keep in their kits stays."""
    authority = out / "authority"
    state = authority / PROJECT / "state" / "cert.json"
    if not state.is_file():
        raise BadInput(f"{out}: holds no authority; renew where `fedsynth federation create` was run")
    keys = json.loads((out / "server" / "kit.json").read_text())
    known = ["server", "coordinator", *keys["sites"]]
    for name in names:
        if name not in known:
            raise BadInput(f"{name}: no such party; {nearest(name, known)}")
    certificates = json.loads(state.read_text())
    for name in names or known:
        certificates.pop(COORDINATOR if name == "coordinator" else name, None)
    write_file(state, json.dumps(certificates), OWNER_ONLY)
    return _issue(tuple(keys["sites"]), keys["host"], keys["port"], out, only=set(names or known))


def _check(sites: Sequence[str], host: str, port: int) -> None:
    if len(sites) < 2:
        raise BadInput(f"--sites {','.join(sites)}: a federation needs at least two sites")
    for name in sites:
        if not _NAME.fullmatch(name) or len(name) > 40:
            raise BadInput(
                f"--sites {name}: expected lower-case letters, digits and hyphens, at most 40 of them"
            )
        if name in ("server", "coordinator", "authority"):
            raise BadInput(f"--sites {name}: this name is taken; choose another")
        if list(sites).count(name) > 1:
            raise BadInput(f"--sites {name}: named twice; each site has a name of its own")
    if not 1 <= port <= 65535:
        raise BadInput(f"--port {port}: expected a port between 1 and 65535")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
        raise BadInput(f"--host {host}: expected a host name or an IPv4 address that the sites can reach")


def _issue(
    sites: tuple[str, ...], host: str, port: int, out: Path, only: set[str] | None = None
) -> list[Kit]:
    provisioned = _provision(sites, host, port, out / "authority")
    kits = []
    for name in ("server", "coordinator", *sites):
        role = name if name in ("server", "coordinator") else "site"
        kit = Kit(_place(out, name, role).resolve(), role, name, host, port, sites)
        if only is None or name in only:
            _fill(kit, provisioned / (COORDINATOR if role == "coordinator" else name))
        kits.append(kit)
    shutil.rmtree(provisioned)
    return kits


def _place(out: Path, name: str, role: str) -> Path:
    return out / "sites" / name if role == "site" else out / name


def _provision(sites: tuple[str, ...], host: str, port: int, authority: Path) -> Path:
    """Run the engine's provisioning; what it prints is of no use to people."""
    project = Project(PROJECT, "fedsynth federation")
    ports = {"fed_learn_port": port, "admin_port": port}
    project.set_server("server", "server", {**ports, "default_host": host, "host_names": [host]})
    for name in sites:
        project.add_client(name, name.replace("-", "_"), {})
    project.add_admin(COORDINATOR, "coordinator", {"role": "lead"})
    builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config"), CertBuilder(AUTHORITY_DAYS)]
    authority.mkdir(exist_ok=True)
    authority.chmod(0o700)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        result = Provisioner(str(authority), builders).provision(project)
    location = result.get_result_location()
    if location is None or not Path(location).is_dir():
        raise BadInput(f"{authority}: certificates could not be made ({printed.getvalue().strip()[-300:]})")
    for path in authority.rglob("cert.json"):
        path.chmod(0o600)
    return Path(location)


def _fill(kit: Kit, provisioned: Path) -> None:
    """Take keys, certificates and addresses from what the engine made; write the rules ourselves."""
    startup, local = kit.startup, kit.folder / "local"
    shutil.rmtree(startup, ignore_errors=True)
    startup.mkdir(parents=True)
    local.mkdir(exist_ok=True)
    kit.folder.chmod(0o700)
    for path in (provisioned / "startup").iterdir():
        if path.suffix in (".crt", ".key", ".pem") or path.name.startswith("fed_"):
            shutil.copy(path, startup / path.name)
    kit.key.chmod(0o600)
    if kit.role == "server":
        target = startup / "fed_server.json"
        keys = json.loads(target.read_text())
        keys["servers"][0]["service"]["target"] = f"{kit.host}:{kit.port}"
        _write(target, keys)
    _write(local / "resources.json", _resources(kit, provisioned / "local" / "resources.json.default"))
    if kit.role != "coordinator":
        _write(local / "authorization.json", {"format_version": "1.0", "permissions": {"lead": RIGHTS}})
        _write(local / "log_config.json", _logging(kit, provisioned / "local" / "log_config.json.default"))
        write_service_files(kit.folder, kit.role, kit.title, kit.name, kit.port)
    (kit.folder / "transfer").mkdir(exist_ok=True)
    _write(kit.folder / "kit.json", {key: value for key, value in asdict(kit).items() if key != "folder"})
    text = _README[kit.role].format(folder=kit.folder.name, host=kit.host, port=kit.port)
    (kit.folder / "README.md").write_text(
        f"# fedsynth: start-up kit of the {kit.title}\n\n{text}\n\n"
        f"`startup/` holds a private key: give this folder to {kit.title} alone, by a safe way, and keep no copy. "
        f"The certificate is valid until {kit.expires:%Y-%m-%d}.\n"
    )


def _logging(kit: Kit, default: Path) -> dict[str, Any]:
    """The engine's logging; at the server not which site was sent work when, since that shows who was drawn."""
    keys: dict[str, Any] = json.loads(default.read_text())
    if kit.role == "server":
        keys["loggers"]["root"]["level"] = "WARNING"
    return keys


def _resources(kit: Kit, default: Path) -> dict[str, Any]:
    """The engine's local settings: our classes alone, no logs sent out, stores inside the kit."""
    keys: dict[str, Any] = json.loads(default.read_text())
    if kit.role == "coordinator":
        return keys
    keys["class_allow_list"] = list(ALLOWED[kit.role])
    keys["components"] = [
        part for part in keys["components"] if part["id"] not in ("site_log_streamer", "log_receiver")
    ]
    if kit.role == "site":
        keys["allow_log_streaming"] = False  # an error log may quote a row
    return keys


def brought_up_to_date(kit: Kit) -> None:
    """Allow the classes of the installed version in a kit of before, and point a server's stores at its folder."""
    path = kit.folder / "local" / "resources.json"
    keys = json.loads(path.read_text())
    keys["class_allow_list"] = list(ALLOWED[kit.role])
    if kit.role == "server":
        store = kit.folder / "store"  # wherever the kit lies now
        keys["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
        for part in keys["components"]:
            if part["id"] == "job_manager":
                part["args"]["uri_root"] = str(store / "jobs")
    _write(path, keys)
    if kit.role != "coordinator":
        rights = {"format_version": "1.0", "permissions": {"lead": RIGHTS}}
        _write(kit.folder / "local" / "authorization.json", rights)


def _common_name(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise BadInput(f"{path}: not a certificate; take a fresh copy of the kit") from None


def _write(path: Path, keys: Any) -> None:
    write_file(path, json.dumps(keys, indent=1) + "\n")
