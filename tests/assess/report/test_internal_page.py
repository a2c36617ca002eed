import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from small_run import HOSTILE, make_run, scored

from fedsynth.assess.report.attack_chapter import attack_chapter
from fedsynth.assess.report.comparison_chapters import failures, useful_chapter
from fedsynth.assess.report.internal import internal_page
from fedsynth.assess.report.markup import join
from fedsynth.assess.report.record import RunRecord
from fedsynth.assess.scores.score import failure
from fedsynth.assess.suite import Evaluation
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy.statement import Statement


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("internal"))


@pytest.fixture(scope="module")
def text(run):
    return internal_page(RunRecord.read(run, scored()))


def test_the_page_says_that_it_is_internal(text):
    assert "internal: made from real rows" in text


def test_all_chapters_are_there(text):
    names = re.findall(r'<section id="(\w+)"', text)
    assert names == ["private", "faithful", "useful", "attacks", "training", "data", "made"]


def test_failed_scores_are_shown_with_their_reason(text):
    assert text.count("the synthetic rows have one class") == 1
    assert "column shapes: bmi" in text and "all are missing" in text


def test_many_failures_for_one_reason_are_counted_and_usefulness_points_to_them():
    failed = [failure(f"mlp: score {number}", "too few rows") for number in range(11)]
    assert "mlp: score 7; and 3 more" in failures(failed)
    chapter = join(useful_chapter(failed).body)
    assert "says why" in chapter and "--test FILE" not in chapter


def test_every_line_of_the_ledger_is_in_the_timeline(run, text):
    lines = [line for line in RunRecord.read(run, None).lines if line.files is None]
    assert len(lines) == 4
    assert all(f"line {line.index}: {line.what}" in text for line in lines)


def test_a_hostile_name_is_text_and_nothing_else(text):
    assert HOSTILE not in text
    assert "&lt;script&gt;alert" in text


def test_the_page_loads_nothing_and_is_small(text):
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert "url(" not in text and "@import" not in text
    assert len(text.encode()) < 1_000_000


def test_without_scores_the_page_still_tells_of_privacy(run):
    text = internal_page(RunRecord.read(run, None))
    assert "Not measured" in text and "What was released" in text


def test_an_evaluation_without_details_is_enough(run):
    assert "column pairs" in internal_page(RunRecord.read(run, Evaluation(scored().scores)))


def test_a_changed_ledger_gives_no_page(tmp_path):
    run = make_run(tmp_path)
    ledger = run / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"count":1', '"count":0', 1))
    with pytest.raises(NotPrivate, match="somebody changed it"):
        RunRecord.read(run, None)


def test_an_unfinished_run_is_refused(tmp_path):
    run = make_run(tmp_path)
    (run / "generator.safetensors").unlink()
    with pytest.raises(BadInput, match="not finished"):
        RunRecord.read(run, None)


def test_images_are_shown_beside_real_ones_and_above_their_nearest(run):
    schema = Schema.from_dict({"version": 1, "kind": "image", "height": 8, "width": 8, "channels": 1})
    images = np.zeros((20, 8, 8), dtype=np.uint8), None
    near = {"images": {"nearest": [{"synthetic": 3, "real": 4, "distance": 0.1}]}}
    record = RunRecord.read(run, Evaluation(scored().scores, near))
    released = replace(record.released, schema=schema, synthetic=images)
    text = internal_page(replace(record, released=released, real=images))
    assert text.count("data:image/png;base64,") == 4  # real, synthetic, nearest, sample


def test_texts_are_quoted_and_cut(run):
    details = {"texts": {"synthetic": ["a <b> word", "x" * 1000]}}
    text = internal_page(RunRecord.read(run, Evaluation(scored().scores, details)))
    assert "a &lt;b&gt; word</blockquote>" in text and "x" * 401 not in text


def test_the_page_of_a_very_wide_table_stays_below_5_megabytes(run):
    bins = [f"{i} to {i + 1}" for i in range(50)]
    column = {**scored().details["columns"][0], "bins": bins, "edges": list(range(51))}
    shares = {"real": [0.02] * 50, "synthetic": [0.01] * 50}
    columns = [{**column, **shares, "name": f"column {i}"} for i in range(400)]
    square = np.eye(400).tolist()
    wide = {"names": [each["name"] for each in columns], "real": square, "synthetic": square}
    details = {"columns": columns, "associations": wide}
    text = internal_page(RunRecord.read(run, Evaluation(scored().scores, details)))
    assert len(text.encode()) < 5_000_000
    assert "280 more columns are left out" in text


def test_shadow_generators_are_told_with_their_number_and_width(run):
    curve = {"false_positive_rate": [0.0, 1.0], "true_positive_rate": [0.0, 1.0], "auc": 0.5}
    attack = {"name": "membership inference", "runs": 60, "size": 1000, **curve}
    statement = Statement.load(run / "privacy.json")
    for narrowed, words in (
        (None, "60 shadow generators of 1,000 rows were trained, with the run's own model"),
        ({"run": [128], "shadows": [16]}, "their layers have 16 neurons, those of the run 128"),
    ):
        section = attack_chapter({"attacks": [{**attack, "narrowed": narrowed}]}, statement)
        assert words in unescape(join(section.body))
