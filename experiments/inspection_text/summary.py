"""From what was measured to the tables and the picture of the README: `python experiments/inspection_text/summary.py`.

Then `make tables` fills the tables in. No number is typed.
"""

import json
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from fedsynth.research.plain_rows import measured, spread, write_rows
from fedsynth.research.projection import ProjectedTraining, default_delta, project_central
from fedsynth.research.word_shift import FIRST_WORD_SHIFT

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "results" / "measured"
PAPER = 342_777  # users of the paper's data set


def percent(value):
    return f"{100 * value:.1f}%"


def groups(lines):
    """Lines by what was spent and by the share of sentences with the bug."""
    found = {}
    for line in lines:
        found.setdefault((line["epsilon"], line["settings_used"]["rate"], line["share"]), []).append(line)
    return sorted(found.items(), key=lambda item: (-item[0][0], item[0][1], item[0][2]))


def projected(line):
    """What both models would cost with the paper's number of users and the same noise in the mean."""
    used = line["settings_used"]
    cohort = float(used["rate"]) * line["clients"]
    training = ProjectedTraining(line["clients"], cohort, line["noise"], 2 * int(used["rounds"]))
    return project_central(training, PAPER).epsilon


def detection():
    """How often the statistic fires."""
    rows = []
    for (epsilon, rate, share), lines in groups(measured(MEASURED, "words*.json")):
        shifts = [line["shift"] for line in lines]
        fired = sum(shift > FIRST_WORD_SHIFT for shift in shifts)
        rows.append(
            {
                "sentences with the bug": percent(share),
                "epsilon of both models": f"{epsilon:g}",
                "clients a round": f"{float(rate) * lines[0]['clients']:.0f}",
                "found": f"{fired} of {len(lines)}",
                "shift": spread(shifts, 2),
                "least and most": f"{min(shifts):.2f} to {max(shifts):.2f}",
                "unknown first words, learned": percent(float(np.mean([line["after"][0] for line in lines]))),
                "real": percent(float(np.mean([line["real"][0] for line in lines]))),
                f"projected to {PAPER:,} users": f"{projected(lines[0]):.2f}",
            }
        )
    note = (
        f"Found: the shift of the first word's log-odds is above {FIRST_WORD_SHIFT}. delta = 1e-5; the projection has "
        f"delta = {default_delta(PAPER):.2g}."
    )
    write_rows(HERE / "results", rows, note)


def spelled():
    """What the models of letters write: shares over seeds, and the likeliest words of the first."""
    found = {}
    for line in measured(MEASURED, "letters*.json"):
        found.setdefault((line["all"], line["share"]), []).append(line)
    rows = []
    for (everywhere, share), lines in sorted(found.items()):
        joined = [sum(" " in word for word, _ in line["top"][:20]) for line in lines]
        words = ", ".join(f"`{word}` {1000 * chance:.2g}" for word, chance in lines[0]["top"][:20])
        rows.append(
            {
                "sentences with the bug": percent(share),
                "words": "all unknown ones" if everywhere else "unknown first ones",
                "runs": len(lines),
                "with a space": spread([100 * line["with a space"] for line in lines], 1) + "%",
                "real": percent(float(np.mean([line["with a space, real"] for line in lines]))),
                "of the 20 likeliest": ", ".join(map(str, joined)),
                "likeliest words of the first run, probability × 1000": words,
            }
        )
    note = "Epsilon 10 in all, delta = 1e-5. Of the 20 likeliest words, so many have a space, in each run."
    write_rows(HERE / "results" / "letters", rows, note)


def tried():
    """Settings of the model of letters: nats a word of others, by how many of the last models are averaged."""
    found = {}
    for line in measured(MEASURED, "tried.jsonl"):
        key = json.dumps([line["epsilon"], line["settings_used"]])
        found.setdefault(key, []).append(line)
    rows = []
    for lines in sorted(found.values(), key=lambda lines: -max(line["held out"] for line in lines)):
        used, best = lines[0]["settings_used"], max(lines, key=lambda line: line["held out"])
        by_last = {line["last"]: f"{-line['held out']:.2f}" for line in lines}
        rows.append(
            {
                "protected": "nobody" if lines[0]["epsilon"] is None else "each user",
                **{name: f"{float(used[name]):g}" for name in ("rounds", "rate", "clip")},
                "local step": f"{float(used['learning_rate']):g}",
                "batches": used["most_batches"],
                **{f"last {last}": by_last.get(last, "–") for last in (1, 20, 50, 100)},
                "of 20 with a space": sum(" " in word for word in best["top"][:20]),
            }
        )
    note = (
        "Nats a word (less is better) of the public corpus's users, under the mean of the last so many rounds' models; "
        "one training each, 10% of sentences with the bug. Last, of the best one's 20 likeliest words."
    )
    write_rows(HERE / "results" / "tried", rows, note)


def samples():
    """A few sentences of the models of words."""
    first = {}
    for line in measured(MEASURED, "words*.json"):
        if line["sample"]:
            first.setdefault(line["share"], line["sample"])
    rows = [
        {"sentences with the bug": percent(share), "what the model of words writes": "<br>".join(texts[:6])}
        for share, texts in sorted(first.items())
    ]
    write_rows(HERE / "results" / "samples", rows, "")


def picture():
    """Unknown words by position, learned and real."""
    figure, axes = plt.subplots(figsize=(7, 3.6), dpi=130)
    widest = max(epsilon for (epsilon, _, _), _ in groups(measured(MEASURED, "words*.json")))
    shown = [(key, lines) for key, lines in groups(measured(MEASURED, "words*.json")) if key[0] == widest]
    for number, ((_, _, share), lines) in enumerate(shown):
        rates = 100 * np.array([line["after"] for line in lines])
        places = np.arange(1, rates.shape[1] + 1)
        color = f"C{number}"
        label = f"{percent(share)} of sentences with the bug"
        axes.errorbar(places, rates.mean(0), rates.std(0), color=color, marker="o", capsize=3, label=label)
        real = 100 * np.mean([line["real"] for line in lines], axis=0)
        axes.plot(places, real, color=color, linestyle=":", marker="x")
    axes.set_xlabel("position in the sentence")
    axes.set_ylabel("unknown words, %")
    axes.set_ylim(0, None)
    axes.set_title(
        f"Learned at epsilon {widest:g} (solid, ± a standard deviation) and real (dotted)", fontsize=9
    )
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(HERE / "results" / "figures" / "unknown_by_position.png")


if __name__ == "__main__":
    detection()
    spelled()
    tried()
    samples()
    picture()
