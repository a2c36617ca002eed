"""The command `fedsynth account`: any one of epsilon, noise, rounds, cohort and clients from the others."""

from __future__ import annotations

from typing import Annotated, Any

from fedsynth.cli import flags
from fedsynth.cli.flags import option
from fedsynth.cli.output import show, tell

_LEGACY = (
    "rdp-legacy is the old conversion, kept to reproduce published tables; do not state it for a release"
)


def account(
    delta: flags.Delta,
    noise_multiplier: Annotated[float | None, option("Noise over clip.")] = None,
    epsilon: Annotated[float | None, option("Target; what is left out is solved for.")] = None,
    rate: Annotated[float | None, option("Probability that a client is in a round.")] = None,
    clients: Annotated[int | None, option("Number of clients (or records).")] = None,
    cohort: Annotated[int | None, option("Clients in a round.")] = None,
    rounds: Annotated[int | None, option("Rounds (or steps).")] = None,
    sampling: Annotated[str | None, option("poisson, fixed or none.")] = None,
    adjacency: Annotated[str | None, option("add-remove, replace-one or zero-out.")] = None,
    unit: Annotated[str, option("client or record: what the neighbors differ in.")] = "client",
    accountant: Annotated[str, option("pld, rdp or rdp-legacy.")] = "pld",
    relative_to: Annotated[
        str, option("What the noise multiplier is relative to: clip, or sensitivity (as some papers).")
    ] = "clip",
    as_json: flags.AsJson = False,
) -> None:
    """Compute epsilon, noise or rounds, given the others.

    Leave out one of epsilon, noise, rounds, cohort and clients: it is the one that is computed.

    Example: fedsynth account --noise-multiplier 1 --clients 500 --cohort 100 --rounds 30 --delta 1e-5
    """
    from fedsynth.privacy.pairs import PAIRS
    from fedsynth.privacy.solve import PrivacyEquation, check_words, solve

    sampling = sampling or (
        "none" if (rate, cohort) == (None, None) and not (epsilon and clients) else "poisson"
    )
    adjacency = adjacency or ("replace-one" if sampling == "fixed" else "add-remove")
    check_words(
        sampling=sampling, adjacency=adjacency, unit=unit, accountant=accountant, relative_to=relative_to
    )
    scale = PAIRS[sampling, adjacency].sensitivity or 1 if relative_to == "sensitivity" else 1
    noise = None if noise_multiplier is None else noise_multiplier * scale
    question = PrivacyEquation(
        delta, epsilon, noise, rounds, rate, clients, cohort, sampling, adjacency, accountant
    )
    solved, missing, used = solve(question)
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
        "solved": missing,
        "relative_to": "clip" if scale == 1 else "sensitivity",
    }
    if used == "rdp-legacy":
        tell(_LEGACY)
    show(as_json, values, _sentence(values))


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
