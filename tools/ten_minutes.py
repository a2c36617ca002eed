"""Do as a hospital's operator would: from nothing to "connected" with the kit, the bundle and the page's commands.

The commands are those between the marks in docs/operations.md, run as an ordinary user in a network that has nothing
but 127.0.0.1, where only the federation's server listens. `make bundle`, then: python tools/ten_minutes.py
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

ROOT = Path(__file__).resolve().parents[1]
PAGE, BUNDLE = ROOT / "docs" / "operations.md", ROOT / "build" / "bundle"
SITE, PORT = "st-mary", 8002
LIMIT_S = 600
ROWS = 2000
_ALONE = "FEDSYNTH_TEN_MINUTES"
_SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 110},
        {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
    ],
}


def page_commands(text: str) -> str:
    """Return the commands of the blocks between the page's marks."""
    begin, end = "<!-- ten minutes: begin -->", "<!-- ten minutes: end -->"
    inside = text.split(begin, 1)[1].split(end, 1)[0]
    return "\n".join(re.findall(r"^```bash\n(.*?)^```", inside, re.MULTILINE | re.DOTALL))


def enter_empty_network() -> None:
    """Start again in a network of its own, which has nothing but a loopback device."""
    if os.environ.get(_ALONE):
        return
    flags = ["--net"] if os.getuid() == 0 else ["--net", "--map-current-user"]
    command = ["unshare", *flags, "--", sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, _ALONE: "1"})


def raise_loopback() -> None:
    """Switch the loopback device on, as `ip link set lo up` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(
            control, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40)
        )  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING
    devices = {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]}
    if devices - {"lo"}:
        raise SystemExit(f"this network has {', '.join(sorted(devices - {'lo'}))}; expected lo alone")


def operator() -> dict[str, Any]:
    """Return how to run a process as an ordinary user: nobody, where this one is root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def fedsynth(*words: str) -> list[str]:
    """Return a command of the consortium's own installation."""
    return [sys.executable, "-m", "fedsynth.cli.main", *words]


@contextmanager
def consortium(folder: Path) -> Iterator[Path]:
    """Make kits and serve, as the other parties have done before the operator's clock starts."""
    kits = folder / "kits"
    where = ["--host", "127.0.0.1", "--port", str(PORT), "--out", str(kits)]
    subprocess.run(
        fedsynth("federation", "create", "--sites", f"{SITE},charite", *where),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(fedsynth("federation", "serve", str(kits / "server")), stderr=log)
    try:
        yield kits
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def hand_over(kits: Path, home: Path) -> None:
    """Give the operator what a hospital has: its kit, the bundle, its rows and the agreed schema; nothing else."""
    home.mkdir()
    shutil.copytree(BUNDLE, home / "fedsynth-bundle")
    subprocess.run(["tar", "-cf", home / f"{SITE}.tar", "-C", kits / "sites", SITE], check=True)
    rows = {
        "patient id": range(ROWS),
        "age": [row % 90 for row in range(ROWS)],
        "sex": ["F", "M"] * (ROWS // 2),
    }
    pd.DataFrame(rows).to_csv(home / "patients.csv", index=False)
    (home / "schema.json").write_text(json.dumps(_SCHEMA))
    who = operator()
    if who:
        for path in (home, *home.rglob("*")):
            os.chown(path, who["user"], who["group"])
    home.chmod(0o700)


def family_memory(process: subprocess.Popen[str]) -> int:
    """Return the memory of a process and all its children, shared pages counted once."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    return sum(one.memory_full_info().pss for one in family)


def connected(kits: Path) -> bool:
    """Ask the server, as the coordinator does, whether the site is there."""
    command = fedsynth("federation", "status", str(kits / "coordinator"))
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return any(line.startswith(f"{SITE}: connected") for line in asked.stdout.splitlines())


def main() -> None:
    """Run the page's commands by the clock, and say when each began."""
    enter_empty_network()
    raise_loopback()
    folder = Path(tempfile.mkdtemp(prefix="ten-minutes-"))
    folder.chmod(0o711)
    try:
        with consortium(folder) as kits:
            hand_over(kits, folder / "home")
            seconds = follow_page(folder / "home", kits)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"from nothing to connected: {seconds:.0f} s, without root, on a network that has the server's port alone"
    )
    raise SystemExit(0 if seconds < LIMIT_S else 1)


def follow_page(home: Path, kits: Path) -> float:
    """Run the commands as the operator; return the seconds until the server says that the site is connected."""
    environment = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PIP_CONFIG_FILE": "/dev/null",
    }
    script = "set -euo pipefail\nexport PS4='+ '\nid -u\nset -x\n" + page_commands(
        PAGE.read_text(encoding="utf-8")
    )
    began = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=home, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, **operator(),
    )  # fmt: skip
    ready = threading.Event()

    def show() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{time.monotonic() - began:6.0f} s  {line.rstrip()[:150]}", flush=True)
            if ": connected to " in line:
                ready.set()
        ready.set()

    threading.Thread(target=show, daemon=True).start()
    ready.wait()
    while process.poll() is None and not connected(kits):
        time.sleep(1)
    seconds = time.monotonic() - began
    if process.poll() is not None:
        raise SystemExit(f"the commands ended with {process.returncode} before the site was connected")
    print(
        f"{seconds:6.0f} s  the server says: {SITE} is connected; the site takes {family_memory(process) >> 20} MiB"
    )
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    return seconds


if __name__ == "__main__":
    main()
