"""Start-up kits: a folder for each party with its own key, its certificate and rules that the others cannot change.

The consortium's own authority signs all certificates. A kit refuses shipped code, allows fedsynth's classes alone,
sends no logs to anybody, and keeps its stores in its own folder.
"""

from __future__ import annotations

import datetime
import json
import socket
import ssl
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from fedsynth.data.atomic import write_file
from fedsynth.data.configuration import build, check, keys_of, read_file
from fedsynth.errors import BadInput

COORDINATOR = "coordinator@fedsynth.org"  # the engine wants the form of an address; it is only a name
REVOKED = "revoked.pem"  # in `startup`: which certificates the authority has taken back
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
_CODE_REVOKED = 23  # X509_V_ERR_CERT_REVOKED


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
        if _public_bytes(own.public_key()) != _public_bytes(_private_key(self.key).public_key()):
            raise BadInput(
                f"{self.key}: not the key of {self.certificate.name}; unpack the kit over the folder in which the key "
                "was made, or take a fresh copy of the kit"
            )

    def reach(self, timeout_s: float = 5.0) -> str:
        """Shake hands with the server, both sides showing their certificate, or say in a sentence why not.

        Returns the beginning of the server's answer, which is no page.
        """
        where = f"the server at {self.host}:{self.port}"
        context = ssl.create_default_context(cafile=str(self.startup / "rootCA.pem"))
        context.check_hostname = False  # the engine's server is known by its signed name, checked below
        context.load_cert_chain(self.certificate, self.key)
        refuse_revoked(context, self)
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
            if error.verify_code == _CODE_REVOKED:
                raise BadInput(
                    f"{where} shows a certificate that the authority has taken back; do not trust it, and ask "
                    "whoever admits members"
                ) from None
            raise BadInput(
                f"{where} shows a certificate of another authority ({error.verify_message}); is this the right kit?"
            ) from None
        except ssl.SSLError as error:
            raise BadInput(
                f"{where} refuses this kit's certificate ({error.reason}); if it was taken back, whoever admits "
                "members makes a new kit (fedsynth federation replace)"
            ) from None
        except TimeoutError:
            raise Unreachable(
                f"{where} does not answer within {timeout_s:g} s; check the address and the firewall"
            ) from None
        except OSError as error:
            raise Unreachable(
                f"{where} cannot be reached ({error.strerror or error}); is it started?"
            ) from None


def server_time(answer: str) -> datetime.datetime | None:
    r"""Read the server's clock from the beginning of its answer (`Kit.reach`); None if it does not tell.

    >>> server_time("HTTP/1.1 400 Bad Request\r\nDate: yesterday\r\n") is None
    True
    """
    date = next((line[5:].strip() for line in answer.splitlines() if line.lower().startswith("date:")), "")
    try:
        clock = parsedate_to_datetime(date)
    except ValueError:
        return None
    return clock if clock.tzinfo else clock.replace(tzinfo=datetime.UTC)


def refuse_revoked(context: ssl.SSLContext, kit: Kit) -> None:
    """Have this context refuse every certificate that the authority has taken back, as far as this kit knows."""
    path = kit.startup / REVOKED
    if not path.exists():  # a kit of before there was a list
        return
    try:
        context.load_verify_locations(cafile=str(path))
    except ssl.SSLError as error:
        raise BadInput(f"{path}: no list of certificates ({error.reason}); take a fresh copy of it") from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


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
    write_json(path, keys)
    if kit.role != "coordinator":
        write_rights(kit)


def write_rights(kit: Kit) -> None:
    """Write what the coordinator may ask of this party."""
    rights = {"format_version": "1.0", "permissions": {"lead": RIGHTS}}
    write_json(kit.folder / "local" / "authorization.json", rights)


def write_json(path: Path, keys: Any) -> None:
    """Write a file of settings."""
    write_file(path, json.dumps(keys, indent=1) + "\n")


def _common_name(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise BadInput(f"{path}: not a certificate; take a fresh copy of the kit") from None


def _private_key(path: Path) -> Any:
    try:
        return serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        raise BadInput(f"{path}: not a private key; take a fresh copy of the kit") from None


def _public_bytes(key: Any) -> bytes:
    der, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_bytes(der, form))
