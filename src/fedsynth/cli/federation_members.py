"""The commands of `fedsynth federation` for whoever admits members: create, renew, add, replace, revoke."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.federated import federation_installed
from fedsynth.cli.flags import argument, names_in, option
from fedsynth.cli.output import show, tell
from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from fedsynth.deploy.nvflare.kits import Kit

VARIABLE = "FEDSYNTH_PASSPHRASE"
Consortium = Annotated[Path, argument("What `create` made, with its authority.", "DIR")]
PassphraseFile = Annotated[
    Path | None,
    option(f"File with the passphrase of the authority's key (else {VARIABLE}, or you are asked)."),
]
RequestFile = Annotated[
    Path | None, option("What `fedsynth site request` made: the site keeps its own key.", "--request")
]


def create(
    sites: Annotated[str, option("The sites' names, separated by commas.", metavar="A,B,C")],
    host: Annotated[str, option("Name or address at which the sites reach the server.")],
    out: Annotated[Path, option("Folder for the kits; must not exist.")],
    port: Annotated[int, option("The one port that the server opens.")] = 8002,
    passphrase_file: Annotated[
        Path | None,
        option("File with a passphrase for the authority's key (else one is made and shown once)."),
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Make start-up kits for the server, the coordinator and the sites. Also the authority that signs them.

    Example: fedsynth federation create --sites st-mary,charite,ucl --host fl.example.org --port 8002 --out kits
    """
    with federation_installed():
        from fedsynth.deploy.nvflare import membership
    own = _given(passphrase_file)
    passphrase = own or "-".join(secrets.token_hex(2) for _ in range(8))
    new = membership.create(names_in(sites), host, port, out, passphrase)
    lines = [f"{kit.title:24} {kit.folder}" for kit in new]
    lines.append(
        f"Give each party its own folder by a safe way, and keep {out / 'authority'} offline: who holds it and its "
        f"passphrase can make new members. Certificates are valid until {min(kit.expires for kit in new):%Y-%m-%d}; "
        f"`fedsynth federation renew {out}` makes new ones."
    )
    show(as_json, {kit.name: str(kit.folder) for kit in new}, "\n".join(lines))
    if own is None:
        tell(f"The passphrase of the authority's key, shown this once: {passphrase}")


def renew(
    folder: Consortium,
    party: Annotated[list[str] | None, option("server, coordinator or a site; default: all.")] = None,
    request: RequestFile = None,
    passphrase_file: PassphraseFile = None,
    as_json: flags.AsJson = False,
) -> None:
    """Make new keys and certificates. A kit's other files stay as they are; old certificates are valid until they end.

    Example: fedsynth federation renew kits --party ucl
    """
    with federation_installed():
        from fedsynth.deploy.nvflare import membership
    renewed = membership.renew(folder, _passphrase(passphrase_file), party or (), request)
    lines = [
        f"{kit.title:24} valid until {kit.expires:%Y-%m-%d}; hand over {kit.folder / 'startup'}"
        for kit in renewed
    ]
    show(as_json, {kit.name: f"{kit.expires:%Y-%m-%d}" for kit in renewed}, "\n".join(lines))


def add(
    folder: Consortium,
    site: Annotated[str, argument("The new site's name.", "SITE")],
    request: RequestFile = None,
    passphrase_file: PassphraseFile = None,
    as_json: flags.AsJson = False,
) -> None:
    """Make a kit for a new site. The others keep theirs, and runs that began without the site go on without it.

    Example: fedsynth federation add kits lyon
    """
    with federation_installed():
        from fedsynth.deploy.nvflare import membership
    kit = membership.add(folder, _passphrase(passphrase_file), site, request)
    words = (
        f"Copy {folder / 'server' / 'kit.json'} into the server's kit and {folder / 'coordinator' / 'kit.json'} into "
        "the coordinator's; neither is secret. For masked or encrypted sums the site needs keys too: fedsynth keys "
        f"renew KEYS --add {site}"
    )
    _show(as_json, kit, request, words)


def replace(
    folder: Consortium,
    party: Annotated[str, argument("server, coordinator or a site.", "PARTY")],
    request: RequestFile = None,
    passphrase_file: PassphraseFile = None,
    as_json: flags.AsJson = False,
) -> None:
    """Make a new kit for a party whose kit was lost or stolen. Its old certificates are refused from then on.

    Example: fedsynth federation replace kits ucl
    """
    with federation_installed():
        from fedsynth.deploy.nvflare import membership
    kit = membership.replace_kit(folder, _passphrase(passphrase_file), party, request)
    _show(as_json, kit, request, _spread(folder, party))


def revoke(
    folder: Consortium,
    site: Annotated[str, argument("The site that leaves.", "SITE")],
    passphrase_file: PassphraseFile = None,
    as_json: flags.AsJson = False,
) -> None:
    """Put a site out of the federation. The server refuses its certificates from then on.

    Example: fedsynth federation revoke kits ucl
    """
    with federation_installed():
        from fedsynth.deploy.nvflare import membership
    count = membership.revoke(folder, _passphrase(passphrase_file), site)
    words = f"{count} certificates of {site} are void. {_spread(folder, site)}"
    show(as_json, {"site": site, "revoked": count}, words)


def _show(as_json: bool, kit: Kit, request: Path | None, words: str) -> None:
    from fedsynth.deploy.nvflare.authority import fingerprint, public_key_in

    values = {"party": kit.name, "folder": str(kit.folder), "expires": f"{kit.expires:%Y-%m-%d}"}
    lines = [f"{kit.title}: hand over {kit.folder}; valid until {kit.expires:%Y-%m-%d}.", words]
    if request is not None:
        values["fingerprint"] = fingerprint(public_key_in(request, kit.name))
        lines.insert(1, f"Compare with the site by telephone: its key is {values['fingerprint']}.")
    show(as_json, values, "\n".join(lines))


def _spread(folder: Path, party: str) -> str:
    """Say what makes it true where it matters."""
    where = "the others'" if party == "server" else "the server's"
    kit = "coordinator" if party == "server" else "server"
    return (
        f"Copy {folder / kit / 'startup' / 'revoked.pem'} into {where} startup folder (it is not secret): whoever runs "
        "from that kit drops all connections within a second and checks each anew. Copy kit.json to server and "
        "coordinator too."
    )


def _given(file: Path | None) -> str | None:
    """The passphrase from a file or the environment."""
    from fedsynth.data.sources.password import read_password

    return read_password(None, file) or os.environ.get(VARIABLE) or None


def _passphrase(file: Path | None) -> str:
    passphrase = _given(file)
    if passphrase is None and sys.stdin.isatty():
        passphrase = str(typer.prompt("Passphrase of the authority's key", hide_input=True, err=True))
    if not passphrase:
        raise BadInput(
            f"the authority's key has a passphrase: name a file with it (--passphrase-file) or set {VARIABLE}"
        )
    return passphrase
