"""Which epsilon holds against whom: computes the table of docs/threat-model.md.

Run `python tests/privacy/threat_table.py` to write it; a test checks that it is up to date. Every number comes from the
objects that would run, calibrated to what was asked; nothing is typed.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from fedsynth.data.schema import Schema
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy import account
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.recipes.budget import Target, fit_budget
from fedsynth.recipes.registry import recipe_named

PAGE = Path(__file__).parents[2] / "docs" / "threat-model.md"
BEGIN, END = "<!-- threat table: begin -->\n", "<!-- threat table: end -->\n"
ASKED, DELTA, CLIENTS, RECORDS = 3.0, 1e-5, 5000, 20_000
SCHEMA = {
    "version": 1, "kind": "table", "label": "ill", "label_probabilities": [0.5, 0.5],
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 99},
        {"name": "ill", "type": "categorical", "categories": ["no", "yes"]},
    ],
}  # fmt: skip


@cache
def calibrated(recipe: str, trust: str, clients: int) -> Algorithm:
    """The recipe at the epsilon that was asked for; the class balance is public, so rounds are all it releases."""
    known = recipe_named(recipe)
    task = known.task(Schema.from_dict(SCHEMA), clients, trust=trust)
    values = known.values({"records": RECORDS} if "records" in known.arguments() else {})
    return fit_budget(known, task, values, Target(ASKED, DELTA))[0]


def epsilon(algorithm: Algorithm, event: DpEvent) -> float:
    """What the rounds of the algorithm cost against somebody for whom each of them is this event."""
    turns = algorithm.schedule.participations(algorithm.rounds)
    adjacency = algorithm.schedule.adjacency
    return account.epsilon(SelfComposedDpEvent(event, turns), DELTA, adjacency=adjacency)


def central() -> dict[str, float]:
    """Noise at the server: against those who do not know the draw, and against those who do."""
    algorithm = calibrated("dpd_fvae", "central", CLIENTS)
    (charge,) = algorithm.charges()
    assert isinstance(charge.event, PoissonSampledDpEvent)
    hidden, known = epsilon(algorithm, charge.event), epsilon(algorithm, charge.event.event)
    return {
        "reader": hidden,
        "coordinator": hidden,
        "fellow": hidden,
        "server": math.inf,
        "helped": math.inf,
        "network": known,
    }


def local() -> dict[str, float]:
    """Noise at each client: the same against everybody."""
    algorithm = calibrated("dpd_fvae", "local", CLIENTS)
    (charge,) = algorithm.charges()
    spent = epsilon(algorithm, charge.event)
    return dict.fromkeys(("reader", "coordinator", "fellow", "server", "helped", "network"), spent)


def distributed(sites: int) -> dict[str, float]:
    """Noise in shares: a participant knows its own, and two that help the server know two."""
    algorithm = calibrated("site_vae", "distributed", sites)
    (charge,) = algorithm.charges()
    assert charge.release.public is not None
    public, participant = epsilon(algorithm, charge.release.public), epsilon(algorithm, charge.event)
    return {
        "reader": public,
        "coordinator": public,
        "fellow": participant,
        "server": public,
        "helped": epsilon(algorithm, _with_two_known(algorithm, charge.release.public)),
        "network": public,
    }


def _with_two_known(algorithm: Algorithm, public: DpEvent) -> DpEvent:
    """The event of a sum of the fewest sites that open, two of whose equal shares of the noise are known."""
    assert isinstance(algorithm.mechanism, DistributedGaussian)
    shares = algorithm.mechanism.parties.threshold
    if shares <= 2:
        return NonPrivateDpEvent()
    assert isinstance(public, PoissonSampledDpEvent) and isinstance(public.event, GaussianDpEvent)
    noise = public.event.noise_multiplier * math.sqrt((shares - 2) / shares)
    return PoissonSampledDpEvent(public.sampling_probability, GaussianDpEvent(noise))


ROWS = {
    "reader": "a reader of what was released",
    "coordinator": "the coordinator",
    "fellow": "a fellow site, by itself",
    "server": "the server",
    "helped": "the server with two sites that help it",
    "network": "whoever sees sizes and times of messages",
}


def columns() -> dict[str, dict[str, float]]:
    """All ways of adding noise, by their headings."""
    shared = {f"`distributed`, {sites} sites": distributed(sites) for sites in (2, 3, 5, 10)}
    return {"`central`": central(), **shared, "`local`": local()}


def table() -> str:
    """The table in Markdown."""
    found = columns()
    lines = [
        f"| against | {' | '.join(found)} |",
        "|---" * (len(found) + 1) + "|",
    ]
    for row, words in ROWS.items():
        numbers = [f"{one[row]:.2f}" if math.isfinite(one[row]) else "none" for one in found.values()]
        lines.append(f"| {words} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with the table as it is computed now."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
