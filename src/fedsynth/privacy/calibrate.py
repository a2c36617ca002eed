"""The other directions: noise, rounds, cohort or clients from a target epsilon, and epsilon as rounds go by.

Every search ends with a check at full precision: an answer may cost a little less than asked, never more.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

from dp_accounting import DpEvent, NoOpDpEvent
from dp_accounting.pld import privacy_loss_distribution as library

from fedsynth.errors import BadInput
from fedsynth.privacy import accountant as engine
from fedsynth.privacy.accountant import COARSE, FINE, answer
from fedsynth.privacy.events import compose, repeat
from fedsynth.privacy.loss_distribution import together
from fedsynth.privacy.pairs import steps_of

MOST_ROUNDS = 10_000_000
MOST_DOUBLINGS = 40
_LEAST_NOISE, _MOST_NOISE = 1e-3, 1e7
_DIGITS = 5
_SECANTS, _CLOSE = 6, 1e-4
_NEAR = 1e-2  # how close a search at low precision comes


def calibrate(
    make_event: Callable[[float], DpEvent],
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "add-remove",
    accountant: str = "pld",
) -> float:
    """The smallest noise multiplier, to five digits rounded up, at which `make_event` costs at most epsilon.

    >>> from dp_accounting import GaussianDpEvent
    >>> calibrate(GaussianDpEvent, 1.0, 1e-5)
    3.730...
    """
    _check_target(epsilon)

    @lru_cache
    def cost(noise: float, precision: float) -> float:
        event = make_event(noise)
        return answer(event, delta, adjacency=adjacency, accountant=accountant, precision=precision).epsilon

    start, slope = _approach(lambda noise: cost(noise, COARSE), epsilon, delta)
    return _finish(lambda noise: cost(noise, FINE), start, epsilon, slope)


def _check_target(epsilon: float) -> None:
    if not epsilon > 0:
        raise BadInput(f"epsilon={epsilon}: a budget is above 0; 1 is strong, 8 is weak")


def _approach(cost: Callable[[float], float], epsilon: float, delta: float) -> tuple[float, float]:
    """Noise that is enough, where a hundredth less is not, and how steeply cost falls there (both as logarithms).

    Secant steps, and bisection where cost jumps or is flat.
    """
    low, high = 0.0, math.inf  # too little, and enough
    noise, slope = 1.0, 1.0
    spent = cost(noise)
    for step in count(1):
        low, high = (low, min(high, noise)) if spent <= epsilon else (max(low, noise), high)
        if high < _LEAST_NOISE or high <= low * (1 + _NEAR) * (1 + 1e-9):
            break
        if low > _MOST_NOISE:
            raise BadInput(
                f"no noise multiplier up to {_MOST_NOISE:g} reaches epsilon {epsilon:g} at delta {delta:g}: "
                "releases whose cost does not depend on the noise already exceed the budget; raise epsilon "
                "or leave some of them out"
            )
        trial = noise * min(16.0, max(0.25, (spent / epsilon / (1 - _NEAR / 4)) ** (1 / slope)))
        if epsilon * (1 - _NEAR / 2) <= spent <= epsilon:
            trial = noise / (1 + _NEAR)
        if not 0 < low < high < math.inf:
            far = 0.5 if spent > epsilon else -0.5
            trial = 2.0 ** round(math.log2(trial) + far)
        elif step % 4 == 0 or not low < trial < high:
            trial = math.sqrt(low * high)
        after = cost(trial)
        slope = _slope(noise, spent, trial, after, slope)
        noise, spent = trial, after
    return high, slope


def _slope(noise: float, spent: float, trial: float, after: float, known: float) -> float:
    """How steeply cost falls with noise, on logarithms; what was known if two costs do not tell."""
    if not 0 < after < math.inf or not 0 < spent < math.inf or after == spent or trial == noise:
        return known
    return min(4.0, max(0.3, math.log(spent / after) / math.log(trial / noise)))


def _finish(cost: Callable[[float], float], noise: float, epsilon: float, slope: float = 1.0) -> float:
    """Secant steps at full precision from a coarse answer; the smallest rounded value found within budget."""
    best = math.inf
    spent, noise = cost(round_up(noise)), round_up(noise)
    for _ in range(_SECANTS):
        if spent <= epsilon:
            best = min(best, noise)
            if spent >= epsilon * (1 - _CLOSE):
                break
        aim = epsilon * (1 - _CLOSE / 2)
        trial = round_up(noise * min(2.0, max(0.5, (spent / aim) ** (1 / slope))))
        if trial == noise:
            break
        after = cost(trial)
        slope = _slope(noise, spent, trial, after, slope)
        noise, spent = trial, after
    best = best if best < math.inf else noise
    while cost(best) > epsilon:
        best = round_up(best * (1 + 1e-4))
    return best


def round_up(value: float, digits: int = _DIGITS) -> float:
    """The next number above with so many significant digits: more noise is the safe side.

    >>> round_up(1.000001), round_up(0.5)
    (1.0001, 0.5)
    """
    power = digits - 1 - math.floor(math.log10(value))
    scaled = math.ceil(value * 10.0**power - 1e-9)
    return float(f"{scaled}e{-power}")


@dataclass
class Odometer:
    """Epsilon after so many rounds, for a progress bar: cached, and never below the true value.

    >>> from dp_accounting import GaussianDpEvent
    >>> odometer = Odometer((), GaussianDpEvent(10.0), 1e-5)
    >>> odometer.after(0), round(odometer.after(4), 3)
    (0.0, 0.726)
    """

    fixed: Sequence[DpEvent]
    round: DpEvent
    delta: float
    adjacency: str = "add-remove"
    accountant: str = "pld"
    precision: float = FINE
    _known: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _base: library.PrivacyLossDistribution | None = field(default=None, init=False, repr=False)
    _interval: float = field(default=0.0, init=False, repr=False)

    def after(self, rounds: int) -> float:
        """Epsilon of the fixed releases and `rounds` rounds together."""
        if rounds not in self._known:
            value = self._compute(rounds)
            earlier = sorted(self._known)
            place = bisect_right(earlier, rounds)
            floor = self._known[earlier[place - 1]] if place else 0.0
            self._known[rounds] = max(value, floor)
        return self._known[rounds]

    def _compute(self, rounds: int) -> float:
        steps = steps_of(self.round, self.adjacency)
        one = steps[0][0] if len(steps) == 1 else None
        sampled = one is not None and one.loss is not None and one.loss.rate < 1
        usable = self.accountant == "pld" and sampled and rounds > 0 and self.delta >= engine.LEAST_DELTA
        if usable and all(step.loss for step, _ in self._fixed_steps()):
            value = self._by_pld(rounds)
            if math.isfinite(value):
                return value
        event = compose([*self.fixed, repeat(self.round, rounds)])
        return answer(
            event, self.delta, adjacency=self.adjacency, accountant=self.accountant, precision=self.precision
        ).epsilon

    def _fixed_steps(self) -> engine.Counted:
        return steps_of(compose(self.fixed), self.adjacency)

    def _by_pld(self, rounds: int) -> float:
        ((step, count),) = steps_of(self.round, self.adjacency)
        assert step.loss is not None
        steps = [*self._fixed_steps(), (step, count * rounds)]
        with engine.quiet():
            interval = engine.interval_for(steps, self.delta, self.precision)
            if self._base is None or interval != self._interval:
                self._base, self._interval = engine.composed(self._fixed_steps(), interval), interval
            whole = together(self._base, engine.repeated_loss(step.loss, interval, count * rounds))
            return float(whole.get_epsilon_for_delta(self.delta))


def max_rounds(
    event: DpEvent,
    epsilon: float,
    delta: float,
    *,
    fixed: Sequence[DpEvent] = (),
    adjacency: str = "add-remove",
    accountant: str = "pld",
) -> int:
    """The most rounds of `event`, beside the `fixed` releases, that cost at most epsilon; 0 if none.

    Above 10,000 the answer may be short of the largest by one part in 10,000.

    >>> from dp_accounting import GaussianDpEvent
    >>> max_rounds(GaussianDpEvent(10.0), 1.0, 1e-5)
    7
    """
    _check_target(epsilon)
    if isinstance(event, NoOpDpEvent):
        raise BadInput(
            "a round that costs nothing can be repeated for ever; give the number of rounds instead"
        )
    coarse = Odometer(fixed, event, delta, adjacency, accountant, COARSE)
    fine = Odometer(fixed, event, delta, adjacency, accountant, FINE)
    guess = _most(coarse.after, epsilon, 1)
    return _most(fine.after, epsilon, guess)


def max_cohort(
    make_event: Callable[[int], DpEvent],
    clients: int,
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "add-remove",
    accountant: str = "pld",
) -> int:
    """The largest cohort out of `clients` for which `make_event(cohort)` costs at most epsilon; 0 if none does."""
    _check_target(epsilon)

    @lru_cache
    def cost(cohort: int, precision: float) -> float:
        event = make_event(cohort)
        return answer(event, delta, adjacency=adjacency, accountant=accountant, precision=precision).epsilon

    guess = _most(lambda cohort: cost(cohort, COARSE), epsilon, max(1, clients // 100), clients)
    return _most(lambda cohort: cost(cohort, FINE), epsilon, guess, clients)


def min_clients(
    make_event: Callable[[int], DpEvent],
    cohort: int,
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "add-remove",
    accountant: str = "pld",
) -> int | None:
    """The clients, to three digits rounded up, that bring `make_event(clients)` to epsilon; None if none do."""
    _check_target(epsilon)

    def enough(clients: int, precision: float) -> bool:
        event = make_event(clients)
        cost = answer(event, delta, adjacency=adjacency, accountant=accountant, precision=precision)
        return cost.epsilon <= epsilon

    ceiling = smallest(lambda power: enough(cohort * 2**power, COARSE), 0, MOST_DOUBLINGS)
    if ceiling is None:
        return None
    rough = smallest(lambda step: enough(cohort * 2**ceiling * step // 2000, COARSE), 1000, 2000)
    clients = math.ceil(round_up(cohort * 2**ceiling * (rough or 2000) / 2000, 3))
    while not enough(clients, FINE):
        clients = math.ceil(round_up(clients * 1.001, 3))
    return max(clients, cohort)


def _most(cost: Callable[[int], float], epsilon: float, guess: int, limit: int = MOST_ROUNDS) -> int:
    """The largest count up to `limit` that costs at most epsilon, by false position on logarithms."""
    below, above, spent_below, spent_above = 0, limit + 1, 0.0, math.inf
    trial = min(limit, max(1, guess))
    while above - below > 1 + below // 10_000:
        spent = cost(trial)
        if spent <= epsilon:
            below, spent_below = trial, spent
        else:
            above, spent_above = trial, spent
        trial = _next_trial(below, above, spent_below, spent_above, epsilon)
    return below


def _next_trial(below: int, above: int, spent_below: float, spent_above: float, epsilon: float) -> int:
    if below == 0:
        return max(1, above // 4)
    if math.isinf(spent_above):
        # epsilon grows at least like the square root of the count, at most like the count
        ahead = min(4.0, (epsilon / spent_below) ** 1.5) if spent_below > 0 else 4.0
        return min(above - 1, max(below + 1, math.ceil(below * ahead * 1.0005)))
    if not 0 < spent_below < spent_above:
        return (below + above) // 2
    share = math.log(epsilon / spent_below) / math.log(spent_above / spent_below)
    trial = round(below * (above / below) ** share)
    margin = max(1, (above - below) // 8)  # a little inside, so that the interval shrinks from both ends
    return min(above - margin, max(below + margin, trial)) if above - below > 16 else (below + above) // 2


def largest(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest number in [low, high] that is `enough`, where smaller ones are too; None if none is.

    >>> largest(lambda n: n * n <= 50, 0, 1000)
    7
    """
    mirrored = smallest(lambda number: enough(low + high - number), low, high)
    return None if mirrored is None else low + high - mirrored


def smallest(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest number in [low, high] that is `enough`, where larger ones are too; None if none is.

    >>> smallest(lambda n: n * n >= 50, 1, 1000)
    8
    """
    if not enough(high):
        return None
    below, above = low - 1, high
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if enough(middle) else (middle, above)
    return above
