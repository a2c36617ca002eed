"""From what was measured to the tables of the README: `python experiments/language/summary.py`, then `make tables`."""

from pathlib import Path

import numpy as np

from fedsynth.research.plain_rows import measured, spread, write_rows

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "results" / "measured"
NAMES = {"stackexchange": "Stack Exchange by user", "shakespeare": "Shakespeare by role"}


def protected(line):
    """Who is protected, and how much of it the vocabulary cost."""
    if line["epsilon"] is None:
        return "nobody"
    paid = f", of it {line['paid']:g} for the words" if line.get("paid") else ""
    return f"each user: ε = {line['epsilon']:g}, δ = {line['delta']:g}{paid}"


def models():
    """Perplexity and next word, a line for each row."""
    rows = {}
    for line in measured(MEASURED, "stackexchange*.json", "shakespeare*.json"):
        rows.setdefault(line["row"], []).append(line)
    found = []
    for lines in rows.values():
        first = lines[0]
        found.append(
            {
                "texts": NAMES[first["data"]],
                "users": f"{first['clients']:,}",
                "protected": protected(first),
                "words": f"{first['words']:,}",
                "perplexity ↓": spread([line["perplexity"] for line in lines], 1),
                "unigrams": spread([first["unigrams"][0]], 1),
                "next word ↑": spread([100 * line["accuracy"] for line in lines], 1) + "%",
                "most frequent word": spread([100 * first["unigrams"][1]], 1) + "%",
                "noise over clip": f"{first['noise']:.2f}",
                "rounds × rate": f"{first['settings']['rounds']} × {first['settings']['rate']}",
                "parameters": f"{first['parameters']:,}",
                "seconds": f"{np.mean([line['seconds'] for line in lines]):.0f} ({first['device']})",
            }
        )
    write_rows(HERE / "results", found, "Users who took no part are tested on, at most 200 pieces of each.")


def canaries():
    """Exposure by how often a user wrote the canary."""
    lines = sorted(measured(MEASURED, "canaries*.json"), key=lambda line: -(line["epsilon"] or np.inf))
    rows = {}
    for line in lines:
        rows.setdefault((line["epsilon"], str(line["settings"])), []).append(line)
    found = []
    for same in rows.values():
        first = same[0]
        used = first["settings"]
        size = used.get("size", "small")
        cells = {"protected": protected(first), "model": f"{size}, {used['rounds']} rounds"}
        for times in first["by_rank"]:
            values = [value for line in same for value in line["by_rank"][times]]
            head = "nobody wrote it" if times == "0" else f"written {times} ×"
            cells[head] = f"{np.mean(values):.1f} (most {max(values):.1f})"
        cells["full memorization"] = f"{first['highest']:.1f}"
        worst = max(line["perplexity"] for line in same)
        cells["perplexity"] = spread([line["perplexity"] for line in same], 1) if worst < 1e6 else "broken"
        cells["unigrams"] = spread([first["unigrams"]], 1)
        found.append(cells)
    write_rows(
        HERE / "results" / "canaries",
        found,
        "Mean exposure of ten canaries each, by rank among all fillings; 300 users.",
    )


def tried():
    """Settings that were tried on hold-out users, the best first."""
    lines = sorted(measured(MEASURED, "tried*.json"), key=lambda line: line["perplexity"])
    heads = ("network", "rate", "rounds", "noise over clip", "clip", "local step", "server")
    found = []
    for line in lines:
        cells = {head: f"{line[head]:g}" if isinstance(line[head], float) else line[head] for head in heads}
        scores = {
            "perplexity ↓": f"{line['perplexity']:.1f}",
            "next word ↑": f"{100 * line['next word']:.1f}%",
        }
        found.append({**cells, "parameters": f"{line['parameters']:,}", **scores})
    write_rows(HERE / "results" / "tried", found, "Four batches of 16 sentences a client and round.")


if __name__ == "__main__":
    models()
    tried()
    canaries()
