"""The tables of docs/privacy.md are those of the code. `python tests/privacy/test_privacy_page.py` writes them."""

import re
from pathlib import Path

import pytest

from fedsynth.privacy.account import PAIRS
from fedsynth.privacy.wording import belief

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"


def pairs_table():
    lines = ["| sampling | adjacency | sensitivity | accountants | why |", "|---|---|---|---|---|"]
    for (sampling, adjacency), pair in PAIRS.items():
        used = (
            " and ".join(name for name, yes in (("PLD", pair.pld), ("RDP", pair.rdp)) if yes) or "**refused**"
        )
        moved = {0: "", 1: "S", 2: "2S"}[pair.sensitivity]
        lines.append(f"| {sampling} | {adjacency} | {moved} | {used} | {pair.reason} |")
    return "\n".join(lines)


def belief_table():
    values = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0)
    head = "| epsilon | " + " | ".join(f"{value:g}" for value in values) + " |"
    return "\n".join(
        [head, "|---" * (len(values) + 1) + "|", "| certainty | " + " | ".join(map(belief, values)) + " |"]
    )


def filled(text):
    for name, made in (("pairs", pairs_table()), ("belief", belief_table())):
        marks = rf"(<!-- {name}:start -->\n).*?(<!-- {name}:end -->)"
        text = re.sub(
            marks, lambda found, made=made: found[1] + made + "\n" + found[2], text, flags=re.DOTALL
        )
    return text


@pytest.mark.slow  # minutes of accounting; make soak
def test_the_tables_are_up_to_date():
    assert PAGE.read_text() == filled(PAGE.read_text())
    assert "| fixed | add-remove |  | **refused** |" in PAGE.read_text()


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
