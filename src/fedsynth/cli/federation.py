"""The command `fedsynth federation`: make start-up kits, serve, and look after a federation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from fedsynth.errors import BadInput


@contextmanager
def federation_installed() -> Iterator[None]:
    """Turn a missing library into a sentence; it is imported only where it is used, because that takes a second."""
    try:
        yield
    except ImportError as error:
        raise BadInput(
            f"a federation needs NVIDIA FLARE ({error}); install it with: pip install 'fedsynth[federation]'"
        ) from error


def create(
    sites: str,
    host: str,
    out: Path,
    port: int,
    as_json: bool,
) -> None:
    """Make a start-up kit for the server, the coordinator and each site, and the authority that signs them."""
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import create as make
    made = make([name.strip() for name in sites.split(",") if name.strip()], host, port, out)
    if as_json:
        typer.echo(json.dumps({kit.name: str(kit.folder) for kit in made}))
        return
    for kit in made:
        typer.echo(f"{kit.title:24} {kit.folder}")
    typer.echo(
        f"Give each party its own folder by a safe way, and keep {out / 'authority'} offline: who holds it can "
        "make new members. Certificates are valid until "
        f"{min(kit.expires for kit in made):%Y-%m-%d}; `fedsynth federation renew {out}` makes new ones."
    )


def renew(
    folder: Path,
    party: list[str] | None,
    as_json: bool,
) -> None:
    """Make new keys and certificates; a kit's other files stay as they are."""
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import renew as make
    made = [kit for kit in make(folder, party or ()) if not party or kit.name in party]
    if as_json:
        typer.echo(json.dumps({kit.name: f"{kit.expires:%Y-%m-%d}" for kit in made}))
        return
    for kit in made:
        typer.echo(f"{kit.title:24} valid until {kit.expires:%Y-%m-%d}; hand over {kit.folder / 'startup'}")


def serve(
    kit: Path,
    listen: str | None,
) -> None:
    """Run the server until Ctrl-C or `fedsynth federation stop`. It holds no data and sees no rows."""
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import become, check_port
    loaded = Kit.load(kit, "server")
    address = check_port(loaded, listen)
    typer.echo(
        f"Listening on {address}:{loaded.port} for {', '.join(loaded.sites)}; stop with Ctrl-C.", err=True
    )
    become(loaded, {}, address)


def status(folder: Path, as_json: bool) -> None:
    """Who is connected and what runs: asked of the server with the coordinator's kit, and of this machine."""
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import running
        from fedsynth.deploy.nvflare.session import Line
    here = {str(path): running(path) for path in kits_in(folder)}
    found: dict[str, Any] = {"here": here}
    coordinator = folder / "coordinator" if (folder / "coordinator").is_dir() else folder
    if json.loads((coordinator / "kit.json").read_text())["role"] == "coordinator":
        kit = Kit.load(coordinator, "coordinator")
        with Line(kit) as line:
            connected = line.sites()
            found["sites"] = {name: name in connected for name in kit.sites}
            found["jobs"] = [
                {"job": job.get("job_id"), "status": job.get("status"), "since": job.get("submit_time")}
                for job in line.jobs()
            ]
    typer.echo(json.dumps(found) if as_json else _told(found))


def _told(found: dict[str, Any]) -> str:
    lines = [
        f"{path}: {f'process {pid}' if pid else 'not running here'}" for path, pid in found["here"].items()
    ]
    lines += [
        f"{name}: {'connected' if on else 'not connected'}" for name, on in found.get("sites", {}).items()
    ]
    open_jobs = [job for job in found.get("jobs", []) if not str(job["status"]).startswith("FINISHED")]
    lines += [f"job {job['job']}: {job['status']}" for job in open_jobs]
    return "\n".join(lines)


def stop(folder: Path, as_json: bool) -> None:
    """Stop the server and the sites that run on this machine from these kits."""
    with federation_installed():
        from fedsynth.deploy.nvflare.node import stop as end
    stopped = [path for path in kits_in(folder) if end(path)]
    if as_json:
        typer.echo(json.dumps({"stopped": [str(path) for path in stopped]}))
        return
    typer.echo("\n".join(f"stopped {path}" for path in stopped) or "nothing runs here from these kits")


def kits_in(folder: Path) -> list[Path]:
    """The kits in a folder, the server's first; or the folder itself, if it is one."""
    if (folder / "kit.json").is_file():
        return [folder]
    found = sorted(path.parent for path in folder.glob("**/kit.json"))
    if not found:
        raise BadInput(f"{folder}: holds no start-up kit; expected what `fedsynth federation create` made")
    return sorted(found, key=lambda path: path.name != "server")


def say(text: str) -> None:
    """A line of a service's log."""
    typer.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)
