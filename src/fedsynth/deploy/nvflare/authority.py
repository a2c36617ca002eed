"""The consortium's authority: it signs certificates, knows whom it signed for, and says which it takes back.

Its key lies encrypted under a passphrase. It keeps no party's private key: those are in the kits alone, or never left
the site that made its own.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from nvflare.lighter.utils import Identity, generate_cert

from fedsynth.data.atomic import OWNER_ONLY, write_file
from fedsynth.errors import BadInput

ROOT = "fedsynth"  # the authority's own name
DAYS, PARTY_DAYS = 3650, 360
SHORTEST = 12  # characters of a passphrase
_KEY_BITS = 2048
_CERTIFICATE, _KEY, _ISSUED, _REVOKED = "root.pem", "root.key", "issued.json", "revoked.pem"


@dataclass(frozen=True)
class Issued:
    """One certificate that the authority signed; `revoked` is when it was taken back, or empty."""

    name: str
    serial: str  # hexadecimal
    until: str
    revoked: str = ""


@dataclass(frozen=True)
class Authority:
    """Whoever holds its folder and the passphrase can make members."""

    folder: Path
    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, folder: Path, passphrase: str) -> Authority:
        """Make a new one, whose key only this passphrase opens."""
        if len(passphrase) < SHORTEST:
            raise BadInput(f"the passphrase of the authority's key: expected {SHORTEST} characters or more")
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        key = new_key()
        certificate = generate_cert(Identity(ROOT), Identity(ROOT), key, key.public_key(), DAYS, ca=True)
        encryption = serialization.BestAvailableEncryption(passphrase.encode())
        write_file(folder / _KEY, _pem(key, encryption), OWNER_ONLY)
        write_file(folder / _CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))
        authority = cls(folder, key, certificate)
        authority._record([])
        return authority

    @classmethod
    def open(cls, folder: Path, passphrase: str) -> Authority:
        """Open its key with the passphrase."""
        path = folder / _KEY
        if not path.is_file():
            earlier = (
                " (an authority of an earlier version kept all keys in the clear: make a new consortium)"
            )
            raise BadInput(
                f"{folder}: holds no authority{earlier if any(folder.rglob('cert.json')) else ''}; go where "
                "`fedsynth federation create` was run"
            )
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), passphrase.encode())
        except ValueError:
            raise BadInput(f"{path}: this is not the passphrase of the authority's key") from None
        assert isinstance(key, rsa.RSAPrivateKey)
        return cls(folder, key, x509.load_pem_x509_certificate((folder / _CERTIFICATE).read_bytes()))

    @property
    def certificate_pem(self) -> bytes:
        """The certificate by which all parties know each other's."""
        return (self.folder / _CERTIFICATE).read_bytes()

    @property
    def revoked_pem(self) -> bytes:
        """The signed list of certificates that were taken back."""
        return (self.folder / _REVOKED).read_bytes()

    def issued(self) -> list[Issued]:
        """All certificates that it signed, oldest first."""
        return [Issued(**entry) for entry in json.loads((self.folder / _ISSUED).read_text())]

    def sign(
        self, name: str, organization: str, public_key: rsa.RSAPublicKey, *, role: str = "", host: str = ""
    ) -> bytes:
        """Sign a certificate for this name and key; who gets it is remembered."""
        now = datetime.datetime.now(datetime.UTC)
        until = min(now + datetime.timedelta(days=PARTY_DAYS), self.certificate.not_valid_after_utc)
        certificate = generate_cert(
            Identity(name, organization, role or None),
            Identity(ROOT),
            self.key,
            public_key,
            server_default_host=host or None,
            server_additional_hosts=[host] if host else None,
            not_valid_before=now,
            not_valid_after=until,
        )
        entry = Issued(name, f"{certificate.serial_number:x}", until.isoformat(timespec="seconds"))
        self._record([*self.issued(), entry])
        pem: bytes = certificate.public_bytes(serialization.Encoding.PEM)
        return pem

    def revoke(self, name: str) -> int:
        """Take back every certificate of this name; how many there were."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        issued = self.issued()
        valid = [entry for entry in issued if entry.name == name and not entry.revoked]
        self._record([replace(entry, revoked=now) if entry in valid else entry for entry in issued])
        return len(valid)

    def _record(self, issued: Iterable[Issued]) -> None:
        entries = list(issued)
        now = datetime.datetime.now(datetime.UTC)
        # a list that ends would lock everybody out: it is valid for as long as the authority
        builder = x509.CertificateRevocationListBuilder(
            self.certificate.subject, now, self.certificate.not_valid_after_utc
        )
        for entry in entries:
            if entry.revoked:
                when = datetime.datetime.fromisoformat(entry.revoked)
                one = x509.RevokedCertificateBuilder(int(entry.serial, 16), when).build()
                builder = builder.add_revoked_certificate(one)
        path = self.folder / _REVOKED
        void = [entry.serial for entry in entries if entry.revoked]
        if not path.exists() or void != [entry.serial for entry in self.issued() if entry.revoked]:
            signed = builder.sign(
                self.key, hashes.SHA256()
            )  # a list that changed: servers check everybody anew
            write_file(path, signed.public_bytes(serialization.Encoding.PEM))
        write_file(self.folder / _ISSUED, json.dumps([asdict(entry) for entry in entries], indent=1) + "\n")


def new_key() -> rsa.RSAPrivateKey:
    """A party's private key; the engine signs with RSA alone."""
    return rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)


def write_key(path: Path, key: rsa.RSAPrivateKey) -> None:
    """Store a party's key for its owner alone."""
    write_file(path, _pem(key, serialization.NoEncryption()), OWNER_ONLY)


def make_request(name: str, out: Path) -> Path:
    """Make a site's own key in what will be its kit, and the request that the authority signs; where that lies."""
    startup = out / "startup"
    if startup.exists():
        raise BadInput(f"{startup}: exists already; choose another --out")
    startup.mkdir(mode=0o700, parents=True)
    out.chmod(0o700)
    key = new_key()
    write_key(startup / "client.key", key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    path = out / f"{name}.csr"
    write_file(path, signed.public_bytes(serialization.Encoding.PEM))
    return path


def public_key_in(path: Path, name: str) -> rsa.RSAPublicKey:
    """The key that a request asks to be signed for, if the request is this site's."""
    try:
        request = x509.load_pem_x509_csr(path.read_bytes())
    except ValueError:
        raise BadInput(f"{path}: no certificate request; `fedsynth site request {name}` makes one") from None
    names = [
        str(attribute.value) for attribute in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    if names != [name]:
        raise BadInput(f"{path}: a request of {', '.join(names) or 'nobody'}, not of {name}")
    key = request.public_key()
    if not request.is_signature_valid or not isinstance(key, rsa.RSAPublicKey) or key.key_size < _KEY_BITS:
        raise BadInput(
            f"{path}: expected an RSA key of at least {_KEY_BITS} bits that signed its own request; make it with "
            f"`fedsynth site request {name}`"
        )
    return key


def fingerprint(key: rsa.RSAPublicKey) -> str:
    """Return the mark that two people compare by telephone, so that no other request is signed."""
    digest = hashes.Hash(hashes.SHA256())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    digest.update(key.public_bytes(serialization.Encoding.DER, form))
    text = digest.finalize().hex()[:32]
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def _pem(key: rsa.RSAPrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
