"""Private tables by fedsynth and by other tools, on public data with the same public bounds: who wins where.

    make bench-tables                                       # all; goes on where it stopped
    python benchmarks/tables.py --table heart --method "mbi mst"

Other tools run in environments of their own (build/peers, made by `make bench-tables`), each run for at most LIMIT_S
seconds of processor. Each cell is written to build/bench-tables and not measured again while it is there; the page and
all numbers go to benchmarks/results/tables.{md,json}.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import table_page
from table_data import PARITIES, TABLES, Split, pair_distance

from fedsynth import Synthesizer, clients_from
from fedsynth.assess.scores.utility import performance

HERE = Path(__file__).parent
CELLS = HERE.parent / "build" / "bench-tables"
PEERS = HERE.parent / "build" / "peers"
DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 8.0)
RUNS = 3
METHODS = (
    "real",
    "fedsynth",
    "mbi mst",
    "mbi aim",
    "dpmm mst",
    "dpmm aim",
    "dpmm privbayes",
    "smartnoise mst",
)
LONG = ("mbi aim", "dpmm aim")  # hours on the larger tables: last
FIRST = (0.0, 1.0, 8.0, 0.5, 2.0)
LIMIT_S = 1200  # of processor for one run of another tool
ALL = {**TABLES, **PARITIES}


def cell_file(table: str, method: str, epsilon: float, seed: int) -> Path:
    return CELLS / f"{table}-{method}-{epsilon:g}-{seed}.json".replace(" ", "_")


def measure(table: str, method: str, epsilon: float, seed: int) -> None:
    """One run of one tool, scored on test rows and written at once."""
    split = ALL[table](seed)
    start = time.perf_counter()
    if method == "real":
        rows, processor = split.train, 0.0
    elif method == "fedsynth":
        rows, processor = _ours(split, epsilon, seed)
    else:
        rows, processor = _theirs(split, method, epsilon, seed)
    seconds = time.perf_counter() - start
    result = {
        "table": table,
        "method": method,
        "epsilon": epsilon,
        "seed": seed,
        "seconds": seconds,
        "processor_s": processor,
        "rows": len(split.train),
        "columns": len(split.schema.columns),
        "commit": table_page.commit(),
    }
    if rows is None:
        result["over_limit_s"] = processor
    else:
        scores = performance(rows, split.test, split.schema, "gradient boosting", seed=0)
        pairs = pair_distance(rows, split.test, split.schema)
        result |= {"auc": scores.auc, "accuracy": scores.accuracy, "pairs": pairs}
    file = cell_file(table, method, epsilon, seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.replace(file)


def _ours(split: Split, epsilon: float, seed: int):
    start = time.process_time()
    clients = clients_from(split.train.assign(_row=np.arange(len(split.train))), client_column="_row")
    synthesizer = Synthesizer("marginals", split.schema, epsilon=epsilon, delta=DELTA, seed=seed)
    synthesizer.fit(clients)
    rows = synthesizer.sample(len(split.train))
    return rows, time.process_time() - start


def _theirs(split: Split, method: str, epsilon: float, seed: int):
    """Rows of another tool and the seconds of processor it took; no rows if it ran over the limit."""
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder, "table.npz"), Path(folder, "rows.npz")
        np.savez(table, codes=split.coded(), sizes=split.sizes)
        python = PEERS / method.split(" ")[0] / "bin" / "python"
        command = [str(python), str(HERE / "table_peers.py"), method, str(table), str(out)]
        command += ["--epsilon", str(epsilon), "--delta", str(DELTA), "--seed", str(seed)]
        done = subprocess.run([*command, "--limit", str(LIMIT_S)], capture_output=True, text=True)
        if done.returncode == -signal.SIGXCPU:
            return None, float(LIMIT_S)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
        with np.load(out) as drawn:
            return split.decoded(drawn["codes"].astype(np.int64), seed), float(drawn["seconds"])


def todo(options: argparse.Namespace) -> list[tuple[str, str, float, int]]:
    """The cells that are asked for and not there yet, the long ones last."""
    cells = product(
        options.method or METHODS, options.table or ALL, options.epsilon or EPSILONS, range(options.runs)
    )
    wanted = {
        (table, method, 0.0 if method == "real" else epsilon, seed) for method, table, epsilon, seed in cells
    }
    order = sorted(wanted, key=lambda one: (one[3], one[1] in LONG, FIRST.index(one[2]), *_place(one)))
    return [one for one in order if not cell_file(*one).exists()]


def _place(cell: tuple[str, str, float, int]) -> tuple[int, int]:
    return list(ALL).index(cell[0]), METHODS.index(cell[1])


def run_cell(cell: tuple[str, str, float, int]) -> None:
    """A process of its own, of low priority and on one thread."""
    table, method, epsilon, seed = cell
    words = [sys.executable, __file__, "--cell", table, method, str(epsilon), str(seed)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **one_thread, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    start = time.perf_counter()
    done = subprocess.run(["nice", "-n", "10", *words], env=environment, capture_output=True, text=True)
    outcome = "done" if done.returncode == 0 else f"failed: {done.stderr[-600:]}"
    print(*cell, f"{time.perf_counter() - start:.0f} s", outcome, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cell", nargs=4, help="table, method, epsilon, seed: measure this one here")
    parser.add_argument("--table", action="append", choices=ALL)
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--epsilon", action="append", type=float)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="only write the page from what is there")
    options = parser.parse_args()
    if options.cell:
        table, method, epsilon, seed = options.cell
        measure(table, method, float(epsilon), int(seed))
        return
    if not options.page:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(run_cell, todo(options)))
    table_page.write(CELLS)


if __name__ == "__main__":
    main()
