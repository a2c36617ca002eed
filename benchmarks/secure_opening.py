"""Opening a masked sum in which parties were lost: masks, agreements and the shares' arithmetic, before and now.

    python benchmarks/secure_opening.py

Before, masks came out of the cipher in counter mode (now in GCM, the same stream), one thread expanded all of them,
each agreement computed a party's public key again, each of the weights that join shares took an inversion of its own,
and shares of a majority of the neighbors opened a secret, which takes 2.8 times as many neighbors as the proof's bound.
All are timed here beside what runs now, turn by turn, so that a machine with other work slows both alike; `_cpu_s` is
processor time. The vector and the number of masks are those of 1,000 parties of which 30 % are lost; a sample of the
masks is expanded and scaled up.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import hypergeom

from fedsynth.transport import primitives, shamir
from fedsynth.transport.agreement import sparse_degree

PARTIES, LOST, DIM = 1000, 300, 421_696
SAMPLE, TURNS = 600, 7
RESULTS = Path(__file__).parent / "results" / "secure_opening.json"


def weights_one_by_one(places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights with an inversion each."""
    weights = []
    for place in places:
        above, below = 1, 1
        for other in places:
            if other != place:
                above = above * (other + 1) % shamir.PRIME
                below = below * (other - place) % shamir.PRIME
        weights.append(above * pow(below, -1, shamir.PRIME) % shamir.PRIME)
    return tuple(weights)


def degree_by_majority(count: int, threshold: int, colluders: int) -> int:
    """Neighbors of a party where more than half of them have to be left."""
    for degree in range(8, count - 1, 2):
        shares = np.arange(degree // 2 + 2, degree + 1)
        exposed = hypergeom.sf(shares - 1, count - 1, colluders, degree)
        stuck = hypergeom.cdf(shares - 1, count - 1, threshold - 1, degree)
        if ((count * exposed <= 2.0**-40) & (count * stuck <= 2.0**-20)).any():
            return degree
    return count - 1


def masks_to_rebuild(degree: int) -> int:
    return PARTIES - LOST + LOST * degree * (PARTIES - LOST) // PARTIES


def expand_by_counter(seeds: list[bytes]) -> np.ndarray:
    """All masks on one core, in counter mode as the library has it."""
    total, zeros = np.zeros(DIM, dtype=np.uint32), memoryview(bytes(2**18))
    for seed in seeds:
        stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
        drawn = memoryview(bytearray(2**18 + 32))
        for start in range(0, DIM, 2**16):
            piece = total[start : start + 2**16]
            size = stream.update_into(zeros[: 4 * len(piece)], drawn)
            np.subtract(piece, np.frombuffer(drawn[:size], dtype="<u4"), out=piece)
    return total


def agree_anew(secret: bytes, others: list[bytes]) -> list[bytes]:
    return [primitives.KeyPair(secret).agree(other) for other in others]


def agree(secret: bytes, others: list[bytes]) -> list[bytes]:
    pair = primitives.KeyPair(secret)
    return [pair.agree(other) for other in others]


def expand(cores: int, masks: list[partial[tuple[bytes, bool]]]) -> np.ndarray:
    total = np.zeros(DIM, dtype=np.uint32)
    primitives._cores = lambda: cores
    primitives.add_masks(total, masks)
    return total


def timed(work: partial[Any], clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    began = clock()
    result = work()
    return clock() - began, result


def cipher_and_keys(seeds: list[bytes]) -> dict[str, Any]:
    """Processor time of one core for masks and agreements, before and now, each turn by turn."""
    secret, others = os.urandom(32), [primitives.KeyPair.fresh().public for _ in range(100)]
    took: dict[str, list[float]] = {"mask before": [], "mask": [], "agreement before": [], "agreement": []}
    for _ in range(TURNS):
        for name, work in (("mask", (expand_by_counter, seeds)), ("agreement", (agree_anew, secret, others))):
            old, expected = timed(partial(*work), time.process_time)
            masks = [partial(lambda seed: (seed, True), seed) for seed in seeds]
            now = partial(expand, 1, masks) if name == "mask" else partial(agree, secret, others)
            new, result = timed(now, time.process_time)
            assert np.array_equal(expected, result)
            count = len(seeds) if name == "mask" else len(others)
            took[f"{name} before"].append(old / count)
            took[name].append(new / count)
    return {
        "one_cpu_s": {
            name: [min(turns), statistics.median(turns), max(turns)] for name, turns in took.items()
        },
        "mask_ratio": _ratio(took["mask before"], took["mask"]),
        "agreement_ratio": _ratio(took["agreement before"], took["agreement"]),
        "one_mask_cpu_s": {
            "before": statistics.median(took["mask before"]) + statistics.median(took["agreement before"]),
            "now": statistics.median(took["mask"]) + statistics.median(took["agreement"]),
        },
    }


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, cwd=RESULTS.parent).stdout.strip()


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def _ratio(before: list[float], now: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(before, now, strict=True))


def main() -> None:
    cores = primitives._cores()
    degree, needed = sparse_degree(PARTIES, PARTIES - LOST, PARTIES // 20)
    degree_before = degree_by_majority(PARTIES, PARTIES - LOST, PARTIES // 20)
    masks, masks_before = masks_to_rebuild(degree), masks_to_rebuild(degree_before)
    draw = np.random.default_rng(0)
    seeds = [partial(lambda seed: (seed, True), os.urandom(32)) for _ in range(SAMPLE)]
    seconds: dict[str, list[float]] = {"one core": [], "all cores": [], "weights before": [], "weights": []}
    for _ in range(TURNS):
        one, first = timed(partial(expand, 1, seeds))
        every, second = timed(partial(expand, cores, seeds))
        assert np.array_equal(first, second)
        places = tuple(sorted(draw.choice(PARTIES, needed, replace=False).tolist()))
        before, expected = timed(partial(weights_one_by_one, places))
        now, found = timed(partial(shamir._weights, places))
        assert expected == found
        for name, took in zip(seconds, (one, every, before, now), strict=True):
            seconds[name].append(took)
    middle = {name: statistics.median(took) for name, took in seconds.items()}
    ciphers = cipher_and_keys([os.urandom(32) for _ in range(SAMPLE // 6)])
    one = ciphers.pop("one_mask_cpu_s")
    opening = {"before": one["before"] * masks_before, "now": one["now"] * masks}
    ciphers |= {"open_cpu_s": opening, "open_ratio": opening["before"] / opening["now"]}
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "commit": _commit(), **ciphers,
        "parties": PARTIES, "lost": LOST, "parameters": DIM, "shares": needed,
        "neighbors": degree, "neighbors_before": degree_before, "masks": masks, "masks_before": masks_before,
        "cores": cores, "python": platform.python_version(), "cpu": _cpu(), "load": os.getloadavg(),
        "expand_s": {name: middle[name] / SAMPLE * masks for name in ("one core", "all cores")},
        "expand_ratio": _ratio(seconds["one core"], seconds["all cores"]),
        "weights_s": {"before": middle["weights before"] * PARTIES, "now": middle["weights"] * PARTIES},
        "weights_ratio": _ratio(seconds["weights before"], seconds["weights"]),
        "least_s": {name: min(took) for name, took in seconds.items()},
    }  # fmt: skip
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
