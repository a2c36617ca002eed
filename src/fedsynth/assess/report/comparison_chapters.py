"""The chapters that compare with real rows: faithful, useful, attacked. All of them are internal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.report.axis import percent, short
from fedsynth.assess.report.curve import Series, roc
from fedsynth.assess.report.histogram import spread
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.matrix import matrix, worst_columns
from fedsynth.assess.report.page import Section, figure, folded, table
from fedsynth.assess.report.privacy_chapter import caught
from fedsynth.assess.report.scale_chart import Compared, meter, usefulness
from fedsynth.assess.scores.augmentation import FEW_ROWS, RARE_CLASS
from fedsynth.assess.scores.classifiers import CLASSIFIERS, FURTHER
from fedsynth.assess.scores.score import Score
from fedsynth.assess.scores.tuned_classifier import ORDER, REGRET
from fedsynth.assess.suite import Evaluation
from fedsynth.privacy.statement import Statement

_MOST_COLUMNS = 120  # keeps the page below 5 MB
_MOST_MARGINALS = 12
_MOST_PAIRS = 10
_USES = tuple(name.partition(": ")[0] for name in (ORDER, REGRET, FEW_ROWS, RARE_CLASS))
_GOALS = {"max": "higher is better", "min": "lower is better", "range": "should lie within"}


def legend(real: bool = True) -> Markup:
    """The key to bars and lines."""
    bar = _sign(tag("rect", x=2, y=2, width=22, height=10, class_="synthetic"))
    stroke = _sign(tag("path", d="M2,12V5H24V12", class_="real-line"))
    entries = [tag("li", bar, "filled bars: synthetic")]
    return tag("ul", entries + ([tag("li", stroke, "line: real")] if real else []), class_="legend")


def overlays(columns: Sequence[Mapping[str, Any]], match: Mapping[str, float]) -> list[Markup]:
    """A picture for each column, those that match worst first; of very many columns only these."""
    ordered = sorted(columns, key=lambda column: match.get(column["name"], 2.0))
    shown, rest = ordered[:_MOST_COLUMNS], ordered[_MOST_COLUMNS:]
    drawn = tag("div", [_column(column, match.get(column["name"])) for column in shown], class_="charts")
    words = f"{len(rest)} further columns are left out: {', '.join(column['name'] for column in rest)}."
    return [drawn, tag("p", words, class_="soft")] if rest else [drawn]


def _column(column: Mapping[str, Any], match: float | None) -> Markup:
    note = column["type"] if match is None else f"{column['type']}, match {percent(match)}"
    if column.get("failed"):
        return figure(column["name"], tag("p", f"Not compared: {column['failed']}", class_="bad-text"), note)
    real = column.get("real")
    missing = (
        [column.get("missing_real", 0.0), column["missing_synthetic"]]
        if real
        else [column["missing_synthetic"]]
    )
    names = ["real", "synthetic"] if real else ["synthetic"]
    words = ", ".join(f"{name} {percent(share)}" for name, share in zip(names, missing, strict=True))
    absent = tag("p", f"missing: {words}", class_="soft small") if any(missing) else None
    return figure(column["name"], spread(column), note, [absent, _numbers(column)])


def _numbers(column: Mapping[str, Any]) -> Markup:
    real = column.get("real")
    heads = ["value", "real", "synthetic"] if real else ["value", "synthetic"]
    values = [real, column["synthetic"]] if real else [column["synthetic"]]
    rows = [[words, *map(percent, shares)] for words, *shares in zip(column["bins"], *values, strict=True)]
    return folded("numbers", table(heads, rows, f"Shares of the values of {column['name']}", (1, 2)))


def heat_maps(relations: Mapping[str, Any]) -> list[Markup | None]:
    """Relations between columns, real and synthetic side by side, and the pairs that changed most."""
    kept = worst_columns(relations["real"], relations["synthetic"])
    names = [relations["names"][i] for i in kept]
    if len(names) < 2:
        return []
    both = [
        [[values[i][j] for j in kept] for i in kept] for values in (relations["real"], relations["synthetic"])
    ]
    pictures = [
        figure("Real", matrix(names, both[0], "real", both[1])),
        figure("Synthetic", matrix(names, both[1], "synthetic", both[0])),
    ]
    left_out = len(relations["names"]) - len(names)
    words = (
        "A large square is a strong relation, a small one a weak relation; hollow squares are negative. Both maps "
        "should look the same. Numbers with numbers: Pearson's correlation; else Cramér's V, which has no sign."
    )
    more = (
        f" The {len(names)} columns that differ most are shown; {left_out} are left out." if left_out else ""
    )
    return [
        tag("p", words + more, class_="soft"),
        tag("div", pictures, class_="charts wide"),
        _changed(relations),
    ]


def _changed(relations: Mapping[str, Any]) -> Markup | None:
    names, real, synthetic = relations["names"], relations["real"], relations["synthetic"]
    pairs = [
        (abs(real[i][j] - synthetic[i][j]), f"{names[i]} and {names[j]}", real[i][j], synthetic[i][j])
        for i in range(len(names))
        for j in range(i)
        if real[i][j] is not None and synthetic[i][j] is not None
    ]
    worst = sorted(pairs, reverse=True)[:_MOST_PAIRS]
    rows = [[name, f"{r:.2f}", f"{s:.2f}", f"{s - r:+.2f}"] for _, name, r, s in worst]
    if not rows:
        return None
    heads = ["relation that changed most", "real", "synthetic", "change"]
    return tag("div", table(heads, rows, "Relations that changed most", (1, 2, 3)), class_="plain single")


def marginals(entries: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Combinations of columns whose shares differ most, beside what two halves of the real rows differ by."""
    if not entries:
        return None
    rows = []
    for entry in sorted(entries, key=lambda item: -item["distance"])[:_MOST_MARGINALS]:
        halves = entry.get("halves")
        words = f"distance {entry['distance']:.3f}"
        rows.append(
            [
                ", ".join(entry["columns"]),
                f"{entry['distance']:.3f}",
                "–" if halves is None else f"{halves:.3f}",
                meter(entry["distance"], 0, 1, "max", words),
            ]
        )
    heads = ["columns together", "distance", "two halves of real", "0 to 1, shorter is better"]
    return tag(
        "div", table(heads, rows, "Combinations of columns, worst first", (1, 2)), class_="plain single"
    )


def topic(score: Score) -> str:
    """The chapter that a score belongs to: attacks, useful or faithful."""
    first = score.name.partition(": ")[0]
    if "false_positive_rate" in score.detail or "ceiling" in score.detail:
        return "attacks"
    useful = "train_on_real" in score.detail or first in (*CLASSIFIERS, *FURTHER, *_USES)
    return "useful" if useful else "faithful"


def score_table(scores: Sequence[Score], label: str) -> Markup | None:
    """Scores with their meters; failed ones with their reason."""
    if not scores:
        return None
    rows = [_score_row(score) for score in scores]
    heads = ["score", "value", "worst to best", "goal"]
    return table(heads, rows, label, (1,))


def _score_row(score: Score) -> list[Any]:
    goal = _GOALS[score.goal] + (
        f" {short(score.range[0])} to {short(score.range[1])}" if score.goal == "range" else ""
    )
    halves = score.detail.get("real_halves")
    goal += f"; two halves of the real rows: {halves:.3f}" if isinstance(halves, float) else ""
    network = score.detail.get("network")
    goal += f"; network: {network}" if isinstance(network, str) else ""
    if score.value is None:
        return [score.name, tag("span", "failed", class_="bad-text"), f"Reason: {score.failed}", goal]
    value = f"{score.value:.3f}" + ("" if score.spread is None else f" ± {score.spread:.3f}")
    bounded = all(abs(end) < 1e9 for end in score.range) and score.goal != "range"
    drawn = meter(score.value, *score.range, score.goal, f"{score.name}: {value}") if bounded else ""
    return [score.name, value, drawn, goal]


def failures(scores: Sequence[Score]) -> Markup | None:
    """List the scores, and single parts of them, that could not be measured, and why."""
    rows = [[score.name, score.failed] for score in scores if score.failed is not None]
    rows += [
        [f"{score.name}: {part}", reason]
        for score in scores
        if score.failed is None
        for part, reason in (score.detail.get("failed") or {}).items()
    ]
    if not rows:
        return None
    body = table(["could not be measured", "reason"], rows, "Scores that failed")
    return tag("div", tag("h3", "What could not be measured"), body, class_="failed-scores")


def faithful_chapter(evaluation: Evaluation) -> Section:
    """Columns, pairs and combinations, worst first."""
    details = evaluation.details
    shapes = next((score for score in evaluation.scores if score.name == "column shapes"), None)
    match = dict(shapes.detail.get("parts") or {}) if shapes else {}
    body: list[Any] = []
    if details.get("columns"):
        body += [
            tag("h3", "Column by column, the weakest first"),
            legend(),
            overlays(details["columns"], match),
        ]
    if details.get("associations"):
        body += [tag("h3", "How columns go together"), *heat_maps(details["associations"])]
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
        "The disc is a classifier that learned from synthetic rows, the upright stroke one from real rows, "
        "the cross is always giving the most frequent answer. The nearer the disc is to the stroke, the better."
    )
    empty = tag("p", "Name real rows that the generator never saw with --test FILE, and this is measured.")
    body: list[Any] = [empty]
    if pictures:
        body = [tag("p", words, class_="soft"), tag("div", pictures, class_="charts wide")]
    listed = [score for score in scores if topic(score) == "useful"]
    uses = [score for score in listed if "train_on_real" not in score.detail]
    classifiers = [score for score in listed if "train_on_real" in score.detail]
    if uses:
        body += [tag("h3", "Tuning on it, and adding it to real rows"), score_table(uses, "Further uses")]
    if classifiers:
        body.append(folded("all numbers of the classifiers", score_table(classifiers, "Classifiers")))
    return Section("useful", "Is it useful?", body)


def _ceiling(attacks: Sequence[Mapping[str, Any]], statement: Statement) -> Series | None:
    """The most that the claim allows: as the attacks tell it, else by epsilon and delta alone."""
    ceilings = [ceiling for attack in attacks if (ceiling := attack.get("ceiling"))]
    name = "The most that the claim allows"
    if ceilings:
        loosest = max(ceilings, key=lambda ceiling: ceiling["auc"])
        return Series(
            name, list(zip(loosest["false_positive_rate"], loosest["true_positive_rate"], strict=True))
        )
    if statement.epsilon is None or statement.delta is None:
        return None
    curve = Ceiling.of(statement.epsilon, statement.delta).to_dict()
    return Series(name, list(zip(curve["false_positive_rate"], curve["true_positive_rate"], strict=True)))


def _sign(mark: Markup) -> Markup:
    return tag("svg", mark, viewBox="0 0 26 14", aria_hidden="true")


def _compared(score: Score) -> Compared:
    assert score.value is not None
    name = score.name.rpartition(": ")[0]
    return Compared(name, score.value, score.spread, score.detail["train_on_real"], score.detail["majority"])


def _shadows(attack: Mapping[str, Any]) -> str:
    """Describe what an attack by shadow generators rests on."""
    words = f"{attack['name'].capitalize()}: {attack['runs']} shadow generators of {attack['size']:,} rows were trained"
    narrowed = attack.get("narrowed")
    if not narrowed:
        return f"{words}, with the run's own model."
    widths = [", ".join(map(str, narrowed[whose])) for whose in ("shadows", "run")]
    return f"{words}; to save time their layers have {widths[0]} neurons, those of the run {widths[1]}."


def attack_chapter(attacks: Sequence[Mapping[str, Any]], statement: Statement) -> Section:
    """The chapter on what attackers find out about who took part."""
    curves = [
        Series(
            attack["name"],
            list(zip(attack["false_positive_rate"], attack["true_positive_rate"], strict=True)),
        )
        for attack in attacks
        if attack.get("false_positive_rate")
    ]
    rows = [
        [attack["name"], f"{attack['auc']:.3f}", "–" if (share := caught(attack)) is None else percent(share)]
        for attack in attacks
    ]
    words = (
        "Each attack guesses who was among the real rows. A curve on the dotted diagonal is no better than tossing a "
        "coin; none may rise above the dashed line, which is all that the claim allows."
    )
    ceiling = _ceiling(attacks, statement)
    signs = [(f"curve dash-{place % 4}", each.name) for place, each in enumerate(curves)]
    signs += [("limit", "the most that the claim allows")] if ceiling is not None else []
    names = [tag("li", _sign(tag("path", d="M1,7H25", class_=kind)), name) for kind, name in signs]
    key = tag("ul", names, class_="legend")
    picture = figure("Members found against false alarms", roc(curves, ceiling), "", key) if curves else None
    above = [attack["name"] for attack in attacks if attack.get("above_ceiling")]
    alarm = f"More than the claim allows: {', '.join(above)}. Do not publish before you know why."
    warning = tag("p", alarm, class_="warning") if above else None
    trained = [tag("p", _shadows(attack), class_="soft") for attack in attacks if attack.get("runs")]
    listed = table(["attack", "AUC (0.5 is guessing)", "found at 1% false alarms"], rows, "Attacks", (1, 2))
    return Section(
        "attacks",
        "Can it be attacked?",
        [
            warning,
            tag("p", words, class_="soft"),
            trained,
            tag("div", picture, tag("div", listed, class_="plain"), class_="charts wide"),
        ],
    )
