"""Run a federation out of containers on 127.0.0.1: a server, three sites and a coordinator, all from one image.

`make image`, then: python tools/image_federation.py IMAGE. PODMAN names the program (default podman), PODMAN_FLAGS more
of its flags, for example "--runtime runc" where crun does not know the machine's cgroups.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SITES = ("ada", "bern", "cern")
PORT = 18742
USER = 10001
PATIENTS = 200
SITE_FILE = """\
[data]
file = "patients.csv"
schema = "schema.json"
client_column = "patient id"
[budget]
epsilon = 8.0
delta = 1e-4
unit = "client"
[policy]
recipes = ["marginals"]
transports = ["clear"]
minimum_cohort = 3
[state]
folder = "state"
"""
_SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 99},
        {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
    ],
}


class Containers:
    """Containers of one image: read-only root, no capabilities, an ordinary user, the host's network."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.podman = [os.environ.get("PODMAN", "podman"), *shlex.split(os.environ.get("PODMAN_FLAGS", ""))]
        self.names: list[str] = []

    def run(self, *words: str, folder: Path, name: str | None = None, may_fail: bool = False) -> str:
        """Run fedsynth in a container with `folder` as /work; with a name, in the background. Return what it said."""
        apart = ["--pull=never", *(["--detach", "--name", name] if name else ["--rm"])]
        hardened = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host"]
        limits = ["--ulimit=nproc=4096:4096", "--ulimit=nofile=4096:4096"]
        place = [f"--user={USER}:{USER}", "--tmpfs=/tmp", f"--volume={folder}:/work", "--workdir=/work"]
        command = [*self.podman, "run", *apart, *hardened, *limits, *place, self.image, *words]
        if name:
            self.names.append(name)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode and not may_fail:
            raise SystemExit(f"{shlex.join(map(str, command))} ended with {done.returncode}")
        return done.stdout

    def logs(self, name: str) -> str:
        """Return what a container wrote."""
        done = subprocess.run([*self.podman, "logs", name], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def close(self) -> None:
        """Stop and remove what was started."""
        for name in self.names:
            subprocess.run(
                [*self.podman, "rm", "--force", "--time", "20", name], check=False, capture_output=True
            )


def write_rows(folder: Path, number: int) -> None:
    """Write one site's folder: rows, schema and site.toml."""
    folder.mkdir()
    lines = [f"{number}-{row},{(row * (number + 3)) % 90},{'FM'[row % 2]}" for row in range(PATIENTS)]
    (folder / "patients.csv").write_text("patient id,age,sex\n" + "\n".join(lines) + "\n")
    (folder / "schema.json").write_text(json.dumps(_SCHEMA))
    (folder / "site.toml").write_text(SITE_FILE)


def wait_until_connected(containers: Containers, folder: Path) -> None:
    """Return once the server says that all sites are connected; refuse if one of them ended."""
    asked = ("federation", "status", "kits/coordinator", "--json")
    while True:
        said = containers.run(*asked, folder=folder, may_fail=True)  # the server may be starting
        if said and all(json.loads(said)["sites"].values()):
            return
        for name in SITES:
            if "fedsynth: " in (text := containers.logs(f"fedsynth-{name}")):
                raise SystemExit(f"{name}: {text[-500:]}")


def main(image: str) -> None:
    """Make kits, start everybody, run, and look at what came out."""
    folder = Path(tempfile.mkdtemp(prefix="image-federation-"))
    os.chown(folder, USER, USER)
    containers, began = Containers(image), time.monotonic()
    try:
        where = ("--host", "127.0.0.1", "--port", str(PORT))
        containers.run(
            "federation", "create", "--sites", ",".join(SITES), *where, "--out", "kits", folder=folder
        )
        for number, name in enumerate(SITES):
            place = folder / name
            write_rows(place, number)
            shutil.move(folder / "kits" / "sites" / name, place / "kit")
            subprocess.run(["chown", "--recursive", f"{USER}:{USER}", place], check=True)
        containers.run(
            "federation", "serve", "/work", folder=folder / "kits" / "server", name="fedsynth-server"
        )
        for name in SITES:
            containers.run(
                "site", "start", "kit", "--config", "site.toml", folder=folder / name, name=f"fedsynth-{name}"
            )
        wait_until_connected(containers, folder)
        print(
            f"{time.monotonic() - began:.0f} s: a server and {len(SITES)} sites are connected, each in its container"
        )
        shutil.copy(folder / "ada" / "schema.json", folder / "schema.json")
        promise = ("--minimum-sites", "3", "--epsilon", "3", "--delta", "1e-4")
        what = ("--federation", "kits/coordinator", "--schema", "schema.json", "--recipe", "marginals")
        containers.run("run", *what, *promise, "--rows", "100", "--out", "RUN", folder=folder)
        statement = json.loads((folder / "RUN" / "privacy.json").read_text())
        seconds, private = time.monotonic() - began, statement["private"]
        print(f"{seconds:.0f} s: the run is over, epsilon {statement['epsilon']:.3f}, private {private}")
    finally:
        containers.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
