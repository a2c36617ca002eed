"""The commands `fedsynth federation`: make start-up kits, serve, and look after a federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth.cli import flags
from fedsynth.cli.federated import federation_installed
from fedsynth.cli.federation_try import try_out
from fedsynth.cli.flags import argument, group, names_in, option
from fedsynth.cli.output import show
from fedsynth.errors import BadInput

app = group(
    "federation", "A real federation: start-up kits with keys, a server, and sites that keep their rows."
)
Directory = Annotated[Path, argument("What `create` made, or one kit that was taken from it.", "DIR")]


@app.command()
def create(
    sites: Annotated[str, option("The sites' names, with commas.", metavar="A,B,C")],
    host: Annotated[str, option("Name or address at which the sites reach the server.")],
    out: Annotated[Path, option("Folder for the kits; must not exist.")],
    port: Annotated[int, option("The one port that the server opens.")] = 8002,
    as_json: flags.AsJson = False,
) -> None:
    """Make a start-up kit for the server, the coordinator and each site, and the authority that signs them.

    Example: fedsynth federation create --sites st-mary,charite,ucl --host fl.example.org --port 8002 --out kits
    """
    with federation_installed():
        from fedsynth.deploy.nvflare import kits
    new = kits.create(names_in(sites), host, port, out)
    lines = [f"{kit.title:24} {kit.folder}" for kit in new]
    lines.append(
        f"Give each party its own folder by a safe way, and keep {out / 'authority'} offline: who holds it can "
        "make new members. Certificates are valid until "
        f"{min(kit.expires for kit in new):%Y-%m-%d}; `fedsynth federation renew {out}` makes new ones."
    )
    show(as_json, {kit.name: str(kit.folder) for kit in new}, "\n".join(lines))


@app.command()
def renew(
    folder: Annotated[Path, argument("What `create` made, with its authority.", "DIR")],
    party: Annotated[list[str] | None, option("server, coordinator or a site; default: all.")] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Make new keys and certificates; a kit's other files stay as they are.

    Example: fedsynth federation renew kits --party ucl
    """
    with federation_installed():
        from fedsynth.deploy.nvflare import kits
    renewed = [kit for kit in kits.renew(folder, party or ()) if not party or kit.name in party]
    lines = [
        f"{kit.title:24} valid until {kit.expires:%Y-%m-%d}; hand over {kit.folder / 'startup'}"
        for kit in renewed
    ]
    show(as_json, {kit.name: f"{kit.expires:%Y-%m-%d}" for kit in renewed}, "\n".join(lines))


@app.command()
def serve(
    kit: Annotated[Path, argument("The server's kit.", "KIT")],
    listen: Annotated[
        str | None, option("Address of this machine to listen on, if not the host's own.")
    ] = None,
) -> None:
    """Run the server until Ctrl-C or `fedsynth federation stop`. It holds no data and sees no rows.

    Example: fedsynth federation serve kits/server
    """
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import become, check_port
    loaded = Kit.load(kit, "server")
    address = check_port(loaded, listen)
    typer.echo(
        f"Listening on {address}:{loaded.port} for {', '.join(loaded.sites)}; stop with Ctrl-C.", err=True
    )
    become(loaded, {}, address)


@app.command()
def status(folder: Directory, as_json: flags.AsJson = False) -> None:
    """Who is connected and what runs: asked of the server with the coordinator's kit, and of this machine.

    Example: fedsynth federation status kits
    """
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import running
        from fedsynth.deploy.nvflare.session import Line
    here = {str(path): running(path) for path in kits_in(folder)}
    state: dict[str, Any] = {"here": here}
    coordinator = folder / "coordinator" if (folder / "coordinator").is_dir() else folder
    if json.loads((coordinator / "kit.json").read_text())["role"] == "coordinator":
        kit = Kit.load(coordinator, "coordinator")
        with Line(kit) as line:
            connected = line.sites()
            state["sites"] = {name: name in connected for name in kit.sites}
            state["jobs"] = [
                {"job": job.get("job_id"), "status": job.get("status"), "since": job.get("submit_time")}
                for job in line.jobs()
            ]
    show(as_json, state, "\n".join(_lines(state)))


def _lines(state: dict[str, Any]) -> list[str]:
    lines = [
        f"{path}: {f'process {pid}' if pid else 'not running here'}" for path, pid in state["here"].items()
    ]
    lines += [
        f"{name}: {'connected' if on else 'not connected'}" for name, on in state.get("sites", {}).items()
    ]
    open_jobs = [job for job in state.get("jobs", []) if not str(job["status"]).startswith("FINISHED")]
    return [*lines, *(f"job {job['job']}: {job['status']}" for job in open_jobs)]


@app.command()
def stop(folder: Directory, as_json: flags.AsJson = False) -> None:
    """Stop the server and the sites that run on this machine from these kits.

    Example: fedsynth federation stop kits
    """
    with federation_installed():
        from fedsynth.deploy.nvflare import node
    stopped = [str(path) for path in kits_in(folder) if node.stop(path)]
    words = "\n".join(f"stopped {path}" for path in stopped) or "nothing runs here from these kits"
    show(as_json, {"stopped": stopped}, words)


app.command("try")(try_out)


def kits_in(folder: Path) -> list[Path]:
    """The kits in a folder, the server's first; or the folder itself, if it is one."""
    if (folder / "kit.json").is_file():
        return [folder]
    kits = sorted(path.parent for path in folder.glob("**/kit.json"))
    if not kits:
        raise BadInput(f"{folder}: holds no start-up kit; expected what `fedsynth federation create` made")
    return sorted(kits, key=lambda path: path.name != "server")
