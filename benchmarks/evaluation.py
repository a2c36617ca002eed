"""How long do evaluations take, and how much memory? Each case in a process of its own, on Adult's rows.

    FEDSYNTH_DATA=... python benchmarks/evaluation.py [CASE ...]

`usual`: 50,000 real and as many synthetic rows of 15 columns, with test rows, at default depth. `million`: 1,000,000 of
each. `shadows` and `record_shadows`: membership inference by 100 shadow generators on 1,000 rows, for dpd_fvae and for
central_vae with DP-SGD, both at epsilon 8. Writes results/evaluation.json; other cases are kept.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

TARGET = Path(__file__).parent / "results" / "evaluation.json"
CASES = ("usual", "million", "shadows", "record_shadows")
SHADOWED = {
    "shadows": ("dpd_fvae", {"clients": 5000}),
    "record_shadows": ("central_vae", {"arguments": {"records": 32_561}}),
}


def drawn(rows, key):
    """Adult's rows drawn again: as large a table as is asked for."""
    from fedsynth.research.datasets import adult
    from fedsynth.rng import Rng

    frame, schema = adult()
    return frame.iloc[Rng(0).at(key).numpy().integers(0, len(frame), rows)].reset_index(drop=True), schema


def table_case(rows):
    from fedsynth.assess.attacks.table_attacks import Claim
    from fedsynth.assess.suite import evaluate

    real, schema = drawn(rows, "real")
    synthetic, test = drawn(rows, "synthetic")[0], drawn(20_000, "test")[0]
    began = time.perf_counter()
    found = evaluate(real, synthetic, schema, test=test, claim=Claim(8.0, 1e-5))
    took = time.perf_counter() - began
    failed = [score.name for score in found.scores if score.failed]
    return {
        "rows": rows,
        "columns": len(schema.names),
        "seconds": took,
        "failed": failed,
        "pieces": found.details["seconds"],
    }


def shadow_case(recipe, settings):
    from fedsynth.assess.attacks.shadow_game import ShadowGame
    from fedsynth.recipes.budget import fit_budget
    from fedsynth.recipes.registry import recipe_named
    from fedsynth.research.datasets import adult
    from fedsynth.synthesis.request import Request

    real, schema = adult("train")
    asked = Request(recipe=recipe, epsilon=8.0, delta=1e-5, **settings)
    known = recipe_named(recipe)
    task = known.task(schema, asked.clients or 1)
    values = fit_budget(known, task, known.values(asked.arguments), asked.target)[1]
    game = ShadowGame(asked.changed(arguments=values))
    began = time.perf_counter()
    area, found = game.play(real, schema)
    if area.failed:
        return {"recipe": recipe, "failed": [area.failed], "seconds": time.perf_counter() - began}
    kept = ("runs", "size", "targets", "clients", "narrowed", "attacker", "at_least", "allowed")
    return {
        "recipe": recipe,
        "seconds": time.perf_counter() - began,
        "failed": [],
        "auc": area.value,
        "true_positives_at_1_percent": found.value,
        "true_positives_allowed": found.detail["allowed"],
        **{name: area.detail[name] for name in kept},
    }


def measure(case):
    import torch

    torch.set_num_threads(2)
    if case in SHADOWED:
        answer = shadow_case(*SHADOWED[case])
    else:
        answer = table_case({"usual": 50_000, "million": 1_000_000}[case])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        **answer,
        "seconds": round(answer["seconds"], 1),
        "peak_gib": round(peak, 2),
        "load": os.getloadavg()[0],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="*", choices=[*CASES, []], metavar="CASE")
    parser.add_argument("--here", action="store_true", help="measure one case in this process and print it")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.case[0])))
        return
    from fedsynth.research.experiment import machine

    results = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    for case in options.case or CASES:
        command = [sys.executable, __file__, "--here", case]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results[case] = {**json.loads(done.stdout.splitlines()[-1]), "machine": machine("cpu")}
        TARGET.write_text(json.dumps(results, indent=1) + "\n")
        print(
            case,
            {key: value for key, value in results[case].items() if key not in ("machine", "pieces")},
            flush=True,
        )


if __name__ == "__main__":
    main()
