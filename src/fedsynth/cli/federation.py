"""The commands `fedsynth federation`: make start-up kits, serve, and look after a federation."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedsynth.cli import flags
from fedsynth.cli.federated import federation_installed
from fedsynth.cli.federation_members import add, create, renew, replace, revoke
from fedsynth.cli.federation_try import try_out
from fedsynth.cli.flags import argument, group, option
from fedsynth.cli.output import show, tell
from fedsynth.errors import BadInput, nearest

if TYPE_CHECKING:
    from fedsynth.deploy.nvflare.session import CoordinatorSession

app = group("federation", "Set up and run a federation: kits, a server, and its jobs.")
Coordinating = Annotated[Path, argument("The coordinator's kit, or the folder that it is in.", "DIR")]
Directory = Annotated[Path, argument("What `create` made, or one kit that was taken from it.", "DIR")]


for member_command in (create, renew, add, replace, revoke):
    app.command()(member_command)


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
    from fedsynth.transport.keys import refuse_secrets

    loaded = Kit.load(kit, "server")
    refuse_secrets(kit)
    address = check_port(loaded, listen)
    tell(f"Listening on {address}:{loaded.port} for {', '.join(loaded.sites)}; stop with Ctrl-C.")
    become(loaded, {}, address)


@app.command()
def status(folder: Directory, as_json: flags.AsJson = False) -> None:
    """Show who is connected and what runs. Asks the server with the coordinator's kit, and this machine.

    Example: fedsynth federation status kits
    """
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import running
        from fedsynth.deploy.nvflare.session import CoordinatorSession
    here = {str(path): running(path) for path in kits_in(folder)}
    state: dict[str, Any] = {"here": here}
    coordinator = folder / "coordinator" if (folder / "coordinator").is_dir() else folder
    if json.loads((coordinator / "kit.json").read_text())["role"] == "coordinator":
        kit = Kit.load(coordinator, "coordinator")
        with CoordinatorSession(kit) as session:
            connected = session.sites()
            state["sites"] = {name: name in connected for name in kit.sites}
            state["jobs"] = _jobs(session)
    show(as_json, state, "\n".join(_lines(state)))


@app.command()
def jobs(folder: Coordinating, as_json: flags.AsJson = False) -> None:
    """List the jobs on the server, oldest first. Says which run each is for, and whether it is at work.

    Example: fedsynth federation jobs kits
    """
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.session import CoordinatorSession
    with CoordinatorSession(Kit.load(folder, "coordinator")) as session:
        jobs_listed = _jobs(session)
    show(as_json, {"jobs": jobs_listed}, "\n".join(map(_job_line, jobs_listed)) or "the server has no jobs")


@app.command()
def abort(
    folder: Coordinating,
    job: Annotated[str, argument("The job's number, or as much of its beginning as is unique.", "JOB")],
    as_json: flags.AsJson = False,
) -> None:
    """End a job now. Its run keeps its last finished round and can be resumed where it was begun.

    Example: fedsynth federation abort kits 1f0c2a6e
    """
    with federation_installed():
        from fedsynth.deploy.coordinator import Coordinator
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.session import ENDED, CoordinatorSession
    with CoordinatorSession(Kit.load(folder, "coordinator")) as session:
        matching = [one for one in _jobs(session) if one["job"].startswith(job)]
        if len(matching) != 1:
            raise BadInput(
                f"job {job}: {len(matching)} jobs begin like that; `fedsynth federation jobs {folder}` lists them"
            )
        name = matching[0]["job"]
        if matching[0]["state"] == ENDED:
            raise BadInput(f"job {name}: it has ended already; there is nothing to abort")
        session.stop(name, f"the job was ended by hand (fedsynth federation abort); {Coordinator.advice}")
    show(
        as_json,
        {"aborted": name, "run": matching[0]["run"]},
        f"aborted job {name} of run {matching[0]['run']}",
    )


def _jobs(session: CoordinatorSession) -> list[dict[str, Any]]:
    """Each job with what it does by its process, not by its record alone."""
    return [
        {
            "job": str(job.get("job_id")),
            "run": job.get("name"),
            "state": session.stage(str(job.get("job_id"))),
            "status": job.get("status"),
            "since": _moment(job.get("submit_time")),
        }
        for job in session.jobs()
    ]


def _moment(seconds: Any) -> str:
    """When a job was submitted, by this machine's clock; the engine tells seconds since 1970."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(seconds)))
    except (TypeError, ValueError):
        return str(seconds)


def _job_line(job: dict[str, Any]) -> str:
    return f"job {job['job']}: run {job['run']}, {job['state']} ({job['status']}), since {job['since']}"


def _lines(state: dict[str, Any]) -> list[str]:
    lines = [
        f"{path}: {f'process {pid}' if pid else 'not running here'}" for path, pid in state["here"].items()
    ]
    lines += [
        f"{name}: {'connected' if on else 'not connected'}" for name, on in state.get("sites", {}).items()
    ]
    return [*lines, *(_job_line(job) for job in state.get("jobs", []) if job["state"] != "ended")]


@app.command()
def stop(folder: Directory, as_json: flags.AsJson = False) -> None:
    """Stop the server and the sites that run here from these kits.

    Example: fedsynth federation stop kits
    """
    with federation_installed():
        from fedsynth.deploy.nvflare import node
    stopped = [str(path) for path in kits_in(folder) if node.stop(path)]
    words = "\n".join(f"stopped {path}" for path in stopped) or "nothing runs here from these kits"
    show(as_json, {"stopped": stopped}, words)


@app.command()
def forget(
    kit: Annotated[Path, argument("The server's kit.", "KIT")],
    site: Annotated[str, argument("The site whose ledger was lost for good.", "SITE")],
    as_json: flags.AsJson = False,
) -> None:
    """Accept whatever ledger a site shows next. Only if its state is lost and the owner of the data agrees.

    Example: fedsynth federation forget kits/server ucl
    """
    with federation_installed():
        from fedsynth.deploy.link.ledger_heads import LedgerHeads
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.server_job import LEDGERS
    loaded = Kit.load(kit, "server")
    if site not in loaded.sites:
        raise BadInput(f"{site}: no such site; {nearest(site, loaded.sites)}")
    known = LedgerHeads(loaded.folder / "runs" / LEDGERS).forget(site)
    words = f"what {site} showed of its ledger is forgotten" if known else f"{site} has shown no ledger yet"
    show(as_json, {"site": site, "forgotten": known}, words)


app.command("try")(try_out)


def kits_in(folder: Path) -> list[Path]:
    """The kits in a folder, the server's first; or the folder itself, if it is one."""
    if (folder / "kit.json").is_file():
        return [folder]
    kits = sorted(path.parent for path in folder.glob("**/kit.json"))
    if not kits:
        raise BadInput(f"{folder}: holds no start-up kit; expected what `fedsynth federation create` made")
    return sorted(kits, key=lambda path: path.name != "server")
