"""The server's half of a job: bytes to the sites and back as tasks, and a desk where the coordinator asks for news.

What to do with the sites is the business of the component named "work" (`ServerWork`): the engine moves bytes alone.
"""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedsynth.deploy.job import JobEnded, Regroup, ServerWork
from fedsynth.deploy.nvflare.streams import keep_streams_small
from fedsynth.errors import FedsynthError

TASK = "exchange"
ASKED = "run.json"  # in the job's configuration folder: what the coordinator asks for
NEWS, FETCH, DONE, REGROUP, STOP = (
    f"fedsynth.{name}" for name in ("news", "fetch", "done", "regroup", "stop")
)
CHUNK = 2**20  # bytes of a file in one answer
LARGEST = 2**28  # bytes of a message that is accepted
_POLL_S = 0.2
_CHECK_S = 0.05
_WAITING = 4  # messages to one site that it has not answered
_LINGER_S = 120.0  # how long the result of a finished job waits to be fetched


@dataclass
class Desk:
    """Answers the coordinator's questions while the job runs, each in plain JSON."""

    news: dict[str, Any] = field(default_factory=lambda: {"state": "starting", "error": "", "sites": {}})
    history: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)
    regroup: threading.Event = field(default_factory=threading.Event)

    def tell(self, line: Mapping[str, Any] | None = None, **news: Any) -> None:
        """Post news; `line` is a finished round."""
        if line is not None:
            self.history.append(dict(line))
        self.news = {**self.news, **news}

    def answer(self, topic: str, data: Mapping[str, Any] | None, _: FLContext) -> dict[str, Any]:
        """Answer one question of the coordinator."""
        question = data or {}
        if topic == NEWS:
            after = int(question.get("after", 0))
            sizes = {name: path.stat().st_size for name, path in self.files.items()}
            return {**self.news, "history": self.history[after : after + 500], "files": sizes}
        if topic == FETCH:
            return {"data": self._chunk(str(question.get("file", "")), int(question.get("offset", 0)))}
        if topic == STOP:
            self.tell(state="failed", error=str(question.get("reason", "")), resumable=True)
            return {}
        (self.done if topic == DONE else self.regroup).set()
        return {}

    def _chunk(self, name: str, offset: int) -> str:
        if name not in self.files:
            return ""
        with self.files[name].open("rb") as file:
            file.seek(max(0, offset))
            return base64.b64encode(file.read(CHUNK)).decode()


class Tasks:
    """The channel over the engine's tasks: a message down is a task, the message up is its result."""

    def __init__(self, controller: ServerExchange, context: FLContext, ended: Signal) -> None:
        self._controller = controller
        self._context = context
        self._ended = ended
        self._inbox: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._open: dict[str, list[Task]] = {}
        self.sites = tuple(sorted(client.name for client in context.get_engine().get_clients()))

    def send(self, site: str, payload: bytes) -> None:
        """Queue a message for a site; whether and when it arrives is not known."""
        if site not in self.sites:  # it is in the run, but was not connected when this job began
            return
        waiting = [task for task in self._open.get(site, []) if task.completion_status is None]
        while len(waiting) >= _WAITING:  # a silent site must not fill the memory
            self._controller.cancel_task(waiting.pop(0))
        data = Shareable()
        data["payload"] = payload
        task = Task(TASK, data=data, result_received_cb=self._arrived)
        self._controller.broadcast(task, self._context, targets=[site], min_responses=1)
        self._open[site] = [*waiting, task]

    def receive(self, timeout_s: float) -> tuple[str, bytes] | None:
        """The next message up and who sent it, or None after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._ended.triggered:
                raise JobEnded
            left = deadline - time.monotonic()
            try:
                return self._inbox.get(timeout=max(0.0, min(_POLL_S, left)))
            except queue.Empty:
                if left <= 0:
                    return None

    def _arrived(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        result: Shareable = client_task.result
        client_task.result = None  # or the engine keeps every message of the job in memory
        payload = result.get("payload")
        if result.get_return_code() != ReturnCode.OK or not isinstance(payload, bytes):
            return
        if len(payload) <= LARGEST:
            self._inbox.put((client_task.client.name, payload))


class ServerExchange(Controller):
    """The workflow of every fedsynth job."""

    def __init__(self) -> None:
        super().__init__(task_check_period=_CHECK_S)
        keep_streams_small()
        self._desk = Desk()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Open the desk."""
        for topic in (NEWS, FETCH, DONE, REGROUP, STOP):
            fl_ctx.get_engine().register_app_command(topic, self._desk.answer)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is held."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """A late result of a task that was given up: the channel promises nothing, so it may be lost."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Conduct the run, then wait until the coordinator has fetched the result."""
        engine, desk = fl_ctx.get_engine(), self._desk
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        assignment = json.loads((Path(workspace.get_app_config_dir(fl_ctx.get_job_id())) / ASKED).read_text())
        folder = run_folder(Path(workspace.get_root_dir()), assignment["run"])
        work: ServerWork = engine.get_component("work")
        try:
            channel = Tasks(self, fl_ctx, abort_signal)
            desk.tell(members=list(channel.sites))
            work.conduct(assignment, channel, folder, desk.tell, desk.regroup)
            desk.files = {path.name: path for path in work.results(folder)}
            desk.tell(state="finished")
        except JobEnded:
            return
        except Regroup:
            desk.tell(state="regrouping")
        except FedsynthError as error:
            desk.tell(state="failed", error=str(error), resumable=error.resumable)
        except Exception as error:
            self.log_exception(fl_ctx, "the run failed")
            desk.tell(state="failed", error=f"the server failed: {type(error).__name__}: {error}")
        deadline = time.monotonic() + _LINGER_S
        while not (abort_signal.triggered or time.monotonic() > deadline or desk.done.wait(_POLL_S)):
            pass


def run_folder(root: Path, run: str) -> Path:
    """Where the server keeps a run; its name must be one that we make.

    >>> run_folder(Path("kit"), "20261116-0a1b2c3d").as_posix()
    'kit/runs/20261116-0a1b2c3d'
    """
    if not run.replace("-", "").isalnum():
        raise ValueError(f"run {run!r}: expected letters, digits and hyphens")
    return root / "runs" / run
