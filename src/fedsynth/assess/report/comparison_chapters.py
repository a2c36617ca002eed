"""The chapters that compare with real rows: faithful and useful. Both are internal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsynth.assess.report.axis import short
from fedsynth.assess.report.column_views import column_alerts, column_search, column_table, legend, overlays
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import Section, figure, folded, table
from fedsynth.assess.report.relation_views import embedded, marginals, pair_pictures, relations
from fedsynth.assess.report.scale_chart import Compared, meter, usefulness
from fedsynth.assess.scores.augmentation import FEW_ROWS, RARE_CLASS
from fedsynth.assess.scores.classifiers import CLASSIFIERS, FURTHER
from fedsynth.assess.scores.score import Score
from fedsynth.assess.scores.tuned_classifier import ORDER, REGRET
from fedsynth.assess.suite import Evaluation

_USES = tuple(name.partition(": ")[0] for name in (ORDER, REGRET, FEW_ROWS, RARE_CLASS))
_MOST_NAMED = 8  # scores that failed for one reason
_GOALS = {"max": "higher is better", "min": "lower is better", "range": "should lie within"}


def topic(score: Score) -> str:
    """The chapter that a score belongs to: attacks, useful or faithful."""
    first = score.name.partition(": ")[0]
    if {"false_positive_rate", "ceiling", "article_29"} & set(score.detail):
        return "attacks"
    useful = "train_on_real" in score.detail or first in (*CLASSIFIERS, *FURTHER, *_USES)
    return "useful" if useful else "faithful"


def score_table(scores: Sequence[Score], label: str) -> Markup | None:
    """Scores with their meters; failed ones with their reason."""
    if not scores:
        return None
    rows = [_score_row(score) for score in scores]
    heads = ["score", "value", "worst to best", "goal"]
    return table(heads, rows, label, (1,), "stack")


def _score_row(score: Score) -> list[Any]:
    goal = _GOALS[score.goal] + (
        f" {short(score.range[0])} to {short(score.range[1])}" if score.goal == "range" else ""
    )
    halves = score.detail.get("real_halves")
    goal += f"; two halves of the real rows: {halves:.3f}" if isinstance(halves, float) else ""
    network = score.detail.get("network")
    goal += f"; network: {network}" if isinstance(network, str) else ""
    if score.value is None:
        return [
            score.name,
            tag("span", "failed", class_="bad-text"),
            "see “What could not be measured”",
            goal,
        ]
    value = f"{score.value:.3f}" + ("" if score.spread is None else f" ± {score.spread:.3f}")
    bounded = all(abs(end) < 1e9 for end in score.range) and score.goal != "range"
    drawn = meter(score.value, *score.range, score.goal, f"{score.name}: {value}") if bounded else "–"
    return [score.name, value, drawn, goal]


def failures(scores: Sequence[Score]) -> Markup | None:
    """List the scores, and single parts of them, that could not be measured, by the reason."""
    reasons: dict[str, list[str]] = {}
    for score in scores:
        if score.failed is not None:
            reasons.setdefault(score.failed, []).append(score.name)
            continue
        for part, reason in (score.detail.get("failed") or {}).items():
            reasons.setdefault(str(reason), []).append(f"{score.name}: {part}")
    if not reasons:
        return None
    rows = [[_first(names), reason] for reason, names in reasons.items()]
    body = table(["could not be measured", "reason"], rows, "Scores that failed", class_="stack")
    return tag("div", tag("h3", "What could not be measured"), body, class_="failed-scores")


def _first(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMED
    return "; ".join(names[:_MOST_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def faithful_chapter(evaluation: Evaluation) -> Section:
    """Columns, pairs and combinations, worst first."""
    details = evaluation.details
    columns = details.get("columns") or []
    body: list[Any] = []
    if columns:
        body += [
            tag("h3", "Column by column, the weakest first"),
            column_search(columns),
            legend(),
            overlays(columns),
            tag("h3", "Columns in numbers, and alerts"),
            column_alerts(columns),
            column_table(columns),
        ]
    if details.get("associations"):
        body += [tag("h3", "Relationships between columns"), *relations(details["associations"])]
    if details.get("pairs"):
        body += [tag("h3", "The pairs that changed most"), *pair_pictures(details["pairs"])]
    if details.get("embedding"):
        body += [tag("h3", "All columns at once"), *embedded(details["embedding"])]
    if details.get("marginals"):
        body += [tag("h3", "Combinations of columns, the worst first"), marginals(details["marginals"])]
    others = [score for score in evaluation.scores if topic(score) == "faithful"]
    if others:
        body += [tag("h3", "Scores"), score_table(others, "Scores of faithfulness")]
    return Section("faithful", "Is it faithful?", body)


def useful_chapter(scores: Sequence[Score]) -> Section:
    """Classifiers trained on synthetic and on real rows, tested on the same real rows."""
    trained = [score for score in scores if "train_on_real" in score.detail and score.value is not None]
    pictures = []
    for measure, title in (("auc", "AUC"), ("accuracy", "accuracy"), ("f1", "F1")):
        rows = [_compared(score) for score in trained if score.name.endswith(f": {measure}")]
        if rows:
            pictures.append(figure(f"{title}, tested on real rows", usefulness(rows, title)))
    words = (
        "The disc is a classifier that learned from synthetic rows, the upright stroke is one that learned from real "
        "rows, and the cross is always giving the most frequent answer. The closer the disc to the stroke, the better."
    )
    tried = any(topic(score) == "useful" for score in scores)
    empty = (
        "Nothing here could be measured; “What could not be measured” above says why."
        if tried
        else "To measure this, name real rows that the generator never saw with --test FILE."
    )
    body: list[Any] = [tag("p", empty)]
    if pictures:
        body = [tag("p", words, class_="soft"), tag("div", pictures, class_="charts")]
    listed = [score for score in scores if topic(score) == "useful"]
    uses = [score for score in listed if "train_on_real" not in score.detail]
    classifiers = [score for score in listed if "train_on_real" in score.detail]
    if uses:
        body += [tag("h3", "Tuning on it, and adding it to real rows"), score_table(uses, "Further uses")]
    if classifiers:
        body.append(folded("all numbers of the classifiers", score_table(classifiers, "Classifiers")))
    return Section("useful", "Is it useful?", body)


def _compared(score: Score) -> Compared:
    assert score.value is not None
    name = score.name.rpartition(": ")[0]
    return Compared(name, score.value, score.spread, score.detail["train_on_real"], score.detail["majority"])
