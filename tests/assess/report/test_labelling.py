import json

import numpy as np
import pytest

from fedsynth.assess.report.inspection import inspection_page
from fedsynth.assess.report.labelling import labelling_page
from fedsynth.data.schema import Column, Schema
from fedsynth.inspection.findings import Findings, SelectionModel
from fedsynth.inspection.sample import Sample
from fedsynth.inspection.selection import Share
from fedsynth.inspection.unlabelled import without_label
from fedsynth.inspection.verdict import Finding
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import statement

ASKED = Schema(
    kind="image", height=8, width=8, channels=1, label="kind",
    columns=(Column("kind", "categorical", categories=("a", 'b"<', "c,d")),),
)  # fmt: skip


def model(level, share):
    images = np.full((12, 8, 8), level, dtype=np.uint8)
    return SelectionModel("all rows", None, Sample(without_label(ASKED), (images, None)), Share(share, 0.01))


def findings(contrast=(), null=(), shares=(0.5, 0.5)):
    models = {"one": model(200, shares[0]), "other": model(20, shares[1])}
    told = statement(Ledger(None), delta=1e-5)
    return Findings(without_label(ASKED), ASKED, {}, told, models, contrast, null)


GAP = Finding("mean intensity", 0.7, 0.01, 0.01, 0.09)


def test_the_page_says_what_differs():
    page = inspection_page(findings((GAP,), ({"mean intensity": 0.02},)))
    assert "Do one and other differ?" in page and ">Yes<" in page
    assert "mean intensity (0.7, threshold 0.09)" in page and "+0.706" in page


def test_the_page_says_that_nobody_was_there_and_draws_no_conclusion():
    page = inspection_page(findings((GAP,), ({"mean intensity": 0.02},), shares=(0.5, 0.01)))
    assert "Noise only" in page and "nobody met the selection other" in page and "Cannot be told" in page


def test_a_small_difference_is_none():
    small = Finding("mean intensity", 0.05, 0.01, 0.01, 0.09)
    assert ">No<" in inspection_page(findings((small,), ({"mean intensity": 0.02},)))


def test_where_nothing_was_simulated_no_number_is_more_than_noise():
    page = inspection_page(findings((Finding("mean intensity", 0.7, 0.0, 0.0, None),)))
    assert "Nothing was simulated to compare these numbers with" in page and "trained again" not in page
    assert "<td>cannot be told</td>" in page and ">yes<" not in page


def test_every_example_can_be_given_every_label_and_nothing_runs():
    page = labelling_page(findings(), most=5)
    assert page.count("<select") == 5 and page.count('value="c,d"') == 5
    assert "b&quot;&lt;" in page and 'b"<' not in page


def test_labels_given_in_a_browser_come_out_as_csv_and_json(tmp_path):
    sync = pytest.importorskip("playwright.sync_api", reason="pages are tested in a browser")
    path = tmp_path / "labels.html"
    path.write_text(labelling_page(findings(), most=4))
    with sync.sync_playwright() as started:
        try:
            browser = started.chromium.launch(
                executable_path=_chromium(), args=["--no-sandbox"], timeout=600_000
            )
        except sync.Error as error:
            pytest.skip(f"no browser: {error}")
        tab = browser.new_page()
        tab.set_default_timeout(600_000)
        problems = []
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.goto(path.as_uri())
        tab.select_option("select[data-row='1']", "c,d")
        tab.select_option("select[data-row='3']", "a")
        assert tab.inner_text("#labelled") == "2 of 4 labelled"
        saved = {}
        for kind in ("csv", "json"):
            with tab.expect_download() as download:
                tab.click(f"button[data-save='{kind}']")
            saved[kind] = download.value.path().read_text()
        browser.close()
    assert saved["csv"] == 'row,label\n1,"c,d"\n3,a\n'
    assert json.loads(saved["json"])["labels"] == [{"row": 1, "label": "c,d"}, {"row": 3, "label": "a"}]
    assert problems == []


def _chromium():
    import shutil

    return shutil.which("chromium") or shutil.which("chromium-browser")
