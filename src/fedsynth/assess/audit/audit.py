"""How much privacy is lost at least: empirical lower bounds on epsilon, beside the claim.

The recipe runs as it would, on made-up rows, with canaries among its clients. From what is released each
canary is guessed to be in or out. If the guesses are better than the claim allows, the claim is false, whatever the
reason: too little noise, a clip that does not hold, a client counted twice. The same training is read in two
ways: white_box.py takes the noise of two canaries as independent, one_run.py assumes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedsynth.assess.attacks.audit_bound import EpsilonBound
from fedsynth.assess.audit.canary import CanaryGame, CanaryObservations, Tell, together, watch_clients
from fedsynth.assess.audit.history_canary import watch_histories
from fedsynth.assess.audit.local_audit import is_local, watch_local
from fedsynth.assess.audit.mixture_canary import watch_mixture
from fedsynth.assess.audit.noise_family import NoiseFamily
from fedsynth.assess.audit.one_run import one_run
from fedsynth.assess.audit.record_canary import watch_records
from fedsynth.assess.audit.site_canary import watch_sites
from fedsynth.assess.audit.table_canary import watch_tables
from fedsynth.assess.audit.white_box import white_box
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.mechanism import Charge
from fedsynth.recipes.budget import adjacency_of
from fedsynth.rng import Rng
from fedsynth.training.history_sums import HistorySums
from fedsynth.training.mixture_sums import MixtureSums
from fedsynth.training.table_sums import TableSums

LEAST_CANARIES = 200
USUAL_CANARIES = 5000
USUAL_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Audit:
    """The result: `claimed` is what the watched releases cost at `delta` according to the accountant.

    Each bound holds with its own confidence.
    """

    recipe: str
    unit: str
    trust: str
    adjacency: str
    claimed: float
    delta: float
    rounds: int
    white_box: EpsilonBound
    one_run: EpsilonBound

    @property
    def bounds(self) -> tuple[EpsilonBound, EpsilonBound]:
        """Both readings of the canaries."""
        return self.white_box, self.one_run

    @property
    def best(self) -> EpsilonBound:
        """The reading that proves most."""
        return max(self.bounds, key=lambda bound: bound.epsilon_lower)

    @property
    def epsilon_lower(self) -> float:
        """Epsilon is at least this, with the confidence of the best bound."""
        return self.best.epsilon_lower

    @property
    def exceeds(self) -> bool:
        """True if more was shown to leak than is claimed."""
        return self.epsilon_lower > self.claimed

    def __str__(self) -> str:
        one = self.one_run.detail
        lines = [
            f"Audit of {self.recipe}: {one['canaries']} canary {self.unit}s in one training.",
            f"  claimed for the noisy releases:  at most  {self.claimed:.3f}  (epsilon at delta {self.delta:g})",
        ]
        for name, bound in (("white-box bound", self.white_box), ("one-run bound", self.one_run)):
            sure = f"{bound.confidence:.0%} confidence; {bound.method}"
            lines.append(f"  {name + ':':32} at least {bound.epsilon_lower:.3f}  ({sure})")
        lines.append(f"  of the one run's {one['guesses']} guesses {one['correct']} were right")
        verdict = (
            "MORE LEAKS THAN IS CLAIMED: do not release; the code or the accounting is wrong."
            if self.exceeds
            else "No contradiction with the claim. This does not prove the claim: only its derivation does."
        )
        return "\n".join([*lines, verdict])

    def audited(self) -> dict[str, Any]:
        """The entry of privacy.json: the better bound, and both by name."""
        return {
            **self.best.headline(),
            "white_box": self.white_box.headline(),
            "one_run": self.one_run.headline(),
        }

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "recipe": self.recipe,
            "unit": self.unit,
            "trust": self.trust,
            "adjacency": self.adjacency,
            "claim": {"epsilon": self.claimed, "delta": self.delta},
            "claimed_epsilon": self.claimed,
            "delta": self.delta,
            "rounds": self.rounds,
            **self.best.headline(),
            "exceeds_claim": self.exceeds,
            "white_box": self.white_box.to_dict(),
            "one_run": self.one_run.to_dict(),
        }


def audit(
    algorithm: Algorithm,
    schema: Schema,
    delta: float,
    *,
    canaries: int = USUAL_CANARIES,
    runs: int = 1,
    confidence: float = USUAL_CONFIDENCE,
    claimed: Algorithm | None = None,
    rng: Rng | None = None,
    tell: Tell | None = None,
) -> Audit:
    """Train with `canaries` canaries and bound epsilon from below in two ways.

    With several `runs` the white-box bound uses all of them, the one-run bound the first. A client-level algorithm must
    be composed for at least so many clients. `claimed` is the algorithm whose cost is claimed, if it is not the one
    that runs (to see a planted bug found). The default randomness is the operating system's, as in a release.
    """
    _check(canaries, confidence, delta)
    promise = claimed or algorithm
    charge = _training_charge(promise)
    rounds = promise.schedule.participations(promise.rounds) if charge.holder == "client" else promise.rounds
    family = NoiseFamily(charge.event, rounds * charge.release.count, adjacency_of(promise))
    observed = _watch(CanaryGame(algorithm, canaries, charge.event, rng or Rng(), runs, tell), schema)
    return Audit(
        algorithm.name,
        charge.release.unit,
        charge.release.trust,
        family.adjacency,
        family.epsilon(1.0, delta),
        delta,
        rounds,
        white_box(observed, family, delta, confidence),
        one_run(observed.one_run, family, delta, confidence),
    )


def _watch(game: CanaryGame, schema: Schema) -> CanaryObservations:
    """Play the game that fits where the recipe adds its noise."""
    algorithm = game.algorithm
    if algorithm.mechanism.release is None:
        return watch_records(game)
    if is_local(algorithm) and not of_records(algorithm):
        return together([watch_local(game.of_run(n)) for n in range(game.runs)])
    if algorithm.record_sums is not None:
        watches = {TableSums: watch_tables, HistorySums: watch_histories, MixtureSums: watch_mixture}
        watch = watches.get(type(algorithm.record_sums), watch_sites)
        return together([watch(game.of_run(n)) for n in range(game.runs)])
    return watch_clients(game, schema)


def of_records(algorithm: Algorithm) -> bool:
    """Whether clients send sums over records, each of which is protected."""
    return getattr(algorithm.record_sums, "unit", "client") == "record"


def _check(canaries: int, confidence: float, delta: float) -> None:
    if canaries < LEAST_CANARIES:
        raise BadInput(f"canaries={canaries}: fewer than {LEAST_CANARIES} prove nothing; use more")
    if not 0.5 <= confidence < 1:
        raise BadInput(f"confidence={confidence}: expected a number from 0.5 to below 1, such as 0.95")
    if not 0 < delta < 1:
        raise BadInput(f"delta={delta}: expected a number in (0, 1)")


def _training_charge(algorithm: Algorithm) -> Charge:
    """Return the charge that training repeats: for noisy sums, noisy messages, or steps of DP-SGD."""
    charges = algorithm.charges()
    if len(charges) != 1:
        raise Incompatible(
            f"{algorithm.name}: the audit is of recipes with one kind of noisy release a round, not of {len(charges)}"
        )
    return charges[0]
