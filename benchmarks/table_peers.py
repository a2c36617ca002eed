"""One run of another tool on a coded table, in that tool's environment.

    python benchmarks/table_peers.py METHOD IN.npz OUT.npz --epsilon 1 --delta 1e-5 --seed 0

IN.npz has `codes` [rows, columns] and `sizes`; OUT.npz gets `codes` of as many synthetic rows. Bins are public and the
same for all tools, so none spends anything on them. MST and AIM on mbi 2.0, which has no mechanisms of its own, follow
McKenna, Miklau and Sheldon (2021) and McKenna, Mullins, Sheldon and Miklau (2022).
"""

from __future__ import annotations

import argparse
import itertools
import math
import resource
import time

import numpy as np

Pair = tuple[str, ...]


def rho_of(epsilon: float, delta: float) -> float:
    """The largest zero-concentrated rho that is (epsilon, delta)-private: Bun and Steinke's bound, made tight."""
    low, high = 0.0, epsilon + 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(middle, epsilon) <= delta else (low, middle)
    return low


def _delta(rho: float, epsilon: float) -> float:
    if rho <= 0:
        return 0.0
    orders = 1.0 + np.geomspace(1e-4, 1e6, 4000)
    logs = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
    return float(np.exp(min(0.0, logs.min())))


class Marginals:
    """A coded table on mbi's terms: counts with noise, and graphical models of them."""

    def __init__(self, codes: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> None:
        from mbi import Domain

        self.names = [f"c{column}" for column in range(len(sizes))]
        self.codes, self.rng = codes, rng
        self.domain = Domain(self.names, [int(size) for size in sizes])

    def exact(self, columns: Pair) -> np.ndarray:
        places = [self.names.index(name) for name in columns]
        shape = self.domain.project(columns).shape
        flat = np.ravel_multi_index(tuple(self.codes[:, place] for place in places), shape)
        return np.bincount(flat, minlength=math.prod(shape)).astype(float)

    def noisy(self, columns: Pair, sigma: float):
        from mbi import LinearMeasurement

        counts = self.exact(columns)
        return LinearMeasurement(counts + self.rng.normal(0, sigma, counts.shape), columns, sigma)

    def fitted(self, measured, iters: int, start=None):
        from mbi import estimation

        return estimation.MirrorDescent().estimate(
            self.domain, measured, known_total=float(len(self.codes)), iters=iters, warm_start=start
        )

    def chosen(self, scores: dict[Pair, float], epsilon: float, sensitivity: float = 1.0) -> Pair:
        """The exponential mechanism."""
        keys = list(scores)
        logits = 0.5 * epsilon / sensitivity * np.array([scores[key] for key in keys])
        logits -= logits.max()
        return keys[self.rng.choice(len(keys), p=np.exp(logits) / np.exp(logits).sum())]


def mst(codes: np.ndarray, sizes: np.ndarray, rho: float, rng: np.random.Generator) -> np.ndarray:
    """MST: single columns, merged where noise hides values; a tree of pairs; these pairs. A third of rho each."""
    columns, sigma = len(sizes), math.sqrt(3 / (2 * rho))
    whole = Marginals(codes, sizes, rng)
    singles = [whole.noisy((name,), sigma * math.sqrt(columns)) for name in whole.names]
    maps, merged_sizes = [], []
    noisy_shares = [np.asarray(one.noisy_measurement) for one in singles]
    for shares, one in zip(noisy_shares, singles, strict=True):
        seen = shares >= 3 * one.stddev
        merged = np.where(seen, np.cumsum(seen) - 1, seen.sum())
        maps.append(merged)
        merged_sizes.append(int(seen.sum() + (~seen).any()))
    coarse = np.stack([to[codes[:, column]] for column, to in enumerate(maps)], axis=1)
    table = Marginals(coarse, np.array(merged_sizes), rng)
    log = [_merged(one, shares, to) for one, shares, to in zip(singles, noisy_shares, maps, strict=True)]
    alone = {
        name: _on_simplex(np.bincount(to, weights=shares), len(codes))
        for name, to, shares in zip(table.names, maps, noisy_shares, strict=True)
    }
    weights = {
        (one, other): float(
            np.abs(table.exact((one, other)) - np.outer(alone[one], alone[other]).ravel() / len(codes)).sum()
        )
        for one, other in itertools.combinations(table.names, 2)
    }
    group = {name: name for name in table.names}
    tree: list[Pair] = []
    for _ in range(columns - 1):
        open_pairs = {pair: one for pair, one in weights.items() if group[pair[0]] != group[pair[1]]}
        pair = table.chosen(open_pairs, math.sqrt(8 * rho / 3 / (columns - 1)))
        tree.append(pair)
        group = {name: group[pair[0]] if of == group[pair[1]] else of for name, of in group.items()}
    log += [table.noisy(pair, sigma * math.sqrt(len(tree))) for pair in tree]
    rows = _rows(table.fitted(log, 5000), len(codes), table)
    for column, to in enumerate(maps):
        rows[:, column] = _finer(rows[:, column], to, rng)
    return rows


def _on_simplex(counts: np.ndarray, total: float) -> np.ndarray:
    """The nearest counts that are nowhere negative and sum to the total: the model of one column by itself."""
    ordered = np.sort(counts)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(counts) + 1)
    return np.maximum(counts - excess[np.flatnonzero(ordered > excess)[-1]], 0.0)


def _merged(one, shares: np.ndarray, to: np.ndarray):
    from mbi import LinearMeasurement

    counts = np.bincount(to)
    sums = np.bincount(to, weights=shares)
    return LinearMeasurement(sums / np.sqrt(counts), one.clique, one.stddev, _scaled(1 / np.sqrt(counts)))


def _scaled(by: np.ndarray):
    def query(factor):
        return factor.datavector() * by

    return query


def _finer(drawn: np.ndarray, to: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A value inside each merged one; those that noise hides are equally likely, as MST has it."""
    values = np.empty_like(drawn)
    for merged in np.unique(drawn):
        inside = np.flatnonzero(to == merged)
        here = drawn == merged
        values[here] = rng.choice(inside, here.sum())
    return values


def aim(codes: np.ndarray, sizes: np.ndarray, rho: float, rng: np.random.Generator, megabytes: float = 80.0):
    """AIM with the defaults of its authors' program: all pairs as workload, 16 rounds a column, 80 MB, 1,000 steps."""
    import jax
    from mbi import junction_tree

    table = Marginals(codes, sizes, rng)
    rounds = 16 * len(sizes)
    workload = [pair for pair in itertools.combinations(table.names, 2) if table.domain.size(pair) <= 10_000]
    every = {(name,) for name in table.names} | set(workload)
    weight = {one: float(sum(len(set(one) & set(pair)) for pair in workload)) for one in every}
    exact = {one: table.exact(one) for one in every}
    sigma, epsilon = math.sqrt(rounds / (1.8 * rho)), math.sqrt(0.8 * rho / rounds)
    measured = [table.noisy((name,), sigma) for name in table.names]
    used = len(table.names) / (2 * sigma**2)
    model = table.fitted(measured, 1000)
    last = False
    while not last:
        if rho - used < 2 * (0.5 / sigma**2 + epsilon**2 / 8):
            sigma, epsilon = math.sqrt(1 / (1.8 * (rho - used))), math.sqrt(0.8 * (rho - used))
            last = True
        used += 0.5 / sigma**2 + epsilon**2 / 8
        cliques = list(dict.fromkeys(one.clique for one in measured))
        scores = {}
        for one in sorted(every, key=lambda pair: (len(pair), pair)):
            inside = any(set(one) <= set(clique) for clique in cliques)
            size = 0.0 if inside else junction_tree.hypothetical_model_size(table.domain, [*cliques, one])
            if size <= megabytes * used / rho:
                with (
                    jax.disable_jit()
                ):  # to compile a program for each pair and model takes six times as long
                    expected = np.asarray(model.project(one).datavector())
                error = np.abs(exact[one] - expected).sum()
                scores[one] = weight[one] * (error - math.sqrt(2 / math.pi) * sigma * exact[one].size)
        one = table.chosen(scores, epsilon, max(weight[key] for key in scores))
        before = np.asarray(model.project(one).datavector())
        measured.append(table.noisy(one, sigma))
        model = table.fitted(measured, 1000, start=model)
        moved = np.abs(np.asarray(model.project(one).datavector()) - before).sum()
        if moved <= sigma * math.sqrt(2 / math.pi) * exact[one].size:
            sigma, epsilon = sigma / 2, epsilon * 2
    return _rows(table.fitted(measured, 1000, start=model), len(codes), table)


def _rows(model, rows: int, table: Marginals) -> np.ndarray:
    drawn = model.synthetic_data(rows=rows).to_dict()
    return np.stack([np.asarray(drawn[name]) for name in table.names], axis=1).astype(np.int64)


def dpmm(kind: str, codes, sizes, epsilon: float, delta: float, seed: int, jobs: int = 1) -> np.ndarray:
    import pandas as pd
    from dpmm.models.aim import AIMGM
    from dpmm.models.mst import MSTGM
    from dpmm.models.priv_bayes import PrivBayesGM

    names = [f"c{column}" for column in range(len(sizes))]
    frame = pd.DataFrame(codes, columns=names)
    model = {"aim": AIMGM, "mst": MSTGM, "privbayes": PrivBayesGM}[kind](
        epsilon=epsilon, delta=delta, n_jobs=jobs
    )
    model.set_domain({name: int(size) for name, size in zip(names, sizes, strict=True)})
    model.set_random_state(np.random.RandomState(seed))
    model.fit(frame)
    return model.generate(n_records=len(codes))[names].to_numpy().astype(np.int64)


def smartnoise(kind: str, codes, sizes, epsilon: float, delta: float, seed: int) -> np.ndarray:
    """SmartNoise; columns keep their public values because one row of each is known to the transformer alone."""
    import pandas as pd
    from snsynth import Synthesizer
    from snsynth.transform import LabelTransformer
    from snsynth.transform.table import TableTransformer

    names = [f"c{column}" for column in range(len(sizes))]
    labels = []
    for size in sizes:
        one = LabelTransformer(nullable=False)
        one.fit(list(range(int(size))))
        labels.append(one)
    synthesizer = Synthesizer.create(kind, epsilon=epsilon, delta=delta)
    frame = pd.DataFrame(codes, columns=names)
    synthesizer.fit(frame, transformer=TableTransformer(labels), preprocessor_eps=0.0)
    drawn = synthesizer.sample(len(codes))
    return np.asarray(drawn).astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("method")
    parser.add_argument("table")
    parser.add_argument("out")
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit", type=int, required=True, help="seconds of processor; SIGXCPU ends a longer run"
    )
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CPU, (options.limit, options.limit + 60))
    with np.load(options.table) as stored:
        codes, sizes = stored["codes"].astype(np.int64), stored["sizes"]
    epsilon, delta, seed = options.epsilon, options.delta, options.seed
    np.random.seed(seed)  # mbi and SmartNoise draw rows from the global generator
    tool, kind = options.method.split(" ")
    start = time.process_time()
    if tool == "mbi":
        run = {"mst": mst, "aim": aim}[kind]
        rows = run(codes, sizes, rho_of(epsilon, delta), np.random.default_rng(seed))
    else:
        run = {"dpmm": dpmm, "smartnoise": smartnoise}[tool]
        rows = run(kind, codes, sizes, epsilon, delta, seed)
    np.savez_compressed(options.out, codes=rows.astype(np.int32), seconds=time.process_time() - start)


if __name__ == "__main__":
    main()
