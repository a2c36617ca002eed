from small_run import make_run, scored

from fedsynth.assess.scores.score import Score
from fedsynth.assess.suite import Evaluation
from fedsynth.synthesis.synthesizer import Synthesizer


def test_synthesizer_statement_and_evaluation_show_themselves_in_a_notebook(tmp_path):
    made = Synthesizer.load(make_run(tmp_path))
    shown = made._repr_html_()
    assert "dpd_fvae" in shown and "differentially private with epsilon" in shown
    assert "epsilon" in made.privacy._repr_html_() and "<script" not in shown
    assert "column pairs: 0.880" in scored()._repr_html_()


def test_nothing_in_a_name_can_run():
    assert "<script>" not in Evaluation((Score("<script>", 0.5),))._repr_html_()
