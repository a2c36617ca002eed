"""Write the tables of the READMEs from the results that experiments left: `make tables`. No number is typed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
from scipy.stats import t as student

ROOT = Path(__file__).resolve().parent.parent
NONE_YET = "*Not measured yet.*"


def load(folder: Path) -> list[dict]:
    """The results of one experiment, in the order that their files ask for."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda result: result["order"])


def table(results: list[dict], classifier: str = "gradient boosting") -> str:
    """The results as a Markdown table, between what real rows give and what guessing gives."""
    if not results:
        return NONE_YET
    if results[0].get("layout") == "ranking":
        return ranking(results)
    if results[0].get("layout") == "claims":
        return claims(results)
    if results[0].get("layout") == "local":
        return local(results)
    if results[0].get("layout") == "sites":
        return sites(results)
    if results[0].get("layout") == "plain":
        return plain(results)
    heads = [
        "rows to learn from",
        "protected",
        "accuracy",
        "AUC",
        "column shapes",
        "column pairs",
        "seconds a run",
    ]
    lines = [heads, ["---", "---", *["---:"] * 5], _real(results[0], classifier)]
    lines += [_row(result, classifier) for result in results]
    lines.append(_majority(results[0], classifier))
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return text + "\n\n" + _legend(results, classifier)


def plain(results: list[dict]) -> str:
    """Results that bring their own cells, by head; numbers have three digits behind the point."""
    heads = list(results[0]["cells"])
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for result in results:
        told = result["cells"].values()
        lines.append([f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in told])
    notes = " ".join(dict.fromkeys(result["note"] for result in results if result.get("note")))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + f"\n\n{notes}"


SYSTEMS = ("pooled", "sites", "one helps", "local", "alone", "real")


def sites(results: list[dict], classifier: str = "gradient boosting") -> str:
    """Mean AUC of each way to train over sites, a line for each data set and epsilon.

    Systems of one seed share test rows, so sites are compared with pooled data seed by seed: the mean difference and
    its 95% confidence interval (Student's t).
    """
    gap = "sites - pooled (95% interval)"
    lines = [["data", "epsilon", "seeds", *SYSTEMS, gap], ["---"] * 3 + ["---:"] * (len(SYSTEMS) + 1)]
    for result in results:
        for epsilon in sorted({run["epsilon"] for run in result["runs"]}):
            runs = [run for run in result["runs"] if run["epsilon"] == epsilon]
            scores = {
                system: np.array([run[system][classifier]["auc"] for run in runs if system in run])
                for system in SYSTEMS
            }
            means = [_mean(scores[system], len(runs)) for system in SYSTEMS]
            apart = scores["sites"] - scores["pooled"]
            settings = [result["data"], f"{epsilon:g}", str(len(runs))]
            lines.append(settings + means + [_interval(apart)])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _mean(values: np.ndarray, runs: int) -> str:
    """The mean, with the number of seeds where not all were measured."""
    if not len(values):
        return ""
    return f"{values.mean():.3f}" + ("" if len(values) == runs else f" ({len(values)})")


def _interval(values: np.ndarray) -> str:
    """The mean and where it lies, in points of a hundredth."""
    if len(values) < 2:
        return f"{100 * values.mean():+.1f} points"
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    low, high = 100 * (values.mean() - half), 100 * (values.mean() + half)
    return f"{100 * values.mean():+.1f} ({low:+.1f} to {high:+.1f}) points"


RANKED = {  # what a reader may want to rank by, and a short head
    "column shapes": "column shapes ↑",
    "column pairs": "column pairs ↑",
    "3-way marginals: average variation distance": "3-way marginals ↓",
    "6-way marginals: average variation distance": "6-way marginals ↓",
    "correlation matrix distance": "correlations ↓",
    "detection by gradient boosting: AUC": "detection ↓",
    "gradient boosting: accuracy": "accuracy ↑",
    "gradient boosting: auc": "AUC ↑",
    "few rows: AUC gained by adding synthetic rows": "helps few rows ↑",
    "rare class: AUC gained by adding synthetic rows": "helps a rare class ↑",
    "closest record: AUC": "closest record ↓",
    "density ratio: AUC": "density ratio ↓",
}


def ranking(results: list[dict]) -> str:
    """Tables from best to worst against the same real rows: a row for each, a column for each score."""
    lines = [["synthetic rows", "protected", *RANKED.values()], ["---", "---", *["---:"] * len(RANKED)]]
    for result in results:
        cells = [_number(_score(result, name)["value"]) for name in RANKED]
        lines.append([result["title"], protected(result["privacy"]), *cells])
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    data, real = results[0]["data"], _score(results[0], "gradient boosting: auc")["detail"]
    machines = sorted({f"{m['cores']} cores of {m['cpu']}" for m in (r["machine"] for r in results)})
    legend = (
        f"{data['real_rows']:,} real rows, as many synthetic ones, {data['test_rows']:,} test rows; one run of each. "
        "↑ higher is better, ↓ lower. Trained on the real rows themselves, gradient boosting reaches an AUC of "
        f"{real['train_on_real']:.3f}. Measured on {'; '.join(machines)}."
    )
    return text + "\n\n" + legend


FID = "FID in features of a LeNet"
BESIDE = {
    "cnn: accuracy": ("mlp: accuracy", "logistic regression: accuracy", FID),
    "mlp: accuracy": ("student network: accuracy",),
}


def claims(results: list[dict]) -> str:
    """One measure of each row (for images, of each classifier) beside what its paper claims, and notes below."""
    held = [score["name"] for result in results for score in result["scores"]]
    measures = [results[0]["measure"]]
    measures += [name for name in BESIDE.get(measures[0], ()) if name in held]
    told = list(dict.fromkeys(text for result in results for text in result["deviations"]))
    heads = ["rows to learn from", "protected", *measures, "the paper", "otherwise", "seconds a run"]
    real = [_train_on_real(results, name) for name in measures]
    lines = [
        heads,
        ["---", "---", *["---:"] * len(measures), "---", "---", "---:"],
        ["real rows", "nobody", *real, "", "", ""],
    ]
    for result in results:
        marks = ", ".join(str(told.index(text) + 1) for text in result["deviations"])
        seconds = f"{sum(result['seconds_training']) / len(result['seconds_training']):.0f}"
        scores = [_measured(result, name) if _has(result, name) else "" for name in measures]
        cells = [result["title"], protected(result["privacy"]), *scores, result["claim"]]
        lines.append([*cells, marks, seconds])
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    notes = "\n".join(f"{number}. {note}" for number, note in enumerate(told, 1))
    return f"{text}\n\n{_measured_how(results)}\n\n{notes}".rstrip()


def _has(result: dict, name: str) -> bool:
    return any(score["name"] == name for score in result["scores"])


def _train_on_real(results: list[dict], name: str) -> str:
    """What real rows teach, from the first result that has this score."""
    beside = _score(next(result for result in results if _has(result, name)), name)["detail"]
    return (
        _number(beside["train_on_real"], beside.get("train_on_real_spread"))
        if "train_on_real" in beside
        else ""
    )


LOCAL = {  # as DP-Fed-WAE scores, and a short head
    "neural network: accuracy": "NN ↑",
    "random forest: accuracy": "RF ↑",
    "2-way marginals: average variation distance": "2-way AVD ↓",
    "4-way marginals: average variation distance": "4-way AVD ↓",
    "6-way marginals: average variation distance": "6-way AVD ↓",
    "correlation matrix distance": "CMD ↓",
}


def local(results: list[dict]) -> str:
    """Systems of local privacy side by side: what classifiers learn, marginals, and what the paper says."""
    told = list(dict.fromkeys(text for result in results for text in result["deviations"]))
    heads = ["system", "clients", "protected", *LOCAL.values(), "the paper", "otherwise", "seconds a run"]
    lines = [heads, ["---", "---:", "---", *["---:"] * len(LOCAL), "---", "---", "---:"]]
    for result in results:
        marks = ", ".join(str(told.index(text) + 1) for text in result["deviations"])
        seconds = f"{sum(result['seconds_training']) / len(result['seconds_training']):.0f}"
        scores = [_measured(result, name) for name in LOCAL]
        clients = f"{result['clients']['count']:,}"
        cells = [result["title"], clients, protected(result["privacy"]), *scores, result["claim"]]
        lines.append([*cells, marks, seconds])
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    notes = "\n".join(f"{number}. {note}" for number, note in enumerate(told, 1))
    runs = " or ".join(map(str, sorted({result["runs"] for result in results})))
    machines = "; ".join(sorted({f"{r['machine']['cores']} cores of {r['machine']['cpu']}" for r in results}))
    data = results[0]["data"]
    tested = " or ".join(f"{rows:,}" for rows in sorted({result["data"]["test_rows"] for result in results}))
    sets = " or ".join(map(str, sorted({result.get("sets", 1) for result in results})))
    how = (
        f"{runs} trainings a row (± standard deviation where there are several), each the mean of {sets} synthetic "
        f"tables of {data['synthetic_rows']:,} rows with classifiers of their own; {tested} test rows; ↑ higher is "
        f"better, ↓ lower. Measured on {machines}."
    )
    return f"{text}\n\n{how}\n\n{notes}".rstrip()


def _measured_how(results: list[dict]) -> str:
    data = results[0]["data"]
    runs = " or ".join(map(str, sorted({result["runs"] for result in results})))
    sets = " or ".join(map(str, sorted({result.get("sets", 1) for result in results})))
    machines = "; ".join(sorted({f"{r['machine']['device']}, {r['machine']['cpu']}" for r in results}))
    simulated = any(result["privacy"]["private"] and result["privacy"]["simulation"] for result in results)
    seeded = " Seeded rows show the ε that the same run costs with the system's noise." if simulated else ""
    return (
        f"{data['train_rows']:,} training rows, {data['test_rows']:,} test rows; mean ± standard deviation over {runs} "
        f"trainings, each the mean of {sets} synthetic tables with a classifier each.{seeded} Measured on {machines}."
    )


def _score(result: dict, name: str) -> dict:
    return next(score for score in result["scores"] if score["name"] == name)


def _number(value: float | None, spread: float | None = None) -> str:
    if value is None:
        return "failed"
    return f"{value:.3f}" + ("" if spread is None else f" ± {spread:.3f}")


def _measured(result: dict, name: str) -> str:
    score = _score(result, name)
    return _number(score["value"], score["spread"])


def _real(result: dict, classifier: str) -> list[str]:
    details = [_score(result, f"{classifier}: {measure}")["detail"] for measure in ("accuracy", "auc")]
    cells = [_number(detail["train_on_real"], detail["train_on_real_spread"]) for detail in details]
    return ["real rows", "nobody", *cells, "", "", ""]


def _majority(result: dict, classifier: str) -> list[str]:
    cells = [
        _number(_score(result, f"{classifier}: {measure}")["detail"]["majority"])
        for measure in ("accuracy", "auc")
    ]
    return ["none: always the majority class", "", *cells, "", "", ""]


def _row(result: dict, classifier: str) -> list[str]:
    names = (f"{classifier}: accuracy", f"{classifier}: auc", "column shapes", "column pairs")
    seconds = result["seconds_training"]
    return [
        result["title"],
        protected(result["privacy"]),
        *(_measured(result, name) for name in names),
        f"{sum(seconds) / len(seconds):.0f}",
    ]


TRUSTED = {"local": ", nobody trusted", "distributed": ", noise shared out inside masked sums"}


def protected(privacy: dict) -> str:
    """Who is protected and how much, in a cell."""
    if not privacy["private"]:
        return "nobody"
    where = TRUSTED.get(privacy.get("trust", ""), "")
    return f"each {privacy['unit']}: ε = {privacy['epsilon']:,.2f}, δ = {privacy['delta']:g}{where}"


def _legend(results: list[dict], classifier: str) -> str:
    runs = sorted({result["runs"] for result in results})
    data = results[0]["data"]
    machines = sorted(
        {f"{m['device']}, {m['cores']} cores of {m['cpu']}" for m in (r["machine"] for r in results)}
    )
    failed = [
        f"{result['title']}: {score['name']} failed ({score['failed']})"
        for result in results
        for score in result["scores"]
        if score["failed"]
    ]
    simulated = any(result["privacy"]["private"] and result["privacy"]["simulation"] for result in results)
    sentences = [
        f"{classifier.capitalize()} trained on as many rows as there are real training rows ({data['train_rows']:,}), "
        f"tested on {data['test_rows']:,} real rows; mean ± standard deviation over {' or '.join(map(str, runs))} runs "
        "(real rows: over seeds of the classifier).",
        "Seeded rows can be repeated; their ε is what the same run costs with noise from the operating system."
        if simulated
        else "",
        f"Measured on: {'; '.join(machines)}.",
        *(
            f"{result['title']} taught no more than the majority class."
            for result in results
            if useless(result, classifier)
        ),
        *failed,
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def useless(result: dict, classifier: str) -> bool:
    """True if the classifier learned nothing that always naming the majority class would not give."""
    score = _score(result, f"{classifier}: accuracy")
    return score["value"] is not None and score["value"] <= score["detail"]["majority"] + 0.001


def fill(text: str, name: str, content: str) -> str:
    """The text with what stands between the markers of `name` replaced."""
    start, end = f"<!-- results:{name} -->", f"<!-- end:{name} -->"
    pattern = re.compile(re.escape(start) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no {start} ... {end} to fill in")
    return pattern.sub(lambda _: f"{start}\n{content}\n{end}", text)


def sources() -> list[tuple[str, Path]]:
    """The name of each table and the folder of its results: `x/results` is x, `x/results/times` is x_times.

    A page has marks for the tables that are written here; what else lies in its results it shows itself.
    """
    held = []
    for page in sorted((ROOT / "experiments").glob("*/README.md")):
        results = page.parent / "results"
        folders = [results, *sorted(path for path in results.glob("*") if path.is_dir())]
        named = [("_".join((page.parent.name, *path.relative_to(results).parts)), path) for path in folders]
        held += [(name, path) for name, path in named if f"<!-- results:{name} -->" in page.read_text()]
    return held


def main() -> int:
    """Fill every marker; tell which files changed."""
    for name, found in sources():
        content = table(load(found))
        topic = found.relative_to(ROOT / "experiments").parts[0]
        for page in (ROOT / "experiments" / topic / "README.md", ROOT / "README.md"):
            before = page.read_text(encoding="utf-8")
            if page.parent == ROOT and f"<!-- results:{name} -->" not in before:
                continue
            after = fill(before, name, content)
            page.write_text(after, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: {'as it was' if after == before else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
