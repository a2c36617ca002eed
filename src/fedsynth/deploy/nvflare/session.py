"""The coordinator's line to the server: who is connected, submit a run, ask for news, fetch the result."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from nvflare.fuel.flare_api.api_spec import InternalError, JobNotRunning, NoReply
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fedsynth.deploy.nvflare.controller import ASKED, DONE, FETCH, NEWS, REGROUP, STOP, TASK
from fedsynth.deploy.nvflare.kits import COORDINATOR, Kit, server_time
from fedsynth.errors import FedsynthError

TASK_INTERVAL_S = 0.05  # how long a site waits before it asks for the next task
SERVER_JOB, SITE_JOB = "fedsynth.deploy.server_job.ServerJob", "fedsynth.deploy.site_job.SiteJob"
WAITS, WORKS, ENDED = "waits", "works", "ended"
_HEAR_S = 5.0  # coordinators ask every second
_SILENT_S = (
    45.0  # sites are heard every ten seconds; the engine keeps one that is gone in its list for ten minutes
)
_ALL = 2**31  # rounds to leave out of an answer
T = TypeVar("T")


class ConnectionLost(FedsynthError):
    """The server went away in the middle of something; it may come back."""


class CoordinatorSession:
    """One session with the server. Any failure of the engine's is a `ConnectionLost`."""

    def __init__(self, kit: Kit, timeout_s: float = 10.0) -> None:
        there = server_time(kit.reach())
        # the server's clock, by which it tells when it heard a site, less this process's steady one
        self._ahead_s = (time.time() if there is None else there.timestamp()) - time.monotonic()
        for library in ("nvflare", "grpc", "asyncio"):  # they log to the console; what we log stays
            logging.getLogger(library).setLevel(logging.CRITICAL)
        self._kit = kit
        self._session: Session = self._quiet(
            lambda: new_secure_session(
                COORDINATOR, str(kit.folder), timeout=timeout_s, auto_login_max_tries=3
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the engine's threads would keep the process alive."""
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            self._session.close()

    def sites(self) -> list[str]:
        """The sites that are connected now: whose last sign of life is not old by the server's own clock."""
        listed = self._quiet(self._session.get_connected_client_list)
        oldest = time.monotonic() + self._ahead_s - _SILENT_S
        return sorted(client.name for client in listed if client.last_connect_time > oldest)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that the server knows, oldest first."""
        jobs: list[dict[str, Any]] = self._quiet(lambda: self._session.list_jobs(detailed=True))
        return sorted(jobs, key=lambda job: str(job.get("submit_time_iso", job.get("submit_time", ""))))

    def submit(self, assignment: Mapping[str, Any]) -> str:
        """Start a job for this run with every site that is connected; its number."""
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder), assignment)
            job: str = self._quiet(lambda: self._session.submit_job(folder))
            return job

    def stage(self, job: str) -> str:
        """Whether a job waits to be started, works, or has ended, also where its record says that it runs.

        The engine keeps the record of a job whose process died as running, some of them for good.
        """
        status = str(self._quiet(lambda: self._session.get_job_status(job)) or "")
        if status.startswith("FINISHED"):
            return ENDED
        if status == "RUNNING":  # the record says so only after the process was started
            return WORKS if self._has_process(job) else ENDED
        return WAITS

    def job_of(self, run: str) -> str | None:
        """The newest job for this run that has not ended; None if there is none."""
        named = [str(job["job_id"]) for job in self.jobs() if job.get("name") == run]
        return next((job for job in reversed(named) if self.stage(job) != ENDED), None)

    def _has_process(self, job: str) -> bool:
        def command() -> bool:
            try:
                self._session.do_app_command(job, NEWS, {"after": _ALL})
            except JobNotRunning:
                return False
            except (NoReply, InternalError):  # it is there, and busy or not open yet
                return True
            return True

        return self._quiet(command)

    def working(self, job: str) -> set[str]:
        """The sites on which this job's process runs."""
        statuses: list[dict[str, Any]] = self._quiet(lambda: self._session.get_client_job_status()) or []
        return {str(entry.get("client_name")) for entry in statuses if entry.get("job_id") == job}

    def news(self, job: str, after: int) -> dict[str, Any] | None:
        """Ask the job for news, with the rounds after the first `after`; None if it does not answer (yet)."""
        return self._ask(job, NEWS, {"after": after})

    def fetch(self, job: str, name: str, size: int) -> bytes | None:
        """One file of a finished run; None if the job is gone."""
        content = bytearray()
        while len(content) < size:
            answer = self._ask(job, FETCH, {"file": name, "offset": len(content)})
            piece = base64.b64decode(answer["data"]) if answer else b""
            if not piece:
                return None
            content += piece
        return bytes(content)

    def done(self, job: str) -> None:
        """Tell the job that all was fetched: it ends."""
        self._ask(job, DONE, {"done": True})

    def regroup(self, job: str) -> None:
        """Ask the job to stop after this round, so that the next one includes a site that came back."""
        self._ask(job, REGROUP, {"regroup": True})

    def abort(self, job: str) -> None:
        """End a job now."""
        self._quiet(lambda: self._session.abort_job(job))

    def stop(self, job: str, reason: str) -> None:
        """End a job, after a moment in which its coordinator hears why and does not begin the next."""
        self._ask(job, STOP, {"reason": reason})
        wait_for(lambda: self.stage(job) == ENDED, _HEAR_S)
        if self.stage(job) != ENDED:
            self.abort(job)

    def _ask(self, job: str, topic: str, data: Mapping[str, Any]) -> dict[str, Any] | None:
        def command() -> dict[str, Any] | None:
            try:
                answer: dict[str, Any] = self._session.do_app_command(job, topic, dict(data))
                return answer
            except (JobNotRunning, NoReply):
                return None
            except InternalError as error:
                if "app command" in str(error):  # the job is there but has not opened its desk yet
                    return None
                raise

        return self._quiet(command)

    def _quiet(self, act: Callable[[], T]) -> T:
        """Without what the engine prints; its failures (of a dozen types, with bare RuntimeErrors) as our own."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return act()
        except FedsynthError:
            raise
        except Exception as error:
            raise ConnectionLost(
                f"the server at {self._kit.host}:{self._kit.port} does not answer ({error})"
            ) from error


def write_job(folder: Path, assignment: Mapping[str, Any]) -> None:
    """A job is configuration alone: no code is shipped, and the sites would refuse it."""
    configuration = folder / "app" / "config"
    configuration.mkdir(parents=True)
    meta = {
        "name": assignment.get("run", "fedsynth"),
        "resource_spec": {},
        "min_clients": 1,
        "deploy_map": {"app": ["@ALL"]},
    }
    server = {
        "format_version": 2,
        "server": {"task_request_interval": TASK_INTERVAL_S},
        "workflows": [
            {"id": "exchange", "path": "fedsynth.deploy.nvflare.controller.ServerExchange", "args": {}}
        ],
        "components": [{"id": "work", "path": SERVER_JOB, "args": {}}],
    }
    client = {
        "format_version": 2,
        "executors": [
            {
                "tasks": [TASK],
                "executor": {"path": "fedsynth.deploy.nvflare.executor.SiteExchange", "args": {}},
            }
        ],
        "components": [{"id": "work", "path": SITE_JOB, "args": {}}],
    }
    named = {"config_fed_server.json": server, "config_fed_client.json": client, ASKED: dict(assignment)}
    for name, keys in named.items():
        (configuration / name).write_text(json.dumps(keys, indent=1))
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))


def wait_for(condition: Callable[[], bool], patience_s: float, every_s: float = 0.3) -> bool:
    """Whether the condition became true in time."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
