"""Metrics of a running site in Prometheus' text form, on 127.0.0.1 alone: rounds, budget, contact, memory; no rows."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil

from fedsynth.data.configuration import read_file
from fedsynth.deploy.nvflare.kits import Kit
from fedsynth.errors import BadInput

_BUDGET_S = 60.0  # at most so often is the budget computed: that takes seconds and a process of its own
_PREFIX = "fedsynth_site_"
_HELP = {
    "connected": ("gauge", "1 if the site has a connection to the server."),
    "last_contact_timestamp_seconds": ("gauge", "When the site was last connected or answered a message."),
    "rounds_total": ("counter", "Rounds that the site answered, over all runs."),
    "runs_begun_total": ("counter", "Sessions of runs that the site began."),
    "runs_finished_total": ("counter", "Runs that are over here."),
    "refusals_total": ("counter", "Messages that the site refused."),
    "budget_epsilon": ("gauge", "The budget of site.toml over all runs."),
    "budget_epsilon_left": ("gauge", "What the site's ledger leaves of it."),
    "memory_bytes": ("gauge", "Resident memory of the site's processes."),
    "certificate_expires_timestamp_seconds": ("gauge", "When the kit's certificate ends."),
}
_COUNTED = {"began": "runs_begun_total", "finished": "runs_finished_total", "refused": "refusals_total"}


@dataclass
class Metrics:
    """Reads what a site's own files and processes show; `text` is what a scrape gets."""

    kit: Kit
    site_file: Path
    process: int  # the one that keeps the site alive
    _counts: Counter[str] = field(default_factory=Counter, init=False)
    _read: int = field(default=0, init=False)  # bytes of the audit log that were counted
    _contact: float = field(default=0.0, init=False)
    _budget: dict[str, float] = field(default_factory=dict, init=False)
    _budget_of: tuple[int, float] | None = field(
        default=None, init=False
    )  # the ledger that it was computed from
    _budget_at: float = field(default=float("-inf"), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def text(self) -> str:
        """All values now; one that is not known yet is left out."""
        with self._lock:
            values = self._values()
        lines = []
        for name, value in values.items():
            kind, words = _HELP[name]
            lines += [f"# HELP {_PREFIX}{name} {words}", f"# TYPE {_PREFIX}{name} {kind}"]
            lines.append(f"{_PREFIX}{name} {value:.15g}")
        return "\n".join(lines) + "\n"

    def _values(self) -> dict[str, float]:
        state = self.site_file.parent / read_file(self.site_file)["state"]["folder"]
        self._count(state / "audit.jsonl")
        self._compute_budget(state / "ledger.jsonl")
        family = family_of(self.process)
        connected = is_connected(family, self.kit.port)
        if connected:
            self._contact = time.time()
        values = {"connected": float(connected), "last_contact_timestamp_seconds": self._contact}
        if not self._contact:
            del values["last_contact_timestamp_seconds"]
        counted = ("rounds_total", *_COUNTED.values())
        memory = sum(_memory(one) for one in family)
        expires = self.kit.expires.timestamp()
        return {
            **values,
            **{name: self._counts[name] for name in counted},
            **self._budget,
            "memory_bytes": memory,
            "certificate_expires_timestamp_seconds": expires,
        }

    def _count(self, log: Path) -> None:
        """Count the lines of the audit log that are new and whole."""
        size = log.stat().st_size if log.exists() else 0
        if size < self._read:
            self._read, self._counts = 0, Counter()
        if size == self._read:
            return
        with log.open("rb") as file:
            file.seek(self._read)
            whole = file.read(size - self._read).rpartition(b"\n")[0]
        self._read += len(whole) + bool(whole)
        for text in whole.splitlines():
            with suppress(ValueError):  # a line that a crash tore
                line = json.loads(text)
                name = _COUNTED.get(line["what"])
                if line["what"] == "answered" and line.get("job") == "round":
                    name = "rounds_total"
                if name:
                    self._counts[name] += 1
                self._contact = max(self._contact, datetime.fromisoformat(line["time"]).timestamp())

    def _compute_budget(self, ledger: Path) -> None:
        """Have the budget computed aside if the ledger changed; this process stays small."""
        stamp = (ledger.stat().st_size, ledger.stat().st_mtime) if ledger.exists() else (0, 0.0)
        if stamp == self._budget_of or time.monotonic() - self._budget_at < _BUDGET_S:
            return
        self._budget_of, self._budget_at = stamp, time.monotonic()
        threading.Thread(target=self._ask_budget, args=(ledger,), daemon=True).start()

    def _ask_budget(self, ledger: Path) -> None:
        command = [sys.executable, "-m", "fedsynth.deploy.nvflare.metrics", str(self.site_file), str(ledger)]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        with self._lock:
            if result.returncode:
                self._budget, self._budget_of = {}, None  # better no number than an old one; asked again
            else:
                self._budget = json.loads(result.stdout)


def family_of(process: int | None) -> list[psutil.Process]:
    """A process and all that it started."""
    with suppress(psutil.NoSuchProcess):
        if process is not None:
            own = psutil.Process(process)
            return [own, *own.children(recursive=True)]
    return []


def is_connected(family: list[psutil.Process], port: int) -> bool:
    """Whether one of these processes has a connection to this port of some machine."""
    for one in family:
        with suppress(psutil.NoSuchProcess):
            for link in one.net_connections("tcp"):
                if link.status == psutil.CONN_ESTABLISHED and link.raddr and link.raddr.port == port:
                    return True
    return False


def _memory(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.memory_info().rss)
    return 0


@contextmanager
def served(metrics: Metrics, port: int) -> Iterator[int]:
    """Answer GET /metrics on this port of 127.0.0.1 until the block ends; gives the port."""

    class MetricsHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            body = metrics.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A scrape every few seconds is no news."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), MetricsHandler)
    except (OSError, OverflowError) as error:
        raise BadInput(
            f"metrics port {port}: 127.0.0.1:{port} cannot be listened on ({error}); name another with --metrics-port"
        ) from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Print the budget of a site.toml and what a ledger leaves of it."""
    from fedsynth.data.configuration import build
    from fedsynth.privacy.budget import Budget
    from fedsynth.privacy.ledger import Ledger

    budget = build(Budget, read_file(Path(sys.argv[1]))["budget"])
    left = budget.left(Ledger(Path(sys.argv[2])))
    print(json.dumps({"budget_epsilon": budget.epsilon, "budget_epsilon_left": left}))


if __name__ == "__main__":
    main()
