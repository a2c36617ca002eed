import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def table_page():
    path = ROOT / "benchmarks" / "table_page.py"
    specification = importlib.util.spec_from_file_location("table_page", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def cells(*runs: tuple[str, str, float, float]) -> dict:
    grouped: dict = {}
    for table, method, epsilon, auc in runs:
        run = {"seed": 0, "auc": auc, "accuracy": auc, "pairs": 1 - auc, "processor_s": 2.0, "rows": 10}
        run |= {"columns": 3, "commit": "abc1234"}
        grouped.setdefault((table, method, epsilon), []).append(run)
    return grouped


def test_ranks_count_the_cells_that_all_ranked_tools_have(table_page):
    measured = cells(
        ("fair", "fedsynth", 1.0, 0.7),
        ("fair", "mbi mst", 1.0, 0.8),
        ("fair", "dpmm aim", 1.0, 0.9),
        ("fair", "fedsynth", 8.0, 0.9),
        ("fair", "mbi mst", 8.0, 0.8),
    )
    text = " ".join(table_page.page(measured, {}))
    assert "The 2 tools below, in the cells that all of them have (2: fair at 1, 8)." in text
    assert "The 3 tools below, in the cells that all of them have (1: fair at 1)." in text
    assert "| **fedsynth `marginals`** | 9 | 3 | 3 | 3 |" in text.split("The 3 tools")[0]
    assert "| **fedsynth `marginals`** | 9 | 3 | 3 | 3 |" in text.split("The 3 tools")[1]


def test_losses_name_the_better_tool(table_page):
    text = "\n".join(
        table_page.page(cells(("heart", "fedsynth", 1.0, 0.7), ("heart", "mbi mst", 1.0, 0.8)), {})
    )
    assert "commit abc1234 (the recipe's code has changed since)" in text
    assert "In 0 of 1 comparisons" in text
    assert "- heart, epsilon 1: MST (mbi 2.0) has AUC 0.800 against 0.700" in text
    assert "| MST (mbi 2.0) | 1 | 1 | 1 | 1 |" in text
    assert "| heart | MST (mbi) / MST (mbi) / MST (mbi) (2) |" in text


def test_a_run_over_the_limit_is_named_and_ranks_nowhere(table_page):
    measured = cells(("heart", "fedsynth", 1.0, 0.7), ("heart", "mbi mst", 1.0, 0.8))
    text = "\n".join(table_page.page(measured, {("heart", "mbi aim", 1.0): 1200.0}))
    assert "Not measured anywhere yet: AIM (mbi 2.0), MST (dpmm 0.1.9)" in text
    assert "| AIM (mbi 2.0) | over the limit |" in text
    assert "| AIM (mbi 2.0) | over 1200 |" in text
    assert "AIM (mbi 2.0) |" not in text.split("## Who is best")[0]


@pytest.mark.parametrize(
    ("auc", "words"), [(1.0, "In 1 of 2 runs the right pair"), (0.52, "In 2 of 2 runs every pair")]
)
def test_words_on_parity_follow_the_numbers(table_page, auc, words):
    measured = cells(("parity of two", "fedsynth", 1.0, 0.48), ("parity of two", "fedsynth", 2.0, auc))
    text = " ".join(table_page.page(measured, {}))
    assert words in text
    assert ("parity of two at epsilon 2 (1 of 1 runs)" in text) == (auc > 0.9)
    assert f"AUC 0.480 to {min(auc, 0.48) if auc > 0.9 else auc:.3f}" in text
