"""PP-FedGAN's Table 4 and Figure 2: what each layer of protection costs in time, for 3 to 10 clients.

    python experiments/pp_fedgan/layers.py train --device cuda --out FILE    seconds of a client's round of training
    python experiments/pp_fedgan/layers.py seal --out FILE                   seconds to seal, add up and open its result

A client's round is the paper's: 94 steps of the discriminator on batches of 128 out of 6,000 images, with or without
DP-SGD, and as many of the generator. `train` takes one client at a time (as on its own machine, or one after another)
and so many clients as one stack. Sealing is timed on one core: the packed scheme that the transport `he` uses, and
CKKS with the paper's parameters.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from fedsynth.data.clients import encode_clients, image_clients_from
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.datasets import mnist
from fedsynth.research.experiment import machine
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess

RECORDS, NOISE, REPEATS = 6000, 0.7, 3
STACKS, COUNTS = (1, 10), (3, 4, 6, 8, 10)


def built(schema, clients, private, transport="clear", **settings):
    """PP-FedGAN as published, for so many clients."""
    recipe = recipe_named("pp_fedgan")
    task = recipe.task(schema, clients, private=private, transport=transport)
    asked = {
        "noise_multiplier": NOISE if private else 0.0,
        "order": "together",
        "alternations": 1,
        "start_share": 0.0,
        "batch_rate": 128 / 6000,
        "steps": 94,
        **settings,
    }
    return recipe.build(task, recipe.values(asked))


def seconds_of(work, device):
    """The median of a few times, after one that is not counted; on a CPU the core's own, whatever else it does."""
    times, on_gpu = [], device.startswith("cuda")
    clock = time.perf_counter if on_gpu else time.process_time
    for number in range(REPEATS + 1):
        if on_gpu:
            torch.cuda.synchronize()
        began = clock()
        work()
        if on_gpu:
            torch.cuda.synchronize()
        if number:
            times.append(clock() - began)
    return float(np.median(times))


def train(device, records, settings):
    """Seconds of a round of so many clients as one stack, with and without DP-SGD."""
    images, labels, schema = mnist("train")
    for count in STACKS:
        kept = slice(0, records * count)
        raw = image_clients_from(images[kept], labels[kept], clients=count, split="uniform", rng=Rng(0))
        held = encode_clients(raw, schema)
        for private in (False, True):
            algorithm = built(schema, count, private, **settings)
            state = algorithm.init(Rng(1))

            def work(algorithm=algorithm, state=state, held=held, count=count):
                link = InProcess(held, Rng(1), device=device)
                link.start(algorithm, np.arange(count), state)
                link.next()

            yield {"clients": count, "private": private, "seconds": seconds_of(work, device)}


def seal(settings):
    """Seconds of a client to seal, of the server to add one message, and of a client to open the average."""
    schema = mnist("train")[2]
    for name in ("he", "he-ckks"):
        for count in COUNTS:
            algorithm = built(schema, count, True, name, **settings)
            transport, wire = algorithm.transport, algorithm.wire
            rng, ids = Rng(1), np.arange(1)
            message = transport.rounded(torch.randn(1, wire.dim) * 0.05, rng, ids)
            sealed = [transport.seal(message) for _ in range(count)]
            once = seconds_of(lambda t=transport, m=message: t.seal(m), "cpu")

            def summed(transport=transport, wire=wire, sealed=sealed):
                total = transport.zero(wire)
                for one in sealed:
                    total = transport.add(total, one)
                return total

            total = summed()
            yield {
                "scheme": name, "clients": count, "parameters": wire.dim, "seal": once,
                "server": seconds_of(summed, "cpu"),
                "open": seconds_of(lambda t=transport, w=wire, s=total: t.open(w, s), "cpu"),
                "bytes_up": len(sealed[0]), "bytes_plain": 4 * wire.dim,
            }  # fmt: skip


def main() -> None:
    """Measure one side."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("train", "seal"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", action="store_true", help="a smoke test")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    settings = {"steps": 2, "generator_batch": 8} if asked.small else {}
    lines = (
        train(asked.device, 60 if asked.small else RECORDS, settings)
        if asked.what == "train"
        else seal(settings)
    )
    result = {"what": asked.what, "machine": machine(asked.device), "lines": []}
    for line in lines:
        result["lines"].append(line)
        print(json.dumps(line), flush=True)
        asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
