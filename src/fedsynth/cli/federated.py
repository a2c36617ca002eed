"""`fedsynth run --federation`: the same run, over sites on their own machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from fedsynth.data.schema import Schema
    from fedsynth.synthesis.request import Request

FIRST_S = 60.0  # for a server that is starting; what is already running is waited for longer


@contextmanager
def federation_installed() -> Iterator[None]:
    """Turn a missing library into a sentence; it is imported only where it is used, because that takes a second."""
    try:
        yield
    except ImportError as error:
        raise BadInput(
            f"a federation needs NVIDIA FLARE ({error}); install it with: pip install 'fedsynth[federation]'"
        ) from error


def say(text: str) -> None:
    """Print a line of a service's log."""
    typer.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


def is_federated(out: Path) -> bool:
    """Whether a run's folder belongs to a federation."""
    return (out / "federation.json").is_file()


def start(
    federation: Path,
    out: Path,
    request: Request,
    schema: Schema,
    minimum_sites: int,
    round_timeout_s: float,
    quiet: bool,
) -> None:
    """Begin a run over the sites of a federation."""
    with federation_installed():
        from fedsynth.deploy.coordinator import Assignment, CoordinatorPatience
        from fedsynth.deploy.job import earlier_lines
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import wait_for_server
        from fedsynth.synthesis.folder import Folder
    kit = Kit.load(federation, "coordinator")
    Folder(out).refuse_existing()
    patience = CoordinatorPatience(round_s=round_timeout_s)
    assignment = Assignment.new(kit, request, schema, minimum_sites, patience, earlier_lines(request, schema))
    if not quiet:
        say(f"asking the server at {kit.host}:{kit.port}; waiting up to {FIRST_S:g} s")
    wait_for_server(kit, FIRST_S)
    out.mkdir(parents=True, exist_ok=True)
    assignment.save(out)


def resume(out: Path, federation: Path | None, quiet: bool) -> None:
    """Bring a run to its end, wherever it was left."""
    with federation_installed():
        from fedsynth.cli.progress import TrainingProgress
        from fedsynth.deploy.coordinator import Assignment, Coordinator
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.synthesis.folder import Folder
        from fedsynth.synthesis.request import Request
    if not Folder(out).finished:
        assignment = Assignment.load(out)
        kit = Kit.load(federation or assignment.federation, "coordinator")
        epsilon = Request.from_toml(assignment.request).epsilon
        with TrainingProgress(epsilon, quiet=quiet) as watch:
            coordinator = Coordinator(kit, out, assignment, watch, watch.note)
            try:
                coordinator.run()
            except KeyboardInterrupt:
                coordinator.cancel()
                raise
