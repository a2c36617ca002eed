"""A server or a site as a service: one process a kit, started again when it dies, ended with all it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from fedsynth.data.configuration import read_file
from fedsynth.data.lock import alone
from fedsynth.deploy.environment import METRICS_PORT, NOTICES, SITE_FILE
from fedsynth.deploy.nvflare.kits import REVOKED, Kit, Unreachable
from fedsynth.deploy.nvflare.metrics import Metrics, family_of, is_connected, served
from fedsynth.deploy.nvflare.upkeep import tidy
from fedsynth.errors import BadInput

_RESTART_S = (1.0, 2.0, 5.0, 10.0, 30.0)  # waits between restarts; after a calm time they begin anew
_CALM_S = 60.0
_HOPELESS = 8  # so many restarts without a calm time in between
_GRACE_S = 5.0
_ENGINE = {
    "MALLOC_ARENA_MAX": "2",
    "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "20",  # seconds that a dead job is shown as running; else 900
}
_TIDY_S = 60.0
_CONTACT_S, _UNHEARD = 5.0, 6  # seconds between looks, and looks without a connection until it is said
_LOCK, _NUMBER, _NOTICES = "running.lock", "running.pid", "notices.log"


def check_port(kit: Kit, listen: str | None = None) -> str:
    """The address to bind, or a sentence why it cannot be bound."""
    address = listen or kit.host
    try:
        address = socket.gethostbyname(address)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, kit.port))
    except socket.gaierror:
        raise BadInput(f"{address}: no such host; name an address of this machine with --listen") from None
    except OSError as error:
        advice = (
            "stop what listens there"
            if error.errno == 98
            else "name an address of this machine with --listen"
        )
        raise BadInput(f"{address}:{kit.port} cannot be listened on ({error.strerror}); {advice}") from None
    return address


def wait_for_server(kit: Kit, patience_s: float) -> None:
    """Return once the server answers; a refusal is final, silence is waited out."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            kit.reach()
            return
        except Unreachable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.5)


@dataclass
class Node:
    """Keeps the engine's process of one kit alive until `stop`."""

    kit: Kit
    say: Callable[[str], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    listen: str = ""
    site_file: Path | None = None  # of a site: its site.toml
    metrics_port: int | None = None
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _noticed: int = field(default=0, init=False)  # bytes of the notices that were printed
    _tidy_at: float = field(default=0.0, init=False)
    _contact_at: float = field(default=0.0, init=False)
    _without_contact: int = field(default=0, init=False)  # looks in a row that saw no connection
    _was_connected: bool = field(default=False, init=False)
    _list_in_use: bytes = field(default=b"", init=False)  # of void certificates, when the engine was started

    def run(self) -> None:
        """Block until the process was told to stop."""
        with ExitStack() as held:
            held.enter_context(_alone(self.kit))
            if self.site_file is not None:
                held.enter_context(_state_alone(self.site_file))
                if self.metrics_port is not None:
                    metrics = Metrics(self.kit, self.site_file, os.getpid())
                    held.enter_context(served(metrics, self.metrics_port))
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self._stopping.set())
            failures, began = 0, time.monotonic()
            notices = self.kit.folder / _NOTICES
            self._noticed = notices.stat().st_size if notices.exists() else 0
            while not self._stopping.is_set():
                began = time.monotonic()
                self._live()
                if self._stopping.is_set():
                    return
                if self._void_certificates() != self._list_in_use:
                    self.say(
                        "the list of void certificates has changed; every connection is made and checked anew"
                    )
                    continue
                failures = 0 if time.monotonic() - began > _CALM_S else failures + 1
                if failures >= _HOPELESS:
                    raise BadInput(
                        f"the {self.kit.title} stopped {failures} times in a row; see {self.kit.folder / 'console.log'}"
                    )
                wait = _RESTART_S[min(max(failures, 1), len(_RESTART_S)) - 1]
                self.say(f"the {self.kit.title}'s process is gone; starting it again in {wait:g} s")
                self._stopping.wait(wait)

    def stop(self) -> None:
        """End `run` from another thread."""
        self._stopping.set()

    def _void_certificates(self) -> bytes:
        path = self.kit.startup / REVOKED
        return path.read_bytes() if path.exists() else b""

    def _look_after(self) -> None:
        """Print what the node's jobs noted for people, and now and then tidy up."""
        path = self.kit.folder / _NOTICES
        size = path.stat().st_size if path.exists() else 0
        if size > self._noticed:
            with path.open() as file:
                file.seek(self._noticed)
                for line in dict.fromkeys(file.read().splitlines()):
                    self.say(f"{self.kit.title}: {line}")
        self._noticed = size
        if self.kit.role == "site" and time.monotonic() > self._contact_at:
            self._contact_at = time.monotonic() + _CONTACT_S
            self._check_contact()
        if time.monotonic() > self._tidy_at:
            self._tidy_at = time.monotonic() + _TIDY_S
            tidy(self.kit.folder)

    def _check_contact(self) -> None:
        """Say that this site is connected, and, once, that the server answers but does not keep the connection."""
        connected = is_connected(family_of(os.getpid()), self.kit.port)
        if connected and not self._was_connected:
            self._was_connected = True
            self.say(f"{self.kit.title}: connected to {self.kit.host}:{self.kit.port}")
        if connected and self._without_contact >= _UNHEARD:
            self.say(f"{self.kit.title}: connected again")
        self._without_contact = 0 if connected else self._without_contact + 1
        if self._without_contact != _UNHEARD:
            return
        try:
            self.kit.reach()
        except BadInput as error:
            self.say(f"{self.kit.title}: not connected: {error}")
        else:
            self.say(
                f"{self.kit.title}: the server answers but does not keep this connection. Does another process run "
                "with this kit, or a copy of it? A site runs once: stop the other, or ask the server's operator"
            )

    def _live(self) -> None:
        """Run the engine's process until it ends, is told to stop, or has an old list of void certificates."""
        self._list_in_use = self._void_certificates()
        command = [
            sys.executable,
            "-m",
            "fedsynth.deploy.nvflare.process",
            str(self.kit.folder),
            self.kit.role,
        ]
        with (self.kit.folder / "console.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, self.listen],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **_ENGINE,
                    NOTICES: str(self.kit.folder / _NOTICES),
                    **self.environment,
                },
                start_new_session=True,
            )
        try:
            while process.poll() is None and not self._stopping.wait(0.1):
                self._look_after()
                if self._void_certificates() != self._list_in_use:
                    break
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    for child in family:
        _quietly(child.terminate)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in psutil.wait_procs(family, timeout=_GRACE_S)[1]:
        _quietly(child.kill)


def _quietly(act: Callable[[], None]) -> None:
    with suppress(psutil.NoSuchProcess):
        act()


@contextmanager
def _alone(kit: Kit) -> Iterator[None]:
    """Hold the kit's lock, with our process number beside it; the lock falls with the process."""
    sentence = f"the {kit.title} is running already (process {running(kit.folder)}); stop it first"
    with alone(kit.folder / _LOCK, sentence):
        (kit.folder / _NUMBER).write_text(f"{os.getpid()} {_numbering()}")
        yield


@contextmanager
def _state_alone(site_file: Path) -> Iterator[None]:
    """Hold the lock of a site's state folder, so that a copy of its kit cannot work on the same state."""
    folder = site_file.parent / read_file(site_file)["state"]["folder"]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sentence = (
        f"{folder}: another process already runs a site with this state folder; stop it first (a site runs once, "
        "from one kit)"
    )
    with alone(folder / _LOCK, sentence):
        yield


def running(folder: Path) -> int | None:
    """The process that serves this kit on this machine, or None."""
    if not (folder / _NUMBER).exists():
        return None
    try:
        with alone(folder / _LOCK, ""):
            return None
    except BadInput:
        number = (folder / _NUMBER).read_text().partition(" ")[0]
        return int(number) if number.isdigit() else None


def _numbering() -> str:
    """Name the numbering of processes that this process sees: a container has its own."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def stop(folder: Path, patience_s: float = 20.0) -> bool:
    """Stop the process that serves this kit; False if there is none."""
    process = running(folder)
    if process is None:
        return False
    if (folder / _NUMBER).read_text().partition(" ")[2] not in ("", _numbering()):
        raise BadInput(f"{folder}: runs in a container; stop it there (docker compose stop)")
    os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while running(folder) is not None:
        if time.monotonic() > deadline:
            raise BadInput(f"{folder}: process {process} does not stop; end it with kill -9 {process}")
        time.sleep(0.1)
    return True


def become(kit: Kit, environment: Mapping[str, str], listen: str = "") -> None:
    """Turn this process into the one that keeps a node alive, without all that was loaded to check its data."""
    command = [sys.executable, "-m", "fedsynth.deploy.nvflare.node", str(kit.folder), kit.role, listen]
    os.execve(sys.executable, command, {**os.environ, **environment})


def main() -> None:
    """Keep the node of the kit in the arguments alive."""
    folder, role, listen = sys.argv[1:4]

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    try:
        own, port = os.environ.get(SITE_FILE), os.environ.get(METRICS_PORT)
        site_file = Path(own) if own and role == "site" else None
        Node(
            Kit.load(folder, role),
            say,
            listen=listen,
            site_file=site_file,
            metrics_port=int(port) if port else None,
        ).run()
    except BadInput as error:
        print(f"fedsynth: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
