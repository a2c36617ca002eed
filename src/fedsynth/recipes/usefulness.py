"""Whether a run can be useful at all, from public facts: its noise beside what clients may send, and what they keep."""

from __future__ import annotations

import math

import numpy as np

from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.models.table_plan import Plan
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.recipes.choice import choose
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.training.table_sums import TableSums

# Thresholds are judgements: below the first, what clients can teach a model is not clear of its noise; above the
# second, the noise in a column's counts is more than a tenth of all rows; above the third, the same of two columns
# together is so much that pairs were no nearer to real ones than columns by themselves (heart at 1 and 2,
# experiments/tables).
LEAST_SIGNAL = 5.0
MOST_BLUR = 0.1
MOST_PAIR_BLUR = 0.05
MOST_KEPT = 2**30  # bytes that all clients together keep without a word


def doubt(algorithm: Algorithm, task: Task) -> str | None:
    """A sentence on what speaks against a run, with what to do; None where nothing does, or it cannot be told."""
    return _hidden(algorithm, task) or _burden(algorithm, task)


def _burden(algorithm: Algorithm, task: Task) -> str | None:
    """Return a sentence on what clients keep between rounds, where it is much, as an encoder of its own is."""
    if Home.CLIENT not in algorithm.homes.values():
        return None
    numbers = sum(value.numel() for value in algorithm.blank(algorithm.init(Rng(0))).values())
    kept = 4 * numbers * task.clients
    if kept <= MOST_KEPT:
        return None
    rows = f", trained on {task.records / task.clients:.3g} row(s) on average" if task.records else ""
    shared = "; use --recipe fvae, which shares the encoder" if algorithm.name == "dpd_fvae" else ""
    return (
        f"what clients keep may not be worth it: {numbers:,} numbers at each of {task.clients:,} clients{rows}, "
        f"{kept / 2**30:,.1f} GiB where they are simulated{shared}"
    )


def _hidden(algorithm: Algorithm, task: Task) -> str | None:
    """A sentence if noise hides what clients send.

    In training, changes of at most the clip add up over the rounds and noise by its root, in every direction of the
    model. In counts, noise is compared with the share of rows in a cell of a single column.
    """
    noise = noise_in_mean(algorithm, task)
    if not noise or not task.private:
        return None
    if isinstance(algorithm.record_sums, TableSums):
        blur = noise * math.sqrt(len(algorithm.record_sums.domain.sizes))
        if blur <= MOST_BLUR:
            return _pairs_hidden(algorithm, noise)
        comparison = f"the noise in a column's counts is {blur:.0%} of all rows"
    else:
        if algorithm.record_sums is not None or not algorithm.plan:
            return None
        signal = math.sqrt(algorithm.rounds) / (noise * math.sqrt(algorithm.dim))
        if signal >= LEAST_SIGNAL:
            return None
        comparison = (
            f"over {algorithm.rounds:,} rounds clients can move the model by at most {signal:.1f} times as much as the "
            f"noise does"
        )
    return f"this run will hardly be useful: {comparison}; {_advice(algorithm, task)}"


def _pairs_hidden(algorithm: Algorithm, noise: float) -> str | None:
    """A sentence if noise hides what goes with what, though not the columns themselves: there are too many of them."""
    plan, sums = getattr(algorithm.learn, "plan", None), algorithm.record_sums
    if not isinstance(plan, Plan) or not isinstance(sums, TableSums) or not plan.pairs:
        return None
    kept = tuple(np.minimum(np.arange(size), plan.values + 1) for size in plan.sizes)
    shares = sums.scale(plan.question(kept, plan.pairs))
    blur = float(np.median(noise / shares)) / math.sqrt(plan.pair_rounds)
    if blur <= MOST_PAIR_BLUR:
        return None
    return (
        f"columns will be nearly independent in the synthetic rows: the noise in the counts of two columns together is "
        f"{blur:.0%} of all rows, for {len(plan.sizes)} columns; use fewer columns, more clients or a larger epsilon"
    )


def _advice(algorithm: Algorithm, task: Task) -> str:
    """Return advice on how to make the run more useful."""
    better = choose(task.schema, task.unit, task.trust).recipe.name
    other = "" if better == algorithm.name else f"--recipe {better}, which needs less, or "
    return f"use {other}more clients or a larger epsilon"


def noise_in_mean(algorithm: Algorithm, task: Task) -> float | None:
    """The standard deviation of the noise in a round's mean over units, in clips; None where there is none."""
    mechanism, schedule = algorithm.mechanism, algorithm.schedule
    units = schedule.denominator()
    if task.unit == "record" and units == task.clients:  # sums over records, divided by the number of sites
        if not task.records:
            return None
        units = float(task.records)
    noise, release = getattr(mechanism, "noise_multiplier", None), mechanism.release
    if not noise or release is None:
        return None
    if isinstance(mechanism, DistributedGaussian):
        whole = mechanism.share * math.sqrt(mechanism.parties.count) / mechanism.clip.bound
        return whole / (units * (mechanism.coin if task.unit == "client" else 1.0))
    shares = schedule.expected if release.trust == "local" else 1.0
    return float(noise) * math.sqrt(shares) / units
