"""How private, how faithful, how useful: three sentences for somebody who reads nothing else."""

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
UNSEEN, SEEN = 0.8, 0.95  # AUC of telling synthetic from real rows, up to which they can be close, and fair
_MOST_BLAMED = 3
_LEVELS = ("good", "fair", "bad")
MUCH, SOME = 0.9, 0.6  # of what real rows teach beyond guessing
_UNITS = {"client": "one client", "record": "one row"}
_SEEDED = (
    "The noise came from a seed and can be repeated, so nothing is protected; leave --seed out for privacy."
)
_NO_PROMISE = "This run makes no privacy promise to anybody; treat its results like the real data."
_INFERRED = (
    "Some of the schema was read from real rows outside the privacy budget, and the promise does not cover what that "
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
        f"Someone studying the results could go from 50% to at most {belief(epsilon)} sure about "
        f"{_UNITS[statement.unit]} (epsilon {shown(epsilon)}, delta {statement.delta:g})."
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
    place = _place(value, least)
    return _LEVELS[place], words[place]


def _place(value: float, least: tuple[float, float]) -> int:
    return 0 if value >= least[0] else 1 if value >= least[1] else 2


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
            question,
            "none",
            "Not measured",
            f"It is not known how similar to the real rows these are: {why}.",
        )
    lower = min(score.value for score in (shapes, pairs) if score is not None and score.value is not None)
    detector = _detector(scores)
    places = [_place(lower, (CLOSE, FAIR))]
    if detector is not None and detector.value is not None:
        places.append(_place(-detector.value, (-UNSEEN, -SEEN)))
    place = max(places)
    sentence = f"Single columns match the real ones to {percent(shapes.value)}"
    if pairs is not None and pairs.value is not None:
        sentence += f", pairs of columns to {percent(pairs.value)}"
    parts = shapes.detail.get("overlap") or shapes.detail.get("parts") or {}
    if parts:
        worst = min(parts, key=lambda name: parts[name])
        sentence += f"; the weakest column is {worst} with {percent(parts[worst])}"
    sentence += f".{_given_away(detector)}"
    return Verdict(question, _LEVELS[place], ("Close", "Fair", "Rough")[place], sentence)


def _detector(scores: Sequence[Score]) -> Score | None:
    """The classifier that tells synthetic rows from real ones best."""
    detections = [
        score for score in scores if score.name.startswith("detection by ") and score.value is not None
    ]
    return max(detections, key=lambda score: score.value or 0.0, default=None)


def _given_away(detector: Score | None) -> str:
    """The sentence on how easily synthetic rows are told from real ones, and which columns give them away."""
    if detector is None or detector.value is None:
        return ""
    steps = ((0.6, "hardly ever"), (UNSEEN, "sometimes"), (SEEN, "usually"), (1.0, "almost always"))
    how = next(words for end, words in steps if detector.value <= end)
    sentence = f" A classifier can {how} tell synthetic rows from real ones (AUC {detector.value:.3f}; 0.5 is guessing)"
    blamed = detector.detail.get("blamed")
    if blamed is not None and detector.value > UNSEEN:
        named = ", ".join(list(blamed)[:_MOST_BLAMED])
        sentence += f", mostly by {named}" if named else ", by many columns together rather than a single one"
    return sentence + "."


def useful(scores: Sequence[Score]) -> Verdict:
    """How much of what real rows teach a classifier the synthetic ones teach."""
    question = "Is it useful?"
    area = chosen_utility(scores)
    if area is None:
        failed = next((score for score in scores if score.failed and score.name.endswith(": auc")), None)
        why = _NO_TEST if failed is None else f"{failed.name} could not be measured: {failed.failed}."
        return Verdict(question, "none", "Not measured", why)
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
