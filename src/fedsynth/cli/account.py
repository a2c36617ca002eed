"""The command `fedsynth account`: any one of epsilon, noise, rounds, cohort and clients from the others."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import typer
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent

from fedsynth.errors import BadInput, BudgetExhausted, nearest
from fedsynth.privacy import account as accounting
from fedsynth.privacy.account import ACCOUNTANTS, ADJACENCIES, PAIRS, SAMPLINGS

_LEGACY = (
    "rdp-legacy is the old conversion, kept to reproduce published tables; do not state it for a release"
)
MOST = 1e12  # of anything: beyond it the accountants' arithmetic ends


@dataclass(frozen=True)
class Question:
    """What is known; None is what is asked for. The noise multiplier is relative to the clip."""

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
        return accounting.repeat(known._sampled(noise), known.rounds)

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
        """What every question to the accountant takes along."""
        return {"adjacency": self.adjacency, "accountant": self.accountant}


def account(
    delta: float,
    noise_multiplier: float | None,
    epsilon: float | None,
    rate: float | None,
    clients: int | None,
    cohort: int | None,
    rounds: int | None,
    sampling: str | None,
    adjacency: str | None,
    unit: str,
    accountant: str,
    relative_to: str,
    as_json: bool,
) -> None:
    """What privacy costs: leave one of epsilon, noise, rounds, cohort and clients out, and get it."""
    sampling = sampling or (
        "none" if (rate, cohort) == (None, None) and not (epsilon and clients) else "poisson"
    )
    adjacency = adjacency or ("replace-one" if sampling == "fixed" else "add-remove")
    _check_words(
        sampling=sampling, adjacency=adjacency, unit=unit, accountant=accountant, relative_to=relative_to
    )
    scale = PAIRS[sampling, adjacency].sensitivity or 1 if relative_to == "sensitivity" else 1
    noise = None if noise_multiplier is None else noise_multiplier * scale
    question = Question(delta, epsilon, noise, rounds, rate, clients, cohort, sampling, adjacency, accountant)
    solved, asked, used = _solve(_checked(question))
    _print(solved, asked, used, unit, scale, as_json)


def _check_words(**given: str) -> None:
    known: dict[str, tuple[str, ...]] = {
        "sampling": SAMPLINGS,
        "adjacency": ADJACENCIES,
        "unit": ("client", "record"),
        "accountant": ACCOUNTANTS,
        "relative_to": ("clip", "sensitivity"),
    }
    for name, value in given.items():
        if value not in known[name]:
            option = name.replace("_", "-")
            extra = "; sampling with replacement has no accountant" if value == "replacement" else ""
            raise BadInput(f"--{option} {value}: {nearest(value, known[name])}{extra}")


def _checked(question: Question) -> Question:
    """Refuse what cannot be, and fill in one round where nothing else is asked."""
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
    return question


def _solve(question: Question) -> tuple[Question, str, str]:
    """The question answered, what was asked for, and the accountant that answered."""
    open_sampling = _open_sampling(question)
    if question.rounds is None and (
        question.noise_multiplier is None or question.epsilon is None or open_sampling
    ):
        question = replace(question, rounds=1)
    asked = [name for name in ("epsilon", "noise_multiplier", "rounds") if getattr(question, name) is None]
    asked += [open_sampling] if open_sampling else []
    if len(asked) != 1:
        raise BadInput(_what_to_give(asked))
    solved = _SOLVERS[asked[0]](question)
    cost = accounting.answer(solved.event(), solved.delta, **solved.how)
    return replace(solved, epsilon=cost.epsilon), asked[0], cost.accountant


def _open_sampling(question: Question) -> str:
    if question.sampling == "none" or question.rate is not None:
        return ""
    if question.clients is None and question.cohort is None:
        raise BadInput(f"--sampling {question.sampling} needs --rate, or --clients and --cohort")
    if question.clients is None:
        return "clients"
    return "cohort" if question.cohort is None else ""


def _what_to_give(asked: list[str]) -> str:
    if not asked:
        return "nothing is asked: leave out one of --epsilon, --noise-multiplier, --rounds, --cohort and --clients"
    listed = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
    return f"only one value can be solved for, but {listed} are missing; give all but one of them"


def _solve_epsilon(question: Question) -> Question:
    return question


def _solve_noise(question: Question) -> Question:
    assert question.epsilon is not None
    noise = accounting.calibrate(
        lambda z: question.event(noise_multiplier=z), question.epsilon, question.delta, **question.how
    )
    return replace(question, noise_multiplier=noise)


def _solve_rounds(question: Question) -> Question:
    assert question.epsilon is not None
    rounds = accounting.max_rounds(question.event(rounds=1), question.epsilon, question.delta, **question.how)
    if rounds < 1:
        raise _impossible(question, "not even one round")
    return replace(question, rounds=rounds)


def _solve_cohort(question: Question) -> Question:
    assert question.epsilon is not None and question.clients is not None
    cohort = accounting.max_cohort(
        lambda size: question.event(cohort=size),
        question.clients,
        question.epsilon,
        question.delta,
        **question.how,
    )
    if cohort < 1:
        raise _impossible(question, "not even a cohort of one")
    return replace(question, cohort=cohort)


def _solve_clients(question: Question) -> Question:
    assert question.epsilon is not None and question.cohort is not None
    clients = accounting.min_clients(
        lambda number: question.event(clients=number),
        question.cohort,
        question.epsilon,
        question.delta,
        **question.how,
    )
    if clients is None:
        raise _impossible(question, "no number of clients")
    return replace(question, clients=clients)


def _impossible(question: Question, what: str) -> BudgetExhausted:
    return BudgetExhausted(
        f"{what} fits epsilon {question.epsilon:g} with noise multiplier {question.noise_multiplier:g}; "
        "use more noise or a larger epsilon"
    )


_SOLVERS = {
    "epsilon": _solve_epsilon,
    "noise_multiplier": _solve_noise,
    "rounds": _solve_rounds,
    "cohort": _solve_cohort,
    "clients": _solve_clients,
}


def _print(solved: Question, asked: str, used: str, unit: str, scale: int, as_json: bool) -> None:
    assert solved.noise_multiplier is not None and solved.epsilon is not None
    values: dict[str, Any] = {
        "epsilon": solved.epsilon if solved.epsilon < float("inf") else None,
        "delta": solved.delta,
        "noise_multiplier": solved.noise_multiplier / scale,
        "rounds": solved.rounds,
        "rate": solved.known_rate,
        "clients": solved.clients,
        "cohort": solved.cohort,
        "sampling": solved.sampling,
        "adjacency": solved.adjacency,
        "unit": unit,
        "accountant": used,
        "solved": asked,
        "relative_to": "clip" if scale == 1 else "sensitivity",
    }
    if used == "rdp-legacy":
        typer.echo(_LEGACY, err=True)
    if as_json:
        typer.echo(json.dumps(values))
        return
    typer.echo(_sentence(values))


def _sentence(values: dict[str, Any]) -> str:
    who = f" of {values['clients']:,} {values['unit']}s" if values["clients"] else ""
    cohort = {
        "none": "everybody in each round",
        "poisson": f"each{who} drawn with probability {values['rate']:.6g}",
        "fixed": f"{values['cohort'] or 0:,}{who} in each round",
    }[values["sampling"]]
    epsilon = "unbounded" if values["epsilon"] is None else f"{values['epsilon']:.4f}"
    return (
        f"epsilon {epsilon} at delta {values['delta']:g} ({values['unit']}, {values['adjacency']}, "
        f"{values['accountant']}): noise multiplier {values['noise_multiplier']:.6g}, "
        f"{values['rounds']:,} round{'' if values['rounds'] == 1 else 's'}, {cohort}"
    )
