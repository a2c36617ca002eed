import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pytest
from small_run import HOSTILE, scored

from fedsynth.assess.report.axis import LETTER, Scale, ticks
from fedsynth.assess.report.curve import Series, curve, roc
from fedsynth.assess.report.histogram import spread
from fedsynth.assess.report.markup import join, tag
from fedsynth.assess.report.matrix import matrix, worst_columns
from fedsynth.assess.report.picture import tiles
from fedsynth.assess.report.scale_chart import Mark, TimelineRow, epsilon_ruler, meter, timeline
from fedsynth.assess.report.scatter import Seat, seats
from fedsynth.errors import BadInput


def marks(drawn, class_):
    return [
        each for each in ElementTree.fromstring(drawn).iter() if class_ in (each.get("class") or "").split()
    ]


def test_text_and_attributes_are_escaped():
    assert HOSTILE not in tag("p", HOSTILE, title=HOSTILE)
    assert join(["<", tag("b", "&")]) == "&lt;<b>&amp;</b>"


def test_a_scale_of_one_number_does_not_divide_by_zero():
    assert Scale(3, 3, 0, 10)(3) == 5.0
    assert ticks(3, 3) == [3]


def test_a_histogram_has_a_bar_for_each_bin_and_an_outline_of_the_real_shares():
    drawn = spread(scored().details["columns"][0])
    groups = marks(drawn, "synthetic")
    assert len(list(groups[0])) == 2
    assert len(marks(drawn, "real-line")) == 1
    assert "0 to 50: real 50%, synthetic 70%" in drawn


def test_categories_have_a_bar_and_a_stroke_each_and_their_names_cannot_run():
    drawn = spread(scored().details["columns"][1])
    assert (len(marks(drawn, "synthetic")), len(marks(drawn, "real-line"))) == (2, 2)
    assert "<b>F" not in drawn


def test_of_many_categories_the_largest_are_drawn():
    bins = [f"c{i}" for i in range(30)]
    column = {
        "name": "x",
        "type": "categorical",
        "bins": bins,
        "edges": None,
        "synthetic": [1 / 30] * 30,
        "real": None,
    }
    drawn = spread(column)
    assert len(marks(drawn, "synthetic")) == 10
    assert "and 20 more" in drawn


def test_a_column_without_values_can_be_drawn():
    column = {
        "name": "x",
        "type": "integer",
        "bins": ["0", "1"],
        "edges": [0, 1, 2],
        "synthetic": [0, 0],
        "real": [0, 0],
    }
    ElementTree.fromstring(spread(column))


def test_a_negative_relation_is_hollow_and_an_undefined_one_is_neither():
    drawn = matrix(["a", "b", "c"], [[1, -0.5, None], [-0.5, 1, 0.3], [None, 0.3, 1]], "real")
    assert [len(marks(drawn, kind)) for kind in ("against", "with", "undefined", "same")] == [2, 2, 2, 3]


def test_a_matrix_keeps_the_columns_that_differ_most():
    size = 40
    real = np.zeros((size, size)).tolist()
    other = np.zeros((size, size)).tolist()
    other[39][38] = other[38][39] = 1.0
    kept = worst_columns(real, other)
    assert len(kept) == 32 and {38, 39} <= set(kept)


def test_a_curve_has_a_point_for_each_round_and_thins_long_runs():
    assert len(marks(curve("loss", [(i, 5.0 - i) for i in range(1, 6)]), "point")) == 5
    assert len(marks(curve("loss", [(i, 1.0) for i in range(5000)]), "point")) == 240


def test_a_curve_leaves_out_what_is_no_number():
    assert len(marks(curve("loss", [(1, 1.0), (2, float("nan")), (3, 2.0)]), "point")) == 2


def test_every_attack_has_a_curve_of_its_own_form():
    drawn = roc([Series(name, [(0, 0), (1, 1)]) for name in "ab"], Series("limit", [(0, 0.1), (1, 1)]))
    assert len(marks(drawn, "dash-0")) == len(marks(drawn, "dash-1")) == len(marks(drawn, "limit")) == 1


def test_claim_audit_and_attacks_are_on_one_scale():
    drawn = epsilon_ruler(
        [Mark("claim", 8, "claim", ""), Mark("audit", 2, "audit", ""), Mark("attack", 1, "attack", "")]
    )
    bar = marks(drawn, "claim")[0]
    end = float(bar.get("x")) + float(bar.get("width"))
    assert float(marks(drawn, "attack")[0].get("cx")) < end / 2


def test_the_timeline_has_a_stroke_for_each_line_of_the_ledger():
    drawn = timeline([TimelineRow("sum", range(60), [str(i) for i in range(60)])], 60)
    assert len(list(marks(drawn, "strokes")[0])) == 60


def test_the_better_end_of_a_meter_is_at_the_right():
    widths = [float(marks(meter(0.9, 0, 1, goal, ""), "fill")[0].get("width")) for goal in ("max", "min")]
    assert widths[0] > widths[1]


def test_runs_without_a_promise_sit_right_of_all_others():
    drawn = seats([Seat(1, "a", 8.0, 0.9), Seat(2, "b", None, 0.95), Seat(3, "c", 1.0, 0.8)], "pairs")
    x = [float(each.get("cx")) for each in marks(drawn, "seat")]
    assert x[2] < x[0] < x[1]


def test_images_are_laid_out_with_a_label_to_each_column():
    images = np.arange(120, dtype=np.uint8)[:, None, None] * np.ones((1, 4, 4), dtype=np.uint8)
    grid = tiles(images, np.arange(120) % 10)
    assert grid.shape == (6 * 5, 10 * 5)
    assert [int(grid[0, 5 * i]) for i in range(10)] == list(range(10))


def test_color_images_and_few_images_fit():
    assert tiles(np.zeros((3, 4, 4, 3), dtype=np.uint8), None).shape == (5, 50, 3)
    with pytest.raises(BadInput, match="expected"):
        tiles(np.zeros((0, 4, 4), dtype=np.uint8), None)


def test_long_numbers_under_a_histogram_have_room():
    edges = [float(round(10 ** (5 * i / 32))) for i in range(33)]
    bins = [f"{a:g} to {b:g}" for a, b in pairwise(edges)]
    drawn = str(spread({"name": "gain", "bins": bins, "edges": edges, "synthetic": [1 / 32] * 32}))
    labels = re.findall(r'x="([\d.]+)"[^>]*class="tick"[^>]*>([\d,]+)<', drawn)
    assert labels[0][1] == "1" and labels[-1][1] == "100,000"
    gaps = [float(right) - float(left) for (left, _), (right, _) in pairwise(labels)]
    assert min(gaps) > 1.5 * len("100,000") * LETTER  # the last is written to the left of its place
