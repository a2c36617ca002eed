"""DP-SGD of a convolutional VAE on a GPU: records a second and most memory, beside Opacus.

    python benchmarks/record_gradients.py --device cuda

All clip each record's gradient over all parameters and add Gaussian noise to the sum. fedsynth's way is that of a run:
Poisson batches, sums on the grid, and noise either seeded (simulation) or exact and from the operating system
(release). Opacus is given batches that lie on the GPU already, and draws its noise there.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from cases import CASES, made_up
from cohort_engine import model_of
from plain import ImageAutoencoder
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.models.model import initialise
from fedsynth.rng import Rng
from fedsynth.simulator.devices import precision
from fedsynth.training.optimizer import SGD
from fedsynth.training.plan import Phase, train
from fedsynth.training.rule import DPSGD
from simulator import machine

CASE = CASES["image-100"]
PLACE = Path(__file__).parent / "results" / "record_gradients"
BATCHES = (256, 1024, 4096, 16384)
STEPS, RATE, TURNS = 20, 0.5, 3


class Whole(ImageAutoencoder):
    """Opacus hooks into `forward`: the loss of each record."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        label = F.one_hot(y, self.classes).float()
        mean, log_variance = self.encode(x, label).chunk(2, dim=-1)
        log_variance = log_variance.clamp(-10.0, 10.0)
        logits = self.decode(mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance), label)
        return self.error(logits, x) + 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def opacus(batch: int, device: str) -> Callable[[], None]:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    module = GradSampleModule(Whole(CASE.classes).to(device))
    sgd = torch.optim.SGD(module.parameters(), CASE.learning_rate)
    optimizer = DPOptimizer(sgd, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=batch)
    x, y = (value[0].to(device) for value in made_up(replace(CASE, records=batch), 1))

    def steps() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            module(x, y).mean().backward()
            optimizer.step()

    return steps


def fedsynth(rng: Rng, matmul: str | None = None) -> Callable[[int, str], Callable[[], None]]:
    def ready(batch: int, device: str) -> Callable[[], None]:
        model, ids = model_of(CASE), np.zeros(1, dtype=np.int64)
        x, y = (value.to(device) for value in made_up(replace(CASE, records=round(batch / RATE)), 1))
        data = Padded(x, y, torch.ones_like(y, dtype=torch.bool))
        rule = DPSGD(1.0, 1.0, rate=RATE, steps=STEPS, expected_batch=batch)
        phase = Phase("elbo", dict.fromkeys(model.parts, SGD(CASE.learning_rate)), rule)
        params = {name: flat.to(device)[None] for name, flat in initialise(model, Rng(0)).items()}

        def steps() -> None:
            with precision(matmul):
                train(model, phase, params, {}, data, ids, rng)

        return steps

    return ready


CONTENDERS: dict[str, Callable[[int, str], Callable[[], None]]] = {
    "Opacus": opacus,
    "fedsynth, seeded noise": fedsynth(Rng(1)),
    "fedsynth, exact noise": fedsynth(Rng()),
    "fedsynth, seeded noise, TF32": fedsynth(Rng(1), "tf32"),
}


def timed(ready: Callable[[int, str], Callable[[], None]], batch: int, device: str) -> dict[str, float]:
    """Records a second in the fastest of some turns, and the most memory that one needs."""
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    steps, seconds = ready(batch, device), []
    for _ in range(1 + TURNS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        steps()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    peak = (torch.cuda.max_memory_allocated() - before) / 2**30
    return {
        "records_per_s": STEPS * batch / min(seconds[1:]),
        "ms_a_step": 1000 * min(seconds[1:]) / STEPS,
        "gib": peak,
    }


def page(results: dict[str, Any]) -> str:
    about = results["machine"]
    lines = [
        "# DP-SGD: records a second",
        "",
        f"{about['gpu']}; torch {about['torch']}, Opacus {results['opacus']}, fedsynth {about['fedsynth']}; "
        f"{about['date']}. By `record_gradients.py`.",
        "",
        f"Convolutional VAE of 28 x 28 grey images, {results['parameters']:,} parameters; {STEPS} steps of one client,",
        f"the fastest of {TURNS} turns. fedsynth draws Poisson batches (the size is the expected one) and puts sums on",
        "the grid; exact noise is drawn by the processor from the operating system, as a release has it. Opacus has",
        "the same batch on the GPU all the time and draws noise there.",
        "",
        "| batch | | records/s | beside Opacus | ms a step | most memory, GiB |",
        "|---|---|---|---|---|---|",
    ]
    for batch, found in results["batches"].items():
        rival = found.get("Opacus", {}).get("records_per_s")
        for name, result in found.items():
            ratio = f"{result['records_per_s'] / rival:.1f} x" if rival else "did not run"
            lines.append(
                f"| {int(batch):,} | {name} | {result['records_per_s']:,.0f} | {ratio} | {result['ms_a_step']:.2f} | "
                f"{result['gib']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import opacus as rival

    results: dict[str, Any] = {"machine": machine(options.device), "opacus": rival.__version__, "batches": {}}
    results["parameters"] = sum(flat.numel() for flat in initialise(model_of(CASE), Rng(0)).values())
    for batch in options.batches:
        found = results["batches"][str(batch)] = {}
        for name, ready in CONTENDERS.items():
            try:
                found[name] = timed(ready, batch, options.device)
            except Exception:  # the others go on
                traceback.print_exc()
                continue
            print(batch, name, found[name], flush=True)
        PLACE.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    PLACE.with_suffix(".md").write_text(page(results))
    print(page(results))


if __name__ == "__main__":
    main()
