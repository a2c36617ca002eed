"""Who is in a consortium: kits for new members, new keys for old ones, and certificates that are taken back.

What is handed over by whom is said by the commands; nothing here reaches a party that is elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from nvflare.lighter.entity import Project
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner

from fedsynth.data.configuration import build, read_file
from fedsynth.deploy.nvflare.authority import Authority, new_key, public_key_in, write_key
from fedsynth.deploy.nvflare.kits import (
    ALLOWED,
    COORDINATOR,
    REVOKED,
    Kit,
    write_json,
    write_rights,
)
from fedsynth.deploy.nvflare.service_files import write_service_files
from fedsynth.errors import BadInput, nearest

_SERVICES = ("server", "coordinator")
_DESCRIPTION = "federation.json"  # in the authority's folder
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


@dataclass(frozen=True)
class Consortium:
    """A federation that `create` made: the address of its server and its sites."""

    host: str
    port: int
    sites: tuple[str, ...]

    def kit(self, out: Path, name: str) -> Kit:
        """The kit of a party, whether it is there or not."""
        role = name if name in _SERVICES else "site"
        folder = out / "sites" / name if role == "site" else out / name
        return Kit(folder.resolve(), role, name, self.host, self.port, self.sites)

    @property
    def parties(self) -> tuple[str, ...]:
        """Everybody who has a kit."""
        return (*_SERVICES, *self.sites)


def create(sites: Sequence[str], host: str, port: int, out: Path, passphrase: str) -> list[Kit]:
    """Make an authority and a kit for the server, the coordinator and each site."""
    _check_names(sites)
    _check_address(host, port)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out}: exists already; choose another --out, or `fedsynth federation renew {out}`")
    out.mkdir(parents=True, exist_ok=True)
    consortium = Consortium(host, port, tuple(sites))
    return _issue(Authority.create(out / "authority", passphrase), consortium, out, consortium.parties)


def renew(out: Path, passphrase: str, names: Sequence[str] = (), request: Path | None = None) -> list[Kit]:
    """New keys and certificates for these parties (default: all); the old ones are valid until they end."""
    consortium = _load(out)
    for name in names:
        _check_known(name, consortium)
    authority = Authority.open(out / "authority", passphrase)
    return _issue(authority, consortium, out, tuple(names) or consortium.parties, request)


def add(out: Path, passphrase: str, name: str, request: Path | None = None) -> Kit:
    """Make a kit for a new site; with its `request`, for the key that it made itself."""
    consortium = _load(out)
    if name in consortium.sites:
        raise BadInput(f"{name}: is a member already; `fedsynth federation replace {out} {name}`")
    sites = (*consortium.sites, name)
    _check_names(sites)
    authority = Authority.open(out / "authority", passphrase)
    return _issue(authority, replace(consortium, sites=sites), out, (name,), request)[0]


def replace_kit(out: Path, passphrase: str, name: str, request: Path | None = None) -> Kit:
    """Make a new kit for a party whose kit was lost, and take its old certificates back."""
    consortium = _load(out)
    _check_known(name, consortium)
    authority = Authority.open(out / "authority", passphrase)
    public_key = public_key_in(request, name) if request else None  # refused before anything changes
    authority.revoke(_subject(name))
    return _issue(authority, consortium, out, (name,), public_key=public_key)[0]


def revoke(out: Path, passphrase: str, name: str) -> int:
    """Put a site out of the consortium; how many certificates were taken back."""
    consortium = _load(out)
    _check_known(name, consortium)
    if name in _SERVICES:
        raise BadInput(f"{name}: no federation works without it; `fedsynth federation replace {out} {name}`")
    authority = Authority.open(out / "authority", passphrase)
    count = authority.revoke(_subject(name))
    shutil.rmtree(consortium.kit(out, name).folder, ignore_errors=True)
    sites = tuple(site for site in consortium.sites if site != name)
    _announce(authority, replace(consortium, sites=sites), out)
    return count


def _load(out: Path) -> Consortium:
    path = out / "authority" / _DESCRIPTION
    if not path.is_file():
        earlier = any((out / "authority").rglob("cert.json"))
        why = " (one of an earlier version, which kept every key in the clear: make a new consortium)"
        raise BadInput(
            f"{out}: holds no authority{why if earlier else ''}; go where `fedsynth federation create` was run"
        )
    return build(Consortium, read_file(path))


def _subject(name: str) -> str:
    return COORDINATOR if name == "coordinator" else name


def _check_known(name: str, consortium: Consortium) -> None:
    if name not in consortium.parties:
        raise BadInput(f"{name}: no such party; {nearest(name, list(consortium.parties))}")


def _check_names(sites: Sequence[str]) -> None:
    if len(sites) < 2:
        raise BadInput(f"--sites {','.join(sites)}: a federation needs at least two sites")
    for name in sites:
        if not _NAME.fullmatch(name) or len(name) > 40:
            raise BadInput(
                f"--sites {name}: expected lower-case letters, digits and hyphens, at most 40 of them"
            )
        if name in (*_SERVICES, "authority"):
            raise BadInput(f"--sites {name}: this name is taken; choose another")
        if list(sites).count(name) > 1:
            raise BadInput(f"--sites {name}: named twice; each site has a name of its own")


def _check_address(host: str, port: int) -> None:
    if not 1 <= port <= 65535:
        raise BadInput(f"--port {port}: expected a port between 1 and 65535")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
        raise BadInput(f"--host {host}: expected a host name or an IPv4 address that the sites can reach")


def _issue(
    authority: Authority,
    consortium: Consortium,
    out: Path,
    names: Sequence[str],
    request: Path | None = None,
    public_key: rsa.RSAPublicKey | None = None,
) -> list[Kit]:
    """Fill the kits of these parties, each with a new key or for the key in the party's request."""
    if request is not None:
        if len(names) != 1 or names[0] in _SERVICES:
            raise BadInput(f"--request {request}: it is of one site; name just that")
        public_key = public_key_in(request, names[0])
    kits = [consortium.kit(out, name) for name in names]
    with _provisioned(consortium) as made:
        for kit in kits:
            _fill(kit, made / _subject(kit.name))
            own = None if public_key is not None else new_key()
            if own is not None:
                write_key(kit.key, own)
            key = public_key or (own.public_key() if own else None)
            assert key is not None
            role = "lead" if kit.role == "coordinator" else ""
            host = consortium.host if kit.role == "server" else ""
            organization = kit.name.replace("-", "_")
            signed = authority.sign(_subject(kit.name), organization, key, role=role, host=host)
            kit.certificate.write_bytes(signed)
            (kit.startup / "rootCA.pem").write_bytes(authority.certificate_pem)
            _explain(kit)
    _announce(authority, consortium, out)
    return kits


def _announce(authority: Authority, consortium: Consortium, out: Path) -> None:
    """Write what all parties should know into every kit: who is a member, and which certificates are void."""
    write_json(authority.folder / _DESCRIPTION, asdict(consortium))
    for kit in (consortium.kit(out, name) for name in consortium.parties):
        kit.startup.mkdir(mode=0o700, parents=True, exist_ok=True)  # also of a kit that was handed over
        kit.folder.chmod(0o700)
        (kit.startup / REVOKED).write_bytes(authority.revoked_pem)
        keys = {name: value for name, value in asdict(kit).items() if name != "folder"}
        write_json(kit.folder / "kit.json", keys)


@contextlib.contextmanager
def _provisioned(consortium: Consortium) -> Iterator[Path]:
    """The engine's own files for every party, without keys; what its provisioning prints is of no use to people."""
    project = Project("fedsynth", "fedsynth federation")
    ports = {"fed_learn_port": consortium.port, "admin_port": consortium.port}
    address = {"default_host": consortium.host, "host_names": [consortium.host]}
    project.set_server("server", "server", {**ports, **address})
    for name in consortium.sites:
        project.add_client(name, name.replace("-", "_"), {})
    project.add_admin(COORDINATOR, "coordinator", {"role": "lead"})
    builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config")]
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            result = Provisioner(folder, builders).provision(project)
        location = result.get_result_location()
        if location is None or not Path(location).is_dir():
            raise BadInput(f"kits could not be made ({printed.getvalue().strip()[-300:]})")
        yield Path(location)


def _fill(kit: Kit, provisioned: Path) -> None:
    """Take addresses from what the engine made; write the rules ourselves."""
    startup, local = kit.startup, kit.folder / "local"
    shutil.rmtree(startup, ignore_errors=True)
    startup.mkdir(parents=True)
    local.mkdir(exist_ok=True)
    kit.folder.chmod(0o700)
    for path in (provisioned / "startup").glob("fed_*"):
        shutil.copy(path, startup / path.name)
    if kit.role == "server":
        target = startup / "fed_server.json"
        keys = json.loads(target.read_text())
        keys["servers"][0]["service"]["target"] = f"{kit.host}:{kit.port}"
        write_json(target, keys)
    write_json(local / "resources.json", _resources(kit, provisioned / "local" / "resources.json.default"))
    if kit.role != "coordinator":
        write_rights(kit)
        write_json(
            local / "log_config.json", _logging(kit, provisioned / "local" / "log_config.json.default")
        )
        write_service_files(kit.folder, kit.role, kit.title, kit.name, kit.port)
    (kit.folder / "transfer").mkdir(exist_ok=True)


def _explain(kit: Kit) -> None:
    """Write the kit's README."""
    text = _README[kit.role].format(folder=kit.folder.name, host=kit.host, port=kit.port)
    secret = (
        f"`startup/` holds a private key: give this folder to {kit.title} alone, by a safe way, and keep no copy."
        if kit.key.exists()
        else f"Unpack it over the folder in which {kit.title} made its own key: `startup/client.key` stays there."
    )
    (kit.folder / "README.md").write_text(
        f"# fedsynth: start-up kit of the {kit.title}\n\n{text}\n\n{secret} "
        f"The certificate is valid until {kit.expires:%Y-%m-%d}.\n"
    )


def _logging(kit: Kit, default: Path) -> Mapping[str, Any]:
    """The engine's logging; at the server not which site was sent work when, since that shows who was drawn."""
    keys: dict[str, Any] = json.loads(default.read_text())
    if kit.role == "server":
        keys["loggers"]["root"]["level"] = "WARNING"
    return keys


def _resources(kit: Kit, default: Path) -> Mapping[str, Any]:
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
