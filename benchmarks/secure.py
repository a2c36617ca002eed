"""What hiding updates from the server costs: sealed and masked sums against the clear, and against PP-FedGAN's Table 3.

    make bench-secure        # a quarter of an hour on two busy cores

Each case runs in a process of its own, one after the other; results go to benchmarks/results/secure.{md,json}.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
SIZES = (109_440, 312_256, 421_696, 1_000_000, 10_000_000)
PAPER_SIZE = 421_696  # PP-FedGAN's discriminator and generator together
COHORTS = (10, 100, 1_000)
PAPER = {109_440: (708.34e6, 6.1), 312_256: (708.79e6, 10.2)}  # bytes and seconds of Table 3
NAMES = {
    "clear": "clear",
    "ckks-public": "CKKS as in the paper, full slots, public key",
    "ckks": "CKKS, sealed with the secret key",
    "bfv": "BFV packed",
    "secagg": "secagg, 20 bits",
}
Result = dict[str, Any]


def cases() -> list[tuple[str, tuple[int, ...], int]]:
    """Kind, numbers, clients. Masked sums of one cohort are timed together: keys and shares take most of the time."""
    found = [("clear", (dim,), 10) for dim in SIZES]
    found += [
        ("bfv", (dim,), clients) for dim in SIZES for clients in COHORTS if dim >= PAPER_SIZE or clients == 10
    ]
    found += [("ckks", (dim,), 10) for dim in SIZES]
    found += [("ckks-public", (dim,), 10) for dim in SIZES if dim < 10**7]
    found = sorted(found, key=lambda case: case[1])
    return found + [("secagg", SIZES, clients) for clients in COHORTS]  # the longest last


def timed(kind: str, dims: tuple[int, ...], clients: int) -> list[Result]:
    script = "secure_masks.py" if kind == "secagg" else "secure_case.py"
    named = ["--dims", *map(str, dims)] if kind == "secagg" else ["--kind", kind, "--dim", str(dims[0])]
    command = [sys.executable, str(HERE / script), "--clients", str(clients), *named]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    before = os.getloadavg()[0]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return [{**json.loads(line), "load": round(before, 1)} for line in lines]


def machine() -> Result:
    cpu = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    versions = {
        name: importlib.metadata.version(name) for name in ("fedsynth", "tenseal", "cryptography", "numpy")
    }
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": commit.stdout.strip(),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def rows(result: Result) -> list[Result]:
    """A result as lines of the table: one, or one for each share of drop-outs."""
    if "dropped" not in result:
        return [{**result, "lost": ""}]
    shared = {key: value for key, value in result.items() if key != "dropped"}
    return [{**shared, **found, "lost": share} for share, found in result["dropped"].items()]


def table(results: list[Result], dim: int) -> list[str]:
    lines = [
        "",
        f"## {dim:,} parameters, {4 * dim / 1e6:.2f} MB in the clear",
        "",
        "| | clients | lost | up, MB | × plain | down, MB | × plain | client s | add, s a client | open s "
        "| client MiB | server MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    if dim in PAPER:
        size, seconds = PAPER[dim]
        lines.append(
            f"| PP-FedGAN, Table 3 | | | {size / 1e6:.0f} | {size / 4 / dim:,.0f} | | | {seconds} | | | | |"
        )
    for result in results:
        if result["dim"] == dim:
            lines += [_row(NAMES[result["kind"]], row, dim) for row in rows(result)]
    return lines


def _row(name: str, row: Result, dim: int) -> str:
    up, down = row["bytes_up"], row["bytes_down"]
    return (
        f"| {name} | {row['clients']:,} | {row['lost']} | {up / 1e6:.2f} | {up / 4 / dim:.2f} | {down / 1e6:.2f} "
        f"| {down / 4 / dim:.2f} | {row['seal_s']:.3f} | {row['add_s']:.4f} | {row['open_s']:.3f} "
        f"| {row['client_mib']:.0f} | {row['server_mib']:.0f} |"
    )


def aims(results: list[Result]) -> list[str]:
    """The aims and what was measured."""

    def of(kind: str, clients: int) -> Result | None:
        found = [r for r in results if (r["kind"], r["dim"], r["clients"]) == (kind, PAPER_SIZE, clients)]
        lines = [row for result in found for row in rows(result)]
        return min(
            lines, key=lambda row: row["seal_s"], default=None
        )  # a party's work hardly depends on drop-outs

    checks: list[tuple[str, str, bool]] = []
    for clients in COHORTS:
        for kind, most in (("bfv", 2.0), ("secagg", 0.75)):
            if row := of(kind, clients):
                up, took = row["bytes_up"] / 4 / PAPER_SIZE, row["seal_s"]
                which = f"{NAMES[kind]}, {clients:,} clients"
                checks.append(
                    (f"{which}: at most {most} × plain bytes up, keys included", f"{up:.2f}", up <= most)
                )
                if kind == "bfv":
                    down = row["bytes_down"] / 4 / PAPER_SIZE
                    checks.append(
                        (f"{which}: at most {most} × plain bytes down", f"{down:.2f}", down <= most)
                    )
                checks.append((f"{which}: under 0.3 s a client", f"{took:.3f} s", took < 0.3))
    grown = [row["server_mib"] for clients in COHORTS if (row := of("bfv", clients))]
    flat = max(grown, default=0.0) < 2 * min(grown, default=0.0) + 8
    checks.append(
        ("BFV: server memory does not grow with clients", ", ".join(f"{m:.0f} MiB" for m in grown), flat)
    )
    lines = ["", f"## Aims, for {PAPER_SIZE:,} parameters", "", "| aim | measured | met |", "|---|---|---|"]
    return [*lines, *(f"| {aim} | {found} | {'yes' if met else 'no'} |" for aim, found, met in checks)]


def unfinished(results: list[Result]) -> list[str]:
    """What a page says that was written before its run was over."""
    done, planned = len(results), sum(len(dims) if kind == "secagg" else 1 for kind, dims, _ in cases())
    return [] if done == planned else ["", f"**Unfinished: {done} of {planned} cases; run it to its end.**"]


def report(found: Result) -> list[str]:
    about, results = found["machine"], found["results"]
    loads = [result["load"] for result in results]
    lines = [
        "# What hiding updates costs",
        "",
        f"{about['cpu']}, {about['cores']} cores; Python {about['python']}, TenSEAL {about['versions']['tenseal']}, "
        f"cryptography {about['versions']['cryptography']}; fedsynth at {about['commit']}, {about['date']}. "
        f"Load average while it ran: {min(loads)} to {max(loads)}. Written by `make bench-secure`.",
        *unfinished(results),
        *aims(results),
    ]
    for dim in SIZES:
        lines += table(results, dim)
    return [*lines, "", "## How", "", *METHOD]


METHOD = [
    "- All times are seconds of one core: what one thread takes on a quiet machine. Caches that others use make them",
    "  longer, so the load is noted.",
    "- *client s* is all that a client computes in a round: rounding, packing and sealing, or keys, shares, masks and",
    "  signatures; clip and noise come before it. The least of a few turns counts, and in the table of aims the least",
    "  of the three shares of drop-outs for masked sums.",
    "- *add* is the server's time for one arrival, reading it included. *open* is what a key-holder (sealed sums), the",
    "  server (masked sums) or nobody in particular (clear) needs for the sum.",
    "- *up* and *down* are what one client sends and receives in a round. Down is the sealed average (BFV, CKKS), or",
    "  the parameters in the clear plus others' keys and shares (secagg).",
    "- *MiB* is the largest growth of a process's memory while it worked; for sealed sums the server is a process of",
    "  its own that adds as many messages as there are clients (up to 4 · 10^7 numbers).",
    "- *lost* parties of secagg handed out shares and then sent no vector, which costs the server most: it rebuilds",
    "  the masks between each of them and each of its neighbors. Threshold 70% of the parties, 5% colluders; of 1,000",
    "  parties each masks with 66 others. Opening is timed without the masks, and the time of expanding and",
    "  subtracting one is added for each.",
    "- The paper sealed with TenSEAL's tensors, which leave most slots empty; it gives the encryption time only.",
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=max(SIZES), help="leave larger models out")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results", help="where secure.md and secure.json go"
    )
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    about: Result = {"machine": machine(), "paper": PAPER, "results": []}
    for kind, sizes, clients in cases():
        dims = tuple(dim for dim in sizes if dim <= options.most)
        found = timed(kind, dims, clients) if dims else []
        about["results"] += found
        for shown in (rows(result)[0] for result in found):
            print(
                f"{kind}, {shown['dim']:,}, {clients} clients: {shown['seal_s']:.3f} s, {shown['bytes_up']:,} B",
                flush=True,
            )
        (options.out / "secure.json").write_text(json.dumps(about, indent=1) + "\n")
        (options.out / "secure.md").write_text("\n".join(report(about)) + "\n")


if __name__ == "__main__":
    main()
