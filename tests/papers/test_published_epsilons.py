"""The published epsilons follow, or do not follow, from their settings, as docs/privacy-of-the-papers.md says."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import anchors  # noqa: E402

pytestmark = pytest.mark.paper


@pytest.mark.parametrize("row", anchors.AUGENSTEIN, ids=lambda row: f"{row.case} {row.published:g}")
def test_augenstein_follows_from_its_settings_by_the_legacy_conversion(row):
    assert anchors.numbers(row).legacy == pytest.approx(row.published, rel=0.005)


@pytest.mark.parametrize("row", anchors.THESIS_SIMULATED, ids=lambda row: row.case)
def test_the_simulated_runs_of_the_thesis_follow_from_their_settings(row):
    assert anchors.numbers(row).legacy == pytest.approx(row.published, rel=0.004)


@pytest.mark.parametrize("row", anchors.THESIS_SCALED, ids=lambda row: row.case)
def test_the_scaled_populations_of_the_thesis_claim_less_than_its_method_gives(row):
    assert row.published < 0.85 * anchors.numbers(row).legacy


@pytest.mark.parametrize("row", anchors.PP_FEDGAN, ids=lambda row: row.case)
def test_pp_fedgan_claims_less_than_its_settings_cost(row):
    assert row.published < 0.6 * anchors.numbers(row).pld


def test_reference_values():
    assert anchors.numbers(anchors.AUGENSTEIN[1]).rdp == pytest.approx(2.019, abs=1e-3)
    assert anchors.numbers(anchors.AUGENSTEIN[1]).pld == pytest.approx(1.03, abs=0.005)
    assert anchors.numbers(anchors.AUGENSTEIN[1]).strict == pytest.approx(17.4, abs=0.05)
    assert anchors.numbers(anchors.AUGENSTEIN[-1]).legacy == pytest.approx(9.213, abs=1e-3)
    assert anchors.numbers(anchors.AUGENSTEIN[-1]).rdp == pytest.approx(8.464, abs=1e-3)
    assert anchors.numbers(anchors.AUGENSTEIN[-1]).pld == pytest.approx(4.22, abs=0.005)
    pp_fedgan = [anchors.numbers(row).pld for row in anchors.PP_FEDGAN[:3]]
    assert pp_fedgan == pytest.approx([21.6, 8.0, 3.4], abs=0.06)


def test_rounds_that_dpd_fvae_allows():
    first = anchors.ALLOWANCES[0]
    assert [first.rounds(name) for name in ("rdp-legacy", "rdp", "pld")] == [30, 38, 48]
    at_one, faces = anchors.ALLOWANCES[1], anchors.ALLOWANCES[4]
    assert [at_one.rounds(name) for name in ("rdp-legacy", "rdp", "pld")] == [5, 11, 16]
    assert [faces.rounds(name) for name in ("rdp-legacy", "rdp", "pld")] == [746, 945, 1220]


def test_the_page_is_up_to_date():
    assert anchors.PAGE.read_text() == anchors.page()
