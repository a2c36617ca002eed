"""Solve for the one of epsilon, noise, rounds, cohort and clients that is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent

from fedsynth.errors import BadInput, BudgetExhausted, nearest
from fedsynth.privacy.accountant import ACCOUNTANTS, answer
from fedsynth.privacy.calibrate import calibrate, max_cohort, max_rounds, min_clients
from fedsynth.privacy.events import repeat
from fedsynth.privacy.pairs import ADJACENCIES, SAMPLINGS

MOST = 1e12  # of anything: beyond it the accountants' arithmetic ends


@dataclass(frozen=True)
class PrivacyEquation:
    """The known values; None is what is solved for. The noise multiplier is relative to the clip."""

    delta: float
    epsilon: float | None
    noise_multiplier: float | None
    rounds: int | None
    rate: float | None
    clients: int | None
    cohort: int | None
    sampling: str
    adjacency: str
    accountant: str

    def event(self, **changes: Any) -> DpEvent:
        """All rounds together, with these values put in."""
        known = replace(self, **changes)
        assert known.noise_multiplier is not None and known.rounds is not None
        noise = GaussianDpEvent(known.noise_multiplier)
        return repeat(known._sampled(noise), known.rounds)

    def _sampled(self, event: DpEvent) -> DpEvent:
        if self.sampling == "none":
            return event
        if self.sampling == "fixed":
            assert self.clients is not None and self.cohort is not None
            return SampledWithoutReplacementDpEvent(self.clients, self.cohort, event)
        return PoissonSampledDpEvent(self.known_rate, event)

    @property
    def known_rate(self) -> float:
        """The share of clients in a round."""
        if self.sampling == "none":
            return 1.0
        if self.rate is not None:
            return self.rate
        assert self.clients is not None and self.cohort is not None
        return self.cohort / self.clients

    @property
    def how(self) -> dict[str, Any]:
        """The adjacency and the accountant, which every calculation needs."""
        return {"adjacency": self.adjacency, "accountant": self.accountant}


def check_words(**words: str) -> None:
    """Refuse a value of a flag that is none of its words."""
    known: dict[str, tuple[str, ...]] = {
        "sampling": SAMPLINGS,
        "adjacency": ADJACENCIES,
        "unit": ("client", "record"),
        "accountant": ACCOUNTANTS,
        "relative_to": ("clip", "sensitivity"),
    }
    for name, value in words.items():
        if value not in known[name]:
            option = name.replace("_", "-")
            extra = "; sampling with replacement has no accountant" if value == "replacement" else ""
            raise BadInput(f"--{option} {value}: {nearest(value, known[name])}{extra}")


def solve(question: PrivacyEquation) -> tuple[PrivacyEquation, str, str]:
    """Fill in the one value that is missing.

    Returns the question with all values, the name of the one that was missing, and the accountant that answered.
    """
    _check(question)
    open_sampling = _open_sampling(question)
    if question.rounds is None and (
        question.noise_multiplier is None or question.epsilon is None or open_sampling
    ):
        question = replace(question, rounds=1)
    missing = [name for name in ("epsilon", "noise_multiplier", "rounds") if getattr(question, name) is None]
    missing += [open_sampling] if open_sampling else []
    if len(missing) != 1:
        raise BadInput(_what_to_give(missing))
    solved = _SOLVERS[missing[0]](question)
    cost = answer(solved.event(), solved.delta, **solved.how)
    return replace(solved, epsilon=cost.epsilon), missing[0], cost.accountant


def _check(question: PrivacyEquation) -> None:
    """Refuse values that cannot be."""
    for name in ("noise_multiplier", "epsilon"):
        value = getattr(question, name)
        if value is not None and not 0 < value <= MOST:
            raise BadInput(f"--{name.replace('_', '-')} {value:g}: it is above 0 and at most {MOST:g}")
    for name in ("rounds", "clients", "cohort"):
        value = getattr(question, name)
        if value is not None and not 1 <= value <= MOST:
            raise BadInput(f"--{name} {value}: it is at least 1 and at most {MOST:g}")
    if not 0 < question.delta < 1:
        raise BadInput(f"--delta {question.delta:g}: it lies between 0 and 1, well below 1 / clients")
    if question.rate is not None and not 0 < question.rate <= 1:
        raise BadInput(f"--rate {question.rate:g}: it lies in (0, 1]; for a number of clients use --cohort")
    if question.rate is not None and question.cohort is not None:
        raise BadInput("--rate and --cohort say the same thing; give one of them")
    if question.sampling == "fixed" and question.rate is not None:
        raise BadInput("--rate: a fixed cohort has a size; give --cohort and --clients")
    if question.clients and question.cohort and question.cohort > question.clients:
        raise BadInput(
            f"--cohort {question.cohort} of --clients {question.clients}: a cohort is a part of the clients"
        )


def _open_sampling(question: PrivacyEquation) -> str:
    if question.sampling == "none" or question.rate is not None:
        return ""
    if question.clients is None and question.cohort is None:
        raise BadInput(f"--sampling {question.sampling} needs --rate, or --clients and --cohort")
    if question.clients is None:
        return "clients"
    return "cohort" if question.cohort is None else ""


def _what_to_give(missing: list[str]) -> str:
    if not missing:
        return "nothing is asked: leave out one of --epsilon, --noise-multiplier, --rounds, --cohort and --clients"
    listed = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
    return f"only one value can be solved for, but {listed} are missing; give all but one of them"


def _solve_noise(question: PrivacyEquation) -> PrivacyEquation:
    assert question.epsilon is not None
    noise = calibrate(
        lambda z: question.event(noise_multiplier=z), question.epsilon, question.delta, **question.how
    )
    return replace(question, noise_multiplier=noise)


def _solve_rounds(question: PrivacyEquation) -> PrivacyEquation:
    assert question.epsilon is not None
    rounds = max_rounds(question.event(rounds=1), question.epsilon, question.delta, **question.how)
    if rounds < 1:
        raise _impossible(question, "not even one round")
    return replace(question, rounds=rounds)


def _solve_cohort(question: PrivacyEquation) -> PrivacyEquation:
    cohort = _searched(question, max_cohort, "clients", "cohort")
    if not cohort:
        raise _impossible(question, "not even a cohort of one")
    return replace(question, cohort=cohort)


def _solve_clients(question: PrivacyEquation) -> PrivacyEquation:
    clients = _searched(question, min_clients, "cohort", "clients")
    if clients is None:
        raise _impossible(question, "no number of clients")
    return replace(question, clients=clients)


def _searched(
    question: PrivacyEquation, search: Callable[..., int | None], given: str, sought: str
) -> int | None:
    """Search for the number `sought` where the other of cohort and clients is `given`."""
    known = getattr(question, given)
    assert question.epsilon is not None and known is not None
    return search(
        lambda number: question.event(**{sought: number}),
        known,
        question.epsilon,
        question.delta,
        **question.how,
    )


def _impossible(question: PrivacyEquation, what: str) -> BudgetExhausted:
    return BudgetExhausted(
        f"{what} fits epsilon {question.epsilon:g} with noise multiplier {question.noise_multiplier:g}; "
        "use more noise or a larger epsilon"
    )


_SOLVERS: dict[str, Callable[[PrivacyEquation], PrivacyEquation]] = {
    "epsilon": lambda question: question,  # `solve` computes it in any case
    "noise_multiplier": _solve_noise,
    "rounds": _solve_rounds,
    "cohort": _solve_cohort,
    "clients": _solve_clients,
}
