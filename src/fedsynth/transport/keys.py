"""Key material on disk: who gets which file, what is secret in it, and how it is renewed.

A key service makes one folder a party, away from the server. The server's has public halves only. A secret is a file
that its owner alone can read; one that others could read is refused, as is a secret in the server's folder.
"""

from __future__ import annotations

import datetime
import json
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from fedsynth.data.atomic import OWNER_ONLY, write_file
from fedsynth.errors import BadInput
from fedsynth.transport.he_packing import PAPER, Packed
from fedsynth.transport.he_scheme import Keys, Parameters
from fedsynth.transport.primitives import KEY, Identity

SERVER, CLIENTS = "server", "clients"  # folders of the server, and of all clients where sites have no names
PUBLIC, SECRET, IDENTITY, IDENTITIES, RECORD = (
    "he.public",
    "he.secret",
    "identity.key",
    "identities.json",
    "keys.json",
)
_KIND = "fedsynth he key 1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PLANNED_DIM = 1_000_000  # keys do not depend on the model; this only weighs the layouts
_README = """\
Keys of one federation, made by `fedsynth keys create`. Move each folder to its party over a channel that you trust,
then delete it here. Nothing in this folder may lie where the server can read it, but for server/.

server/       the server: adds up sealed messages, knows the sites' identities, opens nothing
{parties}
he.public        seals and adds; not secret
he.secret        opens what was sealed. {opens}
identity.key     one site's signature; secret, for that site alone
identities.json  who is who: all sites' public identities; not secret, but nobody may change it
keys.json        fingerprints and dates; compare the fingerprint by telephone

Renew with `fedsynth keys renew` when a site leaves, when a secret may have been seen, or once a year; the old secret
stays beside the new one as he-SERIAL.secret until you delete it, to open what was sealed before.
"""


@dataclass(frozen=True)
class KeyRecord:
    """The public description of a folder of keys."""

    serial: int
    created: str
    parameters: Parameters
    clients: int
    fingerprint: str
    sites: Mapping[str, str]  # public identities by name, hexadecimal
    holder: str | None = None  # the only site that can open, or None: all can

    @property
    def openers(self) -> tuple[str, ...]:
        """The folders that hold the secret key."""
        if self.holder is not None:
            return (self.holder,)
        return tuple(self.sites) or (CLIENTS,)

    @property
    def parties(self) -> tuple[str, ...]:
        """All folders but the server's."""
        return tuple(self.sites) or (CLIENTS,)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "serial": self.serial,
            "created": self.created,
            "parameters": json.loads(self.parameters.to_text()),
            "clients": self.clients,
            "fingerprint": self.fingerprint,
            "sites": dict(self.sites),
            "holder": self.holder,
        }

    @classmethod
    def load(cls, folder: Path) -> KeyRecord:
        """The record of a folder made by `create`."""
        path = folder / RECORD
        if not path.is_file():
            raise BadInput(f"{path}: not found; expected a folder made by fedsynth keys create")
        try:
            read = json.loads(path.read_text())
            parameters = Parameters.from_text(json.dumps(read["parameters"]))
            sites = {str(name): bytes.fromhex(key).hex() for name, key in read["sites"].items()}
            numbers = int(read["serial"]), int(read["clients"])
            return cls(
                numbers[0],
                str(read["created"]),
                parameters,
                numbers[1],
                str(read["fingerprint"]),
                sites,
                read["holder"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{path}: cannot be read ({error}); make new keys") from None


def create(
    out: Path,
    *,
    clients: int | None = None,
    sites: Sequence[str] = (),
    holder: str | None = None,
    scheme: str = "bfv",
    ring_bits: int = 0,
) -> KeyRecord:
    """Make key material in a new folder: a subfolder for the server and one for each site (or for all clients).

    `clients` is the most that will be in one sum; without it, the number of sites. With a `holder` that site alone can
    open sums and the others seal with its public key (the transport he-open); without one all sites can (he).
    """
    _check(out, clients, sites, holder, scheme)
    count = clients or len(sites)
    parameters = PAPER
    if scheme == "bfv":
        reach = 0.0 if ring_bits else 1.0
        secret = holder is None
        planned = Packed.planned(_PLANNED_DIM, count, reach=reach, ring_bits=ring_bits, secret=secret)
        parameters = planned.parameters
    keys = Keys.fresh(parameters)
    identities = {name: Identity.fresh() for name in sites}
    public = {name: identity.public.hex() for name, identity in identities.items()}
    record = KeyRecord(1, _now(), parameters, count, keys.fingerprint.hex(), public, holder)
    out.mkdir(mode=0o700, parents=True)
    for name, identity in identities.items():
        _identity(out / name, name, identity)
    _write(out, record, keys)
    return record


def renew(
    folder: Path, identities: Sequence[str] = (), *, add: Sequence[str] = (), drop: Sequence[str] = ()
) -> KeyRecord:
    """Replace the encryption keys, and these sites' identities; old secrets stay beside as he-SERIAL.secret.

    Sites to `add` get a folder and an identity, those to `drop` are no longer known to the others.
    """
    old = KeyRecord.load(folder)
    for flag, names in (("identity", identities), ("drop", drop)):
        unknown = [name for name in names if name not in old.sites]
        if unknown:
            raise BadInput(f"{flag}={unknown[0]!r}: no such site; known: {', '.join(old.sites) or 'none'}")
    _check_members(old, add, drop)
    keys = Keys.fresh(old.parameters)
    public = {name: key for name, key in old.sites.items() if name not in drop}
    for name in (*identities, *add):
        fresh = Identity.fresh()
        _identity(folder / name, name, fresh)
        public[name] = fresh.public.hex()
    for party in old.openers:
        kept = folder / party / SECRET
        if kept.exists():
            kept.rename(kept.with_name(f"he-{old.serial}.secret"))
    record = KeyRecord(
        old.serial + 1, _now(), old.parameters, old.clients, keys.fingerprint.hex(), public, old.holder
    )
    _write(folder, record, keys)
    return record


def _check_members(old: KeyRecord, add: Sequence[str], drop: Sequence[str]) -> None:
    for name in add:
        if name in old.sites or list(add).count(name) > 1:
            raise BadInput(
                f"add={name!r}: is there already; fedsynth keys renew --identity gives it a new one"
            )
    _check_sites((*old.sites, *add))
    left = len(old.sites) + len(add) - len(drop)
    if left > old.clients:
        raise BadInput(
            f"add={','.join(add)}: {left} sites, but these keys are for sums of up to {old.clients}; make new ones "
            f"with fedsynth keys create --clients {left}"
        )
    if old.holder in drop or left < 1:
        raise BadInput(
            f"drop={','.join(drop)}: nobody could open sums; make new keys with fedsynth keys create"
        )


def problems(folder: Path) -> list[str]:
    """List the problems of a folder of keys: secrets that others could read or that lie with the server."""
    record = KeyRecord.load(folder)
    sentences = []
    for path in sorted(folder.rglob("*")):
        secret = path.name == IDENTITY or path.suffix == ".secret"
        if secret and _exposed(path):
            sentences.append(
                f"{path}: others than its owner can read this secret; chmod 600, and renew if they did"
            )
        if secret and path.parent.name == SERVER:
            sentences.append(f"{path}: a secret in the server's folder; renew the keys")
    for party in (SERVER, *record.openers):
        path = folder / party / (PUBLIC if party == SERVER else SECRET)
        if path.exists() and load_keys(path).fingerprint.hex() != record.fingerprint:
            sentences.append(f"{path}: another key than {RECORD} names")
    return sentences


def load_keys(path: Path) -> Keys:
    """The key material of a party from its he.secret or he.public."""
    if not path.is_file():
        raise BadInput(f"{path}: not found; expected {SECRET} or {PUBLIC} from fedsynth keys create")
    secret = path.suffix == ".secret"
    if secret:
        _refuse_exposed(path)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            parts = {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (safetensors.SafetensorError, OSError) as error:
        raise BadInput(f"{path}: cannot be read ({error}); fetch it again from the key service") from None
    if about.get("kind") != _KIND or "public" not in parts or ("secret" in parts) != secret:
        raise BadInput(f"{path}: no key of fedsynth, or one under a wrong name; expected {_KIND}")
    return Keys(Parameters.from_text(about.get("parameters", "")), parts["public"], parts.get("secret"))


def refuse_secrets(folder: Path) -> None:
    """Refuse a folder of the server's in which a secret lies."""
    beside = [path for path in folder.rglob("*") if path.name == IDENTITY or path.suffix == ".secret"]
    if beside:
        raise BadInput(f"{beside[0]}: a secret where the server can read it; take it away and renew the keys")


def load_server_keys(folder: Path) -> Keys:
    """Return the server's key material; refuses to run beside a secret."""
    refuse_secrets(folder)
    return load_keys(folder / PUBLIC)


def load_identity(path: Path) -> tuple[str, Identity]:
    """A site's name and long-term identity from its identity.key."""
    if not path.is_file():
        raise BadInput(f"{path}: not found; expected an {IDENTITY} from fedsynth keys create --sites")
    _refuse_exposed(path)
    try:
        read = json.loads(path.read_text())
        secret = bytes.fromhex(read["secret"])
        if len(secret) != KEY:
            raise ValueError(f"{len(secret)} bytes instead of {KEY}")
        return str(read["site"]), Identity(secret)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}); fetch it again from the key service") from None


def load_identities(path: Path) -> dict[str, bytes]:
    """All sites' public identities by name."""
    if not path.is_file():
        raise BadInput(f"{path}: not found; expected an {IDENTITIES} from fedsynth keys create --sites")
    try:
        identities = {str(name): bytes.fromhex(key) for name, key in json.loads(path.read_text()).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}); fetch it again from the key service") from None
    short = [name for name, key in identities.items() if len(key) != KEY]
    if short:
        raise BadInput(f"{path}: the identity of {short[0]} is not of {KEY} bytes; fetch it again")
    return identities


def _check(out: Path, clients: int | None, sites: Sequence[str], holder: str | None, scheme: str) -> None:
    if out.exists():
        raise BadInput(f"{out}: exists already; choose a new folder, or fedsynth keys renew {out}")
    if scheme not in ("bfv", "ckks"):
        raise BadInput(f"scheme={scheme!r}: unknown; known: bfv, ckks")
    if clients is None and not sites:
        raise BadInput(
            "--clients: say how many clients there can be in one sum, or name the sites with --sites A,B,C"
        )
    if clients is not None and clients < max(1, len(sites)):
        raise BadInput(f"clients={clients}: expected at least one, and no fewer than the {len(sites)} sites")
    _check_sites(sites)
    if holder is not None and holder not in sites:
        raise BadInput(
            f"holder={holder!r}: the key-holder is one of the sites; known: {', '.join(sites) or 'none'}"
        )


def _check_sites(sites: Sequence[str]) -> None:
    odd = [name for name in sites if not _NAME.fullmatch(name) or name in (SERVER, CLIENTS)]
    if odd or len(set(sites)) != len(sites):
        raise BadInput(
            f"sites={','.join(sites)}: each has a name of its own of letters, digits, dots and dashes, not {SERVER} or "
            f"{CLIENTS}"
        )


def _write(folder: Path, record: KeyRecord, keys: Keys) -> None:
    """The files of all parties; secrets first, so that a record never names a key that is not there."""
    named = json.dumps(record.sites, indent=1) + "\n"
    for party in record.parties:
        place = folder / party
        place.mkdir(mode=0o700, exist_ok=True)
        if party in record.openers:
            _store(place / SECRET, keys)
        else:
            _store(place / PUBLIC, keys.shared)
        if record.sites:
            write_file(place / IDENTITIES, named)
    (folder / SERVER).mkdir(mode=0o700, exist_ok=True)
    _store(folder / SERVER / PUBLIC, keys.shared)
    if record.sites:
        write_file(folder / SERVER / IDENTITIES, named)
    write_file(folder / RECORD, json.dumps(record.to_json(), indent=1) + "\n")
    lines = [f"{party + '/':13} {_whose(party, record)}" for party in record.parties]
    opens = (
        "Any one of them that helps the server opens every message."
        if record.holder is None
        else (f"Only {record.holder} has it; together with the server it opens every message.")
    )
    write_file(folder / "README.txt", _README.format(parties="\n".join(lines), opens=opens))


def _whose(party: str, record: KeyRecord) -> str:
    if party == CLIENTS:
        return "every client gets a copy: seals its messages, opens the averages"
    if party in record.openers:
        return f"the site {party}: seals its messages, opens {'the averages' if record.holder is None else 'the sums'}"
    return f"the site {party}: seals its messages, opens nothing"


def _store(path: Path, keys: Keys) -> None:
    parts = {"public": keys.public} | ({"secret": keys.secret} if keys.secret is not None else {})
    arrays = {name: np.frombuffer(value, dtype=np.uint8) for name, value in parts.items()}
    about = {"kind": _KIND, "parameters": keys.parameters.to_text()}
    write_file(path, safetensors.numpy.save(arrays, about), OWNER_ONLY if keys.secret is not None else None)


def _identity(place: Path, name: str, identity: Identity) -> None:
    place.mkdir(mode=0o700, exist_ok=True)
    text = json.dumps({"site": name, "secret": identity.secret.hex()}) + "\n"
    write_file(place / IDENTITY, text, OWNER_ONLY)


def _exposed(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def _refuse_exposed(path: Path) -> None:
    if _exposed(path):
        mode = stat.S_IMODE(path.stat().st_mode)
        raise BadInput(
            f"{path}: a secret with mode {mode:o}, which others can read; chmod 600, and renew if they did"
        )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
