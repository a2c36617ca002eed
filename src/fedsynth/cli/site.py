"""The commands `fedsynth site`: a party of a federation that keeps its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.exit_codes import Code
from fedsynth.cli.federated import federation_installed, say
from fedsynth.cli.flags import argument, group, option
from fedsynth.cli.output import show

app = group("site", "Run one site of a federation, which keeps its own rows.")


@app.command()
def start(
    kit: Annotated[Path, argument("This site's start-up kit.", "KIT")],
    config: Annotated[Path, option("site.toml: data, budget, policy, state folder.")],
    wait: Annotated[float, option("Seconds to wait for a server that does not answer.")] = 300.0,
    metrics_port: Annotated[
        int | None, option("Port on 127.0.0.1 for Prometheus metrics (default: none).", min=1, max=65535)
    ] = None,
) -> None:
    """Run this site until Ctrl-C or `fedsynth federation stop`. It connects out and waits for runs.

    Everything is checked first: keys and certificate, site.toml, and that all rows fit the schema.

    Example: fedsynth site start ucl --config site.toml
    """
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit, Unreachable
        from fedsynth.deploy.nvflare.node import become, wait_for_server
    from fedsynth.deploy.environment import METRICS_PORT, SITE_FILE
    from fedsynth.deploy.site.site_file import SiteFile

    loaded = Kit.load(kit, "site")
    described = SiteFile.load(config)
    described.check_state()
    holding = described.holding()
    try:
        wait_for_server(loaded, wait)
    except Unreachable as error:
        error.resumable = True  # a service manager starts a site again, but not one that was refused
        raise
    allowed = ", ".join(described.policy.recipes)
    say(
        f"{loaded.name}: {len(holding.clients)} clients in {described.data.name}; takes part in {allowed} "
        f"up to epsilon {described.policy.budget.epsilon:g}; {loaded.host}:{loaded.port} answers; stop with "
        "Ctrl-C"
    )
    port = metrics_port or described.metrics_port
    become(loaded, {SITE_FILE: str(described.path)} | ({METRICS_PORT: str(port)} if port else {}))


@app.command()
def check(
    kit: Annotated[Path, argument("This site's start-up kit.", "KIT")],
    config: Annotated[Path, option("site.toml: data, budget, policy, state folder.")],
    running: Annotated[bool, option("Check the site that runs here, quickly.", "--running")] = False,
    as_json: flags.AsJson = False,
) -> None:
    """Check everything that this site needs. One line each, with what to do; exits with 2 if something is wrong.

    With --running it is the health check of a site that was started, for systemd, Kubernetes and monitoring.

    Example: fedsynth site check ucl --config site.toml
    """
    with federation_installed():
        from fedsynth.deploy.preflight import health, preflight
    findings = []
    for finding in (health if running else preflight)(kit, config):
        findings.append(finding)
        if not as_json:
            mark = typer.style("ok  ", fg="green") if finding.ok else typer.style("FAIL", fg="red")
            typer.echo(f"{mark} {finding.what:12} {finding.words}")
    well = all(finding.ok for finding in findings)
    show(as_json, {"ok": well, "checks": [finding.__dict__ for finding in findings]}, "")
    if not well:
        raise typer.Exit(Code.REFUSED)


@app.command()
def request(
    site: Annotated[str, argument("This site's name in the federation.", "SITE")],
    out: Annotated[Path, option("Folder of what will be this site's kit.")],
    as_json: flags.AsJson = False,
) -> None:
    """Make this site's own key, and a request to have it signed. The key never leaves this machine.

    The kit that comes back is unpacked over the same folder.

    Example: fedsynth site request ucl --out ucl
    """
    with federation_installed():
        from fedsynth.deploy.nvflare.authority import fingerprint, make_request, public_key_in
    path = make_request(site, out)
    mark = fingerprint(public_key_in(path, site))
    words = (
        f"Send {path} to whoever admits members (fedsynth federation add DIR {site} --request {path.name}) and tell "
        f"them by telephone that your key is {mark}. Unpack the kit that comes back over {out}."
    )
    show(as_json, {"request": str(path), "fingerprint": mark}, words)


@app.command()
def end(
    run: Annotated[str, argument("A run that its server gave up.", "RUN")],
    config: Annotated[Path, option("site.toml: data, budget, policy, state folder.")],
    as_json: flags.AsJson = False,
) -> None:
    """End a run here that nobody will finish. The rest of its plan is charged, and nothing stays reserved for it.

    Example: fedsynth site end 20261118-0a1b2c3d4e5f --config site.toml
    """
    from fedsynth.deploy.inspection.at_site import AtSite
    from fedsynth.deploy.site.site_file import SiteFile

    site = SiteFile.load(config).site(AtSite)
    site.end(run)
    left = site.policy.budget.left(site.ledger)
    show(as_json, {"ended": run, "epsilon_left": left}, f"run {run} is over here; epsilon {left:.4g} is left")
