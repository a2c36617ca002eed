"""Write the table of docs/mutation.md from `mutants.json`, `equivalent_mutants.toml` and `mutants.toml`.

`--open` prints the survivors that nobody has explained yet.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from typing import Any

from mutants import EQUIVALENT, RESULTS, ROOT, fingerprint, unexplained

PAGE = ROOT / "docs" / "mutation.md"
BEGIN, END = "<!-- table: make mutants -->", "<!-- end of the table -->"
HEAD = "| file | mutants | killed | out of time | equivalent | survived | not run | killed of those not equivalent |\n"
Equivalents = dict[str, dict[str, str]]


def counts(result: dict[str, Any], reasons: dict[str, str]) -> list[int]:
    """Mutants that were drawn, killed, out of time, equivalent, survived, not run."""
    left = len(unexplained(result, reasons))
    equal = len(result["survived"]) - left
    return [result["drawn"], result["killed"], result["slow"], equal, left, result["open"]]


def row(name: str, numbers: list[int]) -> str:
    """One line of the table; what was not run counts as not killed."""
    mutants, killed, slow, equal, *_ = numbers
    share = (killed + slow) / max(1, mutants - equal)
    return f"| {name} | " + " | ".join(map(str, numbers)) + f" | {share:.1%} |\n"


def remarks(file: str, result: dict[str, Any]) -> str:
    """Whether the mutants are a sample, and whether the source has changed since they ran."""
    sample = (
        f" ({result['drawn']} of {result['mutants']} drawn at random)"
        if result["drawn"] < result["mutants"]
        else ""
    )
    return sample + ("" if result["source"] == fingerprint(file) else " (changed since)")


def table(results: dict[str, Any], equivalents: Equivalents, wanted: list[str]) -> str:
    """The summary as Markdown."""
    numbers = {file: counts(result, equivalents.get(file, {})) for file, result in results.items()}
    text = HEAD + "|---|" + "---:|" * 7 + "\n"
    for file, line in numbers.items():
        text += row(f"`{file}`" + remarks(file, results[file]), line)
    text += row("together", [sum(column) for column in zip(*numbers.values(), strict=True)])
    missing = [file for file in wanted if file not in results]
    if missing:
        text += "\nNot yet run: " + ", ".join(f"`{file}`" for file in missing) + ".\n"
    return text


def main() -> None:
    """Write the table, or print what is left to look at."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", action="store_true")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text())
    equivalents = tomllib.loads(EQUIVALENT.read_text())
    if given.open:
        for file, result in results.items():
            for mutant in unexplained(result, equivalents.get(file, {})):
                print(f"{file} {mutant['function']}\n  - {mutant['before']}\n  + {mutant['after']}")
        return
    wanted = list(tomllib.loads((ROOT / "tools" / "mutants.toml").read_text())["tests"])
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    summary = table(results, equivalents, wanted)
    PAGE.write_text(f"{before}{BEGIN}\n{summary}{END}{after}")


if __name__ == "__main__":
    main()
