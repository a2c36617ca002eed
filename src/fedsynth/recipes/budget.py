"""From a target epsilon to a recipe's noise (or rounds), through the events of the very objects that will run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dp_accounting import DpEvent

from fedsynth.errors import BadInput, BudgetExhausted, NotPrivate
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy import account
from fedsynth.privacy.ledger import Entry, LedgerLine, priced
from fedsynth.recipes.registry import Recipe
from fedsynth.recipes.task import Task

_DIGITS = 10_000  # steps of the search for the epsilon that a recipe divides itself
MOST_EPSILON = 1e8  # promises nothing long before; the accountant's arithmetic ends soon after


@dataclass(frozen=True)
class Target:
    """The user's privacy target; `rounds` and `noise_multiplier` are None where fedsynth shall choose."""

    epsilon: float
    delta: float
    rounds: int | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= MOST_EPSILON:
            raise BadInput(
                f"epsilon={self.epsilon:g}: a privacy budget is a positive number, at most {MOST_EPSILON:g}; use "
                "--no-privacy for none"
            )
        if not 0 < self.delta < 1:
            raise BadInput(f"delta={self.delta:g}: expected a number in (0, 1), well below 1 / clients")
        if self.noise_multiplier is not None and not 0 < self.noise_multiplier < math.inf:
            raise BadInput(f"noise_multiplier={self.noise_multiplier:g}: expected a positive number")
        if self.rounds is not None and self.rounds < 1:
            raise BadInput(f"rounds={self.rounds}: at least one is needed")


def once(algorithm: Algorithm) -> list[DpEvent]:
    """The events of releases made once, before training."""
    release = None if algorithm.opening is None else algorithm.opening.release
    return [] if release is None else [release.event]


def each_round(algorithm: Algorithm) -> DpEvent:
    """The event of one round."""
    return account.compose(
        [account.repeat(charge.event, charge.release.count) for charge in algorithm.charges()]
    )


def cost(algorithm: Algorithm, paid: Sequence[DpEvent] = (), delta: float = 1e-12) -> DpEvent:
    """All that a whole run costs whoever is worst off at `delta`, with what was paid for before it.

    Where each client pays for itself, that is one that takes part as often as the schedule lets anybody.
    """
    turns = algorithm.schedule.participations(algorithm.rounds)
    rounds = [
        account.repeat(
            charge.event, charge.release.count * (turns if charge.holder == "client" else algorithm.rounds)
        )
        for charge in algorithm.charges()
    ]
    if algorithm.opening is not None and algorithm.opening.apart:
        ways = (account.compose([*paid, *once(algorithm)]), account.compose([*paid, *rounds]))
        return max(ways, key=lambda event: account.epsilon(event, delta, adjacency=adjacency_of(algorithm)))
    return account.compose([*paid, *once(algorithm), *rounds])


def adjacency_of(algorithm: Algorithm) -> str:
    """The neighboring relation that the sampling supports."""
    return algorithm.schedule.adjacency


def sampling_of(algorithm: Algorithm) -> str:
    """How the protected units are drawn: records by the plan's own batches, clients by the schedule."""
    by_record = any(phase.rule.release is not None for phase in algorithm.plan)
    return "poisson" if by_record else algorithm.schedule.sampling


def fit_budget(
    recipe: Recipe,
    task: Task,
    values: Mapping[str, Any],
    target: Target,
    paid: Sequence[LedgerLine | Entry] = (),
) -> tuple[Algorithm, dict[str, Any]]:
    """The algorithm that spends at most the target together with what was `paid` before, and its arguments.

    Rounds given (or neither): the noise is calibrated. Noise given: as many rounds as the budget allows. Both:
    refused unless they fit. A recipe with a setting of the role `budget` is told epsilon and divides it itself.
    """
    chosen = dict(values)
    if target.rounds is not None and not recipe.named("rounds"):
        raise BadInput(
            f"rounds={target.rounds}: {recipe.name} asks once, in a single round; leave --rounds out"
        )
    if target.rounds is not None:
        chosen |= recipe.with_role("rounds", target.rounds)
    if recipe.named("budget"):
        return _with_whole_budget(recipe, task, chosen, target, paid)

    if not recipe.named("noise"):
        raise NotPrivate(
            f"{recipe.name}: none of its settings has the role noise or budget, so no epsilon can be promised; use "
            "--no-privacy"
        )

    def with_noise(noise: float) -> Algorithm:
        return recipe.build(task, {**chosen, **recipe.with_role("noise", noise)})

    adjacency = adjacency_of(with_noise(1.0))
    earlier = _earlier(paid, target, task.unit, adjacency)
    if target.noise_multiplier is None:
        noise = account.calibrate(
            lambda z: cost(with_noise(z), earlier, target.delta),
            target.epsilon,
            target.delta,
            adjacency=adjacency,
        )
        return with_noise(noise), chosen | recipe.with_role("noise", noise)
    chosen |= recipe.with_role("noise", target.noise_multiplier)
    return _with_given_noise(recipe, task, chosen, target, adjacency, earlier)


def _with_whole_budget(
    recipe: Recipe, task: Task, chosen: dict[str, Any], target: Target, paid: Sequence[LedgerLine | Entry]
) -> tuple[Algorithm, dict[str, Any]]:
    """The algorithm of pure epsilon whose clients may spend the most that fits the target, each for itself."""
    if target.noise_multiplier is not None:
        raise BadInput(
            f"noise_multiplier={target.noise_multiplier:g}: {recipe.name} adds no noise, it draws its messages by "
            "--epsilon; leave --noise-multiplier out"
        )
    whole = recipe.build(task, {**chosen, **recipe.with_role("budget", target.epsilon)})
    adjacency = adjacency_of(whole)
    earlier = _earlier(paid, target, task.unit, adjacency)

    def fits(share: int) -> bool:
        part = recipe.with_role("budget", target.epsilon * share / _DIGITS)
        algorithm = recipe.build(task, {**chosen, **part})
        spent = cost(algorithm, earlier, target.delta)
        return account.epsilon(spent, target.delta, adjacency=adjacency) <= target.epsilon

    share = account.largest(fits, 1, _DIGITS) if earlier else _DIGITS
    if share is None:
        raise _exhausted(target, account.epsilon(account.compose(earlier), target.delta, adjacency=adjacency))
    chosen |= recipe.with_role("budget", target.epsilon * share / _DIGITS)
    return recipe.build(task, chosen), chosen


def _earlier(paid: Sequence[LedgerLine | Entry], target: Target, unit: str, adjacency: str) -> list[DpEvent]:
    """The releases before training, such as a schema, as the statement will price them; refused if nothing is left."""
    earlier = [priced(line, unit, adjacency) for line in paid]
    spent = account.epsilon(account.compose(earlier), target.delta, adjacency=adjacency) if earlier else 0.0
    if spent >= target.epsilon:
        raise _exhausted(target, spent)
    return earlier


def _exhausted(target: Target, spent: float) -> BudgetExhausted:
    return BudgetExhausted(
        f"epsilon {target.epsilon:g} is spent: the ledger shows {spent:.4g} (including a schema learned under noise); "
        "nothing is left to train with; raise epsilon"
    )


def _with_given_noise(
    recipe: Recipe,
    task: Task,
    chosen: dict[str, Any],
    target: Target,
    adjacency: str,
    paid: Sequence[DpEvent],
) -> tuple[Algorithm, dict[str, Any]]:
    """As many rounds as the budget allows, or the given ones if they fit."""
    noise = target.noise_multiplier

    @cache
    def allowed(rounds: int) -> int:
        algorithm = recipe.build(task, {**chosen, **recipe.with_role("rounds", rounds)})
        fixed = [*paid, *once(algorithm)]
        return account.max_rounds(
            each_round(algorithm), target.epsilon, target.delta, fixed=fixed, adjacency=adjacency
        )

    if target.rounds is not None and target.rounds > allowed(target.rounds):
        raise BudgetExhausted(
            f"noise_multiplier={noise:g} allows {allowed(target.rounds)} rounds at epsilon {target.epsilon:g}, "
            f"not {target.rounds}; give one of the two and let the other follow"
        )
    rounds = target.rounds or _settle(allowed, recipe.value_of("rounds", chosen))
    if rounds < 1:
        raise BudgetExhausted(
            f"noise_multiplier={noise:g}: not even one round fits epsilon {target.epsilon:g}; use more noise"
        )
    chosen |= recipe.with_role("rounds", rounds)
    return recipe.build(task, chosen), chosen


def _settle(allowed: Callable[[int], int], rounds: int) -> int:
    """Rounds that fit beside what a run of just so many rounds releases once: a longer run asks for more of it.

    >>> _settle(lambda rounds: 100 - rounds // 10, 5)
    90
    """
    for _ in range(2):
        rounds = max(1, allowed(rounds))
    while rounds and allowed(rounds) < rounds:
        rounds = allowed(rounds)
    return rounds
