"""One vector in the clear or sealed: seconds, bytes and memory of a client, of the server and of whoever opens.

python benchmarks/secure_case.py --kind bfv --dim 421696 --clients 10
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsynth.rng import Rng
from fedsynth.transport.he import Homomorphic, SealedSum
from fedsynth.transport.he_scheme import Keys
from fedsynth.transport.wire import Real

KINDS = ("clear", "bfv", "ckks", "ckks-public")
_MOST_ADDED = 4 * 10**7  # numbers that a server adds up here; beyond, fewer clients are added


def peak_growth(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of one core for the work, MiB that memory grew by at most while it ran, and what it returned.

    The work has one thread, so on a quiet machine this is the time it takes; other work counts for little in it.
    """
    gc.collect()
    grown = growth()
    began = time.process_time()
    found = work()
    seconds = time.process_time() - began
    return seconds, grown(), found


def growth() -> Callable[[], float]:
    """From now on: a function that tells by how many MiB memory has grown at most."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    return lambda: max(0.0, (_status("VmHWM") - before) / 1024)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def fastest(work: Callable[[], Any], turns: int) -> tuple[float, float, Any]:
    """The turn with the least time: what else the machine does can only slow it down; the largest growth."""
    done = [peak_growth(work) for _ in range(turns)]
    return min(turn[0] for turn in done), max(turn[1] for turn in done), done[-1][2]


def in_the_clear(dim: int, clients: int, turns: int) -> dict[str, Any]:
    update = np.random.default_rng(0).normal(0, 0.1, dim).astype(np.float32)
    sealing, client_memory, sent = fastest(update.tobytes, turns)
    total = np.zeros(dim)

    def add() -> None:
        np.add(total, np.frombuffer(sent, dtype=np.float32), out=total)

    adding, server_memory, _ = fastest(add, turns)
    opening, _, average = fastest(lambda: (total / clients).astype(np.float32).tobytes(), turns)
    return _result(
        sealing, adding, opening, len(sent), len(average), client_memory, server_memory, clients, {}
    )


def transport(kind: str, dim: int, clients: int, keys: Keys | None = None) -> Homomorphic:
    blind = kind != "ckks-public"
    return Homomorphic(blind=blind, approximate=kind != "bfv", reach=1.0, keys=keys).fitted(
        Real(dim), clients
    )


def serve(line: Connection, kind: str, dim: int, clients: int) -> None:
    """The server, in a process of its own: it has the public key and adds the same message again and again."""
    public, one, count = line.recv()
    parameters = transport(kind, dim, clients).laid_out.parameters
    made = transport(kind, dim, clients, Keys(parameters, public))

    def add() -> SealedSum:
        total = made.zero(Real(dim))
        for _ in range(count):
            made.add(total, one)
        return total

    adding, memory, total = peak_growth(add)
    closing, _, average = peak_growth(lambda: made.close(total))
    line.send((adding / count, memory, closing, average))


def sealed(kind: str, dim: int, clients: int, turns: int) -> dict[str, Any]:
    line, other = Pipe()
    server = get_context("fork").Process(target=serve, args=(other, kind, dim, clients))
    server.start()  # before this process has used any memory that it would inherit
    wire, made = Real(dim), transport(kind, dim, clients)
    update = torch.from_numpy(np.random.default_rng(0).normal(0, 0.1, (1, dim)).astype(np.float32))
    ids = np.zeros(1, dtype=np.int64)
    made.seal(made.rounded(update, Rng(), ids))  # warms SEAL up
    sealing, client_memory, sent = fastest(lambda: made.seal(made.rounded(update, Rng(), ids)), turns)
    message = made.rounded(update, Rng(1), ids)
    one = made.seal(message)
    count = max(2, min(clients, _MOST_ADDED // dim))
    line.send((made.key.public, one, count))
    adding, server_memory, closing, average = line.recv()
    server.join()
    opening, _, opened = fastest(lambda: made.open(wire, average), turns)
    summed = opened * count if made.blind else opened
    off = float((summed - count * message[0]).abs().max())
    assert off == 0.0 if kind == "bfv" else off < made.laid_out.error * count, off
    layout, parameters = made.laid_out, made.laid_out.parameters
    about = {
        "modulus_bits": parameters.modulus_bits,
        "degree": parameters.degree,
        "fields": getattr(layout, "fields", 1),
        "base": getattr(layout, "base", None),
        "error_of_the_sum": off,
        "step": layout.grid.step if kind == "bfv" else None,
    }
    more = {"added": count, "close_s": closing, "layout": about}
    return _result(
        sealing, adding, opening, len(sent), len(average), client_memory, server_memory, clients, more
    )


def _result(
    seal_s: float,
    add_s: float,
    open_s: float,
    up: int,
    down: int,
    client: float,
    server: float,
    clients: int,
    more: dict,
) -> dict[str, Any]:
    return {
        "clients": clients,
        "seal_s": seal_s,
        "add_s": add_s,
        "open_s": open_s,
        "bytes_up": up,
        "bytes_down": down,
        "client_mib": client,
        "server_mib": server,
        **more,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--clients", type=int, default=10)
    options = parser.parse_args()
    turns = 3 if options.dim <= 10**6 else 1
    if options.kind == "clear":
        found = in_the_clear(options.dim, options.clients, turns)
    else:
        found = sealed(options.kind, options.dim, options.clients, turns)
    print(json.dumps({"kind": options.kind, "dim": options.dim, **found}))


if __name__ == "__main__":
    main()
