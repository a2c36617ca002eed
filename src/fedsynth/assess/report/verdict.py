"""Private how, faithful how, useful how: three sentences for somebody who reads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsynth.assess.report.axis import percent
from fedsynth.assess.scores.score import Score
from fedsynth.privacy.statement import Statement
from fedsynth.privacy.wording import belief, caveat_delta, shown

# Our words, no standard; those on epsilon are the ones of docs/privacy.md.
STRONG, REASONABLE, WEAK = 1.0, 3.0, 10.0
CLOSE, FAIR = 0.95, 0.85  # of the lower of column shapes and column pairs
MUCH, SOME = 0.9, 0.6  # of what real rows teach beyond guessing
_UNITS = {"client": "one participant", "record": "one row"}
_SEEDED = (
    "The noise came from a seed and can be repeated, so nothing is protected; leave --seed out for privacy."
)
_NO_PROMISE = "This run makes no privacy promise to anybody; treat its results like the real data."
_INFERRED = (
    "Some of the schema was read from real rows without paying for it, and the promise does not cover what that "
    "reveals."
)
_NO_GRADE = (
    "There is no single grade for data of this kind; the chapter on faithfulness has what was measured."
)
_NO_TEST = (
    "Nothing was learned from these rows yet: name real rows that the generator never saw with --test FILE."
)
_NOTHING_TO_LEARN = "Even real rows teach nothing about this label, so there is nothing to compare with."


@dataclass(frozen=True)
class Verdict:
    """An answer: `level` is good, fair, bad or none (not measured); `grade` is the word for it."""

    question: str
    level: str
    grade: str
    sentence: str


def verdicts(
    statement: Statement, scores: Sequence[Score], caught: float | None = None
) -> tuple[Verdict, Verdict, Verdict]:
    """The three answers; `caught` is what the best attack finds of the members at 1% false alarms."""
    return private(statement, caught), faithful(scores), useful(scores)


def private(statement: Statement, caught: float | None = None) -> Verdict:
    """How private: the claim in words, or why there is none."""
    question = "Is it private?"
    if statement.simulation:
        return Verdict(question, "bad", "No: a simulation", _SEEDED)
    if statement.epsilon is None:
        return Verdict(question, "bad", "No", _NO_PROMISE)
    exceeded = _exceeded(statement)
    if exceeded:
        return Verdict(question, "bad", "No: the claim is refuted", exceeded)
    if not statement.private:
        return Verdict(question, "bad", "Incomplete", _why_incomplete(statement))
    epsilon = statement.epsilon
    level, word = _grade(-epsilon, (-STRONG, -WEAK), ("Strongly", "Weakly", "Hardly"))
    word = "Reasonably" if STRONG < epsilon <= REASONABLE else word
    sentence = (
        f"Whoever studies the results can turn an even guess about {_UNITS[statement.unit]} into at most "
        f"{belief(epsilon)} certainty (epsilon {shown(epsilon)}, delta {statement.delta:g})."
    )
    if caught is not None:
        sentence += (
            f" The best attack that was tried finds {percent(caught)} of the members at 1% false alarms."
        )
    return Verdict(question, level, word, sentence)


def _why_incomplete(statement: Statement) -> str:
    if statement.delta is not None and statement.units is not None and statement.loses_one:
        return caveat_delta(statement.delta, statement.unit, statement.units)
    return _INFERRED


def _grade(value: float, least: tuple[float, float], words: tuple[str, str, str]) -> tuple[str, str]:
    """Level and word for a value, by the least that is good and the least that is fair."""
    place = 0 if value >= least[0] else 1 if value >= least[1] else 2
    return ("good", "fair", "bad")[place], words[place]


def _exceeded(statement: Statement) -> str | None:
    lower = (statement.audited or {}).get("epsilon_lower")
    if lower is None or statement.epsilon is None or lower <= statement.epsilon:
        return None
    return (
        f"An audit found that at least epsilon {shown(lower)} leaks, more than the claimed "
        f"{shown(statement.epsilon)}: do not publish, and report this as a defect."
    )


def faithful(scores: Sequence[Score]) -> Verdict:
    """How alike columns and pairs of columns are."""
    question = "Is it faithful?"
    by_name = {score.name: score for score in scores}
    shapes, pairs = by_name.get("column shapes"), by_name.get("column pairs")
    if shapes is None and scores:
        reason = next((f" {score.name} failed: {score.failed}." for score in scores if score.failed), "")
        return Verdict(question, "none", "See the scores", _NO_GRADE + reason)
    if shapes is None or shapes.value is None:
        why = "no real rows were compared; name them with --real FILE" if shapes is None else shapes.failed
        return Verdict(
            question, "none", "Not measured", f"It is not known how like the real rows these are: {why}."
        )
    lower = min(score.value for score in (shapes, pairs) if score is not None and score.value is not None)
    level, word = _grade(lower, (CLOSE, FAIR), ("Close", "Fair", "Rough"))
    sentence = f"Single columns match the real ones to {percent(shapes.value)}"
    if pairs is not None and pairs.value is not None:
        sentence += f", pairs of columns to {percent(pairs.value)}"
    parts = shapes.detail.get("parts") or {}
    if parts:
        worst = min(parts, key=lambda name: parts[name])
        sentence += f"; the weakest column is {worst} with {percent(parts[worst])}"
    return Verdict(question, level, word, sentence + ".")


def useful(scores: Sequence[Score]) -> Verdict:
    """How much of what real rows teach a classifier the synthetic ones teach."""
    question = "Is it useful?"
    area = chosen_utility(scores)
    if area is None:
        return Verdict(question, "none", "Not measured", _NO_TEST)
    real = float(area.detail["train_on_real"])
    least = float(area.detail["majority"])
    if area.value is None:
        return Verdict(
            question, "bad", "No", f"No classifier could learn from the synthetic rows: {area.failed}."
        )
    if real <= least:
        return Verdict(question, "none", "Cannot be told", _NOTHING_TO_LEARN)
    share = max(0.0, (area.value - least) / (real - least))
    level, word = _grade(share, (MUCH, SOME), ("Very", "Partly", "Hardly"))
    name, _, measure = area.name.partition(": ")
    measured = "AUC" if measure == "auc" else measure
    tested = area.detail.get("test", "real rows")
    sentence = (
        f"{name[:1].upper()}{name[1:]} trained on synthetic rows reaches {measured} {area.value:.3f} on {tested}; "
        f"trained on real rows it reaches {real:.3f}. That is {min(share, 1.0):.0%} of what real "
        "rows teach."
    )
    return Verdict(question, level, word, sentence)


def chosen_utility(scores: Sequence[Score]) -> Score | None:
    """The score that the verdict rests on: AUC of the classifier that learns most from real rows.

    Where there are many classes (no answer is right half of the time) AUC is near 1 for everybody: accuracy then.
    """
    compared = {s.name: s for s in scores if "train_on_real" in s.detail and "majority" in s.detail}
    areas = [score for name, score in compared.items() if name.endswith(": auc")] or list(compared.values())
    if not areas:
        return None
    best = max(areas, key=lambda score: float(score.detail["train_on_real"]))
    accuracy = compared.get(best.name.rpartition(": ")[0] + ": accuracy")
    many = accuracy is not None and float(accuracy.detail["majority"]) < 0.5
    return accuracy if many else best
