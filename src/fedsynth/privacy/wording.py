"""The privacy statement in words, for somebody who signs it and does not run it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsynth.privacy.statement import Statement

_UNITS = {
    "client": "all data of one client (whoever owns the rows, such as a patient) together",
    "record": "one row of a client's data",
}
_WHOSE = {"client": "a given client's data", "record": "a given row"}
_NEIGHBORS = {
    "add-remove": "whether {whose} was used at all",
    "replace-one": "what {whose} contained; that it was used is not hidden",
    "zero-out": "whether {whose} contributed or was blank; that the client took part is not hidden",
}
_AGAINST = {
    "central": "everybody who sees the published model, the synthetic data or anything made from them. The "
    "server that added up the updates saw each of them before the noise and has to be trusted",
    "distributed": "everybody who sees the published results, the server, and each of the other participants "
    "(clients, or sites with all their clients) by itself, as long as those counted as honest do not help the "
    "server to open single messages",
    "local": "the server and everybody else: what left each client was already noisy, and nobody has to "
    "be trusted",
    "none": "nobody",
}
_GUESSED = {
    "add-remove": "was used or not",
    "replace-one": "contained one thing or another",
    "zero-out": "contributed or was blank",
}
_SAMPLING = {
    "poisson": "The calculation assumes that every {unit} is drawn independently at random at each step, and that "
    "nobody learns which were drawn.",
    "fixed": "The calculation assumes that groups of a fixed size are drawn at random at each step, and that nobody "
    "learns which were drawn.",
    "none": "The calculation does not rely on any random choice of clients.",
}
_DRAWN = {"client": "client", "record": "row"}
_SOURCE = "The noise and the draws came from the operating system's random source and cannot be repeated."
_ALWAYS = (
    "How many clients there are is treated as public.",
    "Statistics about the group as a whole can be learned, and may say something about a person whether or not that "
    "person's data were used.",
    "Quality figures computed on real rows, settings chosen by looking at real rows, and anything released "
    "outside the ledger are not part of this statement.",
)


def shown(epsilon: float) -> str:
    """Epsilon to three digits, rounded up: a statement never promises more than was computed.

    >>> shown(7.9305), shown(8.0), shown(0.34101)
    ('7.94', '8', '0.342')
    """
    if epsilon <= 0:
        return "0"
    power = 2 - math.floor(math.log10(epsilon))
    value = math.ceil(epsilon * 10.0**power - 1e-6) * 10.0**-power
    return f"{value:.{max(power, 0)}f}".rstrip("0").rstrip(".") if power > 0 else f"{value:.0f}"


def belief(epsilon: float) -> str:
    """How certain somebody who thought it equally likely can become, in percent, rounded up.

    >>> belief(1.0), belief(8.0), belief(40.0)
    ('73.2%', '99.97%', 'practically 100%')
    """
    percent = 100.0 / (1.0 + math.exp(-epsilon))
    for digits in (1, 2, 3, 4):
        up = math.ceil(percent * 10**digits) / 10**digits
        if up < 100.0:
            return f"{up:.{digits}f}%"
    return "practically 100%"


def caveats_inferred(columns: Sequence[str]) -> list[str]:
    """The sentence on columns that were looked at without paying."""
    return _on_columns(
        columns,
        "Types, decimals, bounds or categories of these columns were read from the rows without any protection",
        "The guarantee does not cover what they reveal.",
    )


def caveats_accepted(columns: Sequence[str]) -> list[str]:
    """The sentence on columns whose bounds were proposed from rows and taken without asking."""
    return _on_columns(
        columns,
        "Types, decimals, bounds or categories of these columns were proposed from the rows and accepted all at once",
        "The guarantee covers what they reveal only if they are publicly known without these rows.",
    )


def _on_columns(columns: Sequence[str], happened: str, covered: str) -> list[str]:
    """The caveat on columns, if there are any."""
    return [f"{happened}: {', '.join(columns)}. {covered}"] if columns else []


def caveats_shares(earlier: int) -> list[str]:
    """The sentence on lines of a ledger that were written before participants' own shares of the noise were counted."""
    if not earlier:
        return []
    return [
        f"{earlier:,} lines of the ledger count the noise of all participants, as earlier versions did: against one of "
        "them, who knows its own share, these releases are less protected than stated."
    ]


def caveat_delta(delta: float, unit: str, units: int) -> str:
    """The sentence on a delta that allows to give one of the protected units away.

    >>> caveat_delta(0.4, "client", 40)
    'Delta is 0.4, not below 1 / 40: publishing the data of one of the 40 clients in full would be allowed.'
    """
    whose = {
        "client": f"the data of one of the {units:,} clients",
        "record": f"one of the {units:,} rows",
    }
    return f"Delta is {delta:g}, not below 1 / {units}: publishing {whose[unit]} in full would be allowed."


def caveats_dealt(split: str, unit: str, *, reads_rows: bool) -> list[str]:
    """The sentences on clients that are simulated: rows without owners, dealt out by `split`.

    >>> caveats_dealt("uniform", "record", reads_rows=False)
    []
    """
    sentences = []
    if unit == "client" and split == "rows":
        sentences.append(
            "No column says whose a row is, so each row was treated as one client. A person with several rows is "
            "protected for each of them, not for all together."
        )
    elif unit == "client":
        sentences.append(
            f"The clients are simulated: rows without owners were dealt out to them ({split}). What is protected is "
            "one client's share, not everything about one person, whose rows may be spread over many shares."
        )
    if reads_rows:
        sentences.append(
            f"Which rows went to whom depends on what is in the rows ({split}); the calculation does not cover that."
        )
    return sentences


def caveat_simulation(epsilon: str | None, delta: float) -> str:
    """The sentence on seeded noise, with the cost that the same run would have with real noise."""
    if epsilon is None:
        return "The noise came from a seed and can be repeated by anybody who knows it."
    return (
        "The noise came from a seed and can be repeated by anybody who knows it. With noise from the operating "
        f"system the same run would be ({epsilon}, {delta:g})-differentially private."
    )


def wording(statement: Statement, runs: int) -> str:
    """The statement in paragraphs; each number stands in it once."""
    if statement.simulation:
        opening = ["simulation: no privacy. Nothing here may be treated as protected."]
    elif statement.epsilon is None:
        opening = [_unprotected(statement)]
    else:
        opening = [
            _incomplete(statement),
            _protected(statement, statement.epsilon),
            _amount(statement, statement.epsilon),
            _SAMPLING[statement.sampling].format(unit=_DRAWN[statement.unit]),
            _SOURCE if statement.projection is None else "",
        ]
    parts = [
        *_projected(statement),
        *opening,
        _released(statement.releases, runs),
        *_audit(statement),
        _uncovered(statement),
    ]
    return "\n\n".join(part for part in parts if part)


def _unprotected(statement: Statement) -> str:
    if not statement.releases:
        return "No privacy: the results were computed from the real data without any protection."
    return "No privacy: at least one release was made without protection, so no bound can be given."


def _incomplete(statement: Statement) -> str:
    return (
        "" if statement.private else "Incomplete: not everything that was revealed is protected; see the end."
    )


def _protected(statement: Statement, epsilon: float) -> str:
    whose = _WHOSE[statement.unit]
    return (
        f"These results are differentially private with epsilon {shown(epsilon)} and delta {statement.delta:g}. "
        f"What is protected is {_UNITS[statement.unit]}: {_NEIGHBORS[statement.adjacency].format(whose=whose)}. "
        f"It is protected against {_AGAINST[statement.trust]}.{_parted(statement)}"
    )


def _parted(statement: Statement) -> str:
    """State the epsilon against outsiders, where a participant knows more of the noise than others do."""
    if statement.against is None:
        return ""
    return (
        " This epsilon holds against a participant, who knows its own share of the noise. Against everybody who "
        f"knows none of it, epsilon is {shown(statement.against['public'])}."
    )


def _amount(statement: Statement, epsilon: float) -> str:
    weak = "" if epsilon <= 10 else " This is a weak bound, whatever attacks achieve in practice."
    return (
        "In other words: somebody who knows everything else, and thinks it equally likely that "
        f"{_WHOSE[statement.unit]} {_GUESSED[statement.adjacency]}, can become at most {belief(epsilon)} certain by "
        "studying the results, except for a total probability mass of delta. Delta is not the probability that this "
        "bound is exceeded, which can be many times larger; the probability that the odds exceed twice the bound is at "
        f"most twice delta.{weak}"
    )


def _projected(statement: Statement) -> list[str]:
    if statement.projection is None:
        return []
    return [
        "Projection: this is not about a run that took place, but about the same run with "
        f"{statement.projection:,} clients."
    ]


def _released(releases: Sequence[Mapping[str, Any]], runs: int) -> str:
    if not releases:
        return ""
    listed = "; ".join(_one(release) for release in releases)
    source = "one run" if runs == 1 else f"{runs} runs on the same data"
    return f"The ledger holds, from {source}: {listed}."


def _one(release: Mapping[str, Any]) -> str:
    count = release["count"]
    times = "once" if count == 1 else f"{count:,} times"
    return f"{release['what']}, {times} ({event_words(release['event'])})"


def event_words(event: Mapping[str, Any]) -> str:
    """A release in words, out of its event as JSON."""
    kind = str(event["type"])
    if "event" in event:
        inner = event_words(event["event"])
        if kind == "PoissonSampledDpEvent":
            return f"{inner}, each with probability {event['sampling_probability']:.4g}"
        if kind == "SampledWithoutReplacementDpEvent":
            return f"{inner}, {event['sample_size']:,} of {event['source_dataset_size']:,} at a time"
        if kind == "SelfComposedDpEvent":
            return f"{event['count']:,} times {inner}"
        if kind == "RepeatAndSelectDpEvent":
            return f"each training: {inner}"
        return inner
    if "events" in event:
        return " and ".join(event_words(part) for part in event["events"])
    if "noise_multiplier" in event:
        noise = "Laplace" if kind == "LaplaceDpEvent" else "Gaussian"
        return f"{noise} noise of {event['noise_multiplier']:.4g} times the clip bound"
    if "epsilon" in event:
        return f"epsilon {event['epsilon']:.4g} each"
    return {"NonPrivateDpEvent": "without protection"}.get(kind, kind.removesuffix("DpEvent"))


def _audit(statement: Statement) -> list[str]:
    if not statement.audited:
        return []
    audit = statement.audited
    return [
        f"An audit ({audit['method']}) found that epsilon is at least {audit['epsilon_lower']:.3g} with "
        f"{audit['confidence']:.0%} confidence."
    ]


def _uncovered(statement: Statement) -> str:
    sentences = [*statement.caveats, *(_ALWAYS if statement.epsilon is not None else ())]
    return "Not covered: " + " ".join(sentences) if sentences else ""
