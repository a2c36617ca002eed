import pandas as pd
import pytest
from small_tables import SCHEMA, shuffled, table

from fedsynth.assess.scores.augmentation import few_rows, rare_class, sampler_from
from fedsynth.errors import BadInput

TEST = table(400, "test")


def test_good_rows_help_a_site_with_few():
    score = few_rows(table(), table(key="fresh"), TEST, SCHEMA, rows=25)
    assert score.value > 0.0 and score.spread is not None
    assert score.detail["real_alone"] + score.value == pytest.approx(score.detail["real_and_synthetic"])


def test_useless_rows_do_not():
    assert few_rows(table(), shuffled(table()), TEST, SCHEMA, rows=25).value < 0.02


def test_the_rare_class_is_cut_and_balanced():
    asked = []

    def sampler(name: str, rows: int) -> pd.DataFrame:
        asked.append((name, rows))
        return table(2000, "fresh").query("ill == @name").iloc[:rows]

    real = table()
    rarest = real["ill"].value_counts().idxmin()
    most = int(real["ill"].value_counts().max())
    score = rare_class(real, sampler, TEST, SCHEMA, rare=10, seeds=(0, 1))
    assert asked == [(rarest, most - 10)] * 2
    assert score.detail["class"] == rarest and score.detail["rare_rows"] == 10
    assert score.value > 0


def test_rows_of_a_class_come_out_of_the_synthetic_table():
    rows = sampler_from(table(key="fresh"), SCHEMA)("yes", 7)
    assert len(rows) == 7 and set(rows["ill"]) == {"yes"}
    with pytest.raises(BadInput, match="none of class 'yes'"):
        sampler_from(table().assign(ill="no"), SCHEMA)("yes", 7)


def test_too_few_test_rows_of_the_class_are_refused():
    real = table()
    rarest = real["ill"].value_counts().idxmin()
    one_sided = TEST[TEST["ill"] != rarest]
    with pytest.raises(BadInput, match="at least 5"):
        rare_class(real, sampler_from(real, SCHEMA), one_sided, SCHEMA)
