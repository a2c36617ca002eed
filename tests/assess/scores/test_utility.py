import numpy as np
import pandas as pd
import pytest

from fedsynth.assess.scores.classifiers import CLASSIFIERS, KNOWN, as_codes, as_positions, chosen_classifiers
from fedsynth.assess.scores.utility import baseline, majority, performance, utility
from fedsynth.assess.suite import evaluate
from fedsynth.data.schema import Column, Schema
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

SCHEMA = Schema(
    columns=(
        Column("age", "integer", min=0, max=99, missing=True),
        Column("town", "categorical", categories=("a", "b", "c"), missing=True),
        Column("ill", "binary", categories=("no", "yes")),
    ),
    label="ill",
)


def table(rows: int, key: str) -> pd.DataFrame:
    """People over 40 are ill, except in town c; some ages and towns are missing."""
    random = Rng(7).at(key).numpy()
    age, town = random.integers(0, 100, rows), random.choice(["a", "b", "c"], rows)
    ill = np.where((age > 40) & (town != "c"), "yes", "no")
    frame = pd.DataFrame({"age": pd.array(age, dtype="Int64"), "town": town, "ill": ill})
    frame["age"] = frame["age"].mask(random.random(rows) < 0.05)
    frame["town"] = frame["town"].mask(random.random(rows) < 0.05)
    return frame


REAL, TEST = table(1000, "real"), table(500, "test")
FAST = ("logistic regression", "gradient boosting")


def test_rows_as_good_as_real_are_as_useful_and_beat_the_majority_class():
    beside = baseline(REAL, TEST, SCHEMA, seeds=(0,))
    scores = {score.name: score for score in utility(table(1000, "other"), TEST, SCHEMA, beside)}
    assert len(scores) == 3 * len(CLASSIFIERS)
    for name, score in scores.items():
        assert score.value == pytest.approx(score.detail["train_on_real"], abs=0.06), name
        assert score.value > score.detail["majority"] + 0.1, name


def test_shuffled_labels_are_useless():
    noise = REAL.assign(ill=REAL["ill"].sample(frac=1, random_state=1).to_numpy())
    assert performance(noise, TEST, SCHEMA, "gradient boosting", 0).auc == pytest.approx(0.5, abs=0.1)


def test_a_synthetic_table_with_one_class_fails_with_the_reason_beside_the_real_numbers():
    beside = baseline(REAL, TEST, SCHEMA, classifiers=FAST, seeds=(0,))
    for score in utility(REAL.assign(ill="no"), TEST, SCHEMA, beside):
        assert score.value is None and "one class, 'no'" in score.failed
        assert score.detail["train_on_real"] > score.detail["majority"]


def test_the_majority_class_has_the_known_accuracy_and_no_auc():
    found = majority(REAL, TEST, SCHEMA)
    assert found.accuracy == pytest.approx((TEST["ill"] == "no").mean())
    assert found.auc == 0.5 and found.f1 < 0.5


def test_a_class_that_the_synthetic_rows_lack_is_never_predicted_and_does_no_harm():
    columns = (
        Column("age", "integer", min=0, max=99),
        Column("band", "categorical", categories=("x", "y", "z")),
    )
    schema = Schema(columns=columns, label="band")
    age = np.arange(100)
    frame = pd.DataFrame({"age": age, "band": np.array(["x", "y", "z"])[age // 34]})
    for classifier in CLASSIFIERS:
        found = performance(frame[frame["band"] != "y"], frame, schema, classifier, 0)
        assert found.accuracy < 0.7, classifier
    found = performance(frame[frame["band"] != "y"], frame, schema, "random forest", 0)
    assert found.accuracy == pytest.approx(0.66, abs=0.02)  # all of x and z, none of y


def test_a_class_with_a_single_row_does_not_stop_any_classifier():
    well, ill = REAL[REAL["ill"] == "no"], REAL[REAL["ill"] == "yes"].head(1)
    for classifier in CLASSIFIERS:
        assert 0 <= performance(pd.concat([well, ill]), TEST, SCHEMA, classifier, 0).auc <= 1
    many = pd.concat([well] * 20 + [ill])  # above 10,000 rows boosting would hold out some of each class
    assert 0 <= performance(many, TEST, SCHEMA, "gradient boosting", 0).auc <= 1


def test_spread_is_over_the_seeds_and_repeats_with_them():
    beside = baseline(REAL, TEST, SCHEMA, classifiers=("random forest",), seeds=(0, 1))
    first, again = (utility(REAL, TEST, SCHEMA, beside) for _ in range(2))
    assert first == again and first[0].seeds == (0, 1) and first[0].spread is not None


def test_missing_values_are_kept_in_both_encodings():
    frame = pd.DataFrame(
        {"age": pd.array([pd.NA, 50], dtype="Int64"), "town": ["a", None], "ill": ["no", "yes"]}
    )
    assert np.isnan(as_codes(frame, SCHEMA).features).tolist() == [[True, False], [False, True]]
    positions = as_positions(frame, SCHEMA).features
    assert np.allclose(positions, [[0.5, 1, 1, 0, 0, 0], [0.505, 0, 0, 0, 0, 1]])


def test_rows_that_do_not_fit_the_schema_fail_with_the_reason():
    beside = baseline(REAL, TEST, SCHEMA, classifiers=FAST, seeds=(0,))
    wrong = REAL.assign(town="z")
    assert all("town" in score.failed for score in utility(wrong, TEST, SCHEMA, beside))
    lacking = REAL.drop(columns="age")
    assert all("'age' is missing" in score.failed for score in utility(lacking, TEST, SCHEMA, beside))


def test_without_a_label_there_is_nothing_to_predict():
    with pytest.raises(BadInput, match="label"):
        baseline(REAL, TEST, SCHEMA.with_label(None))


def test_an_unknown_classifier_is_told_the_nearest_name():
    with pytest.raises(BadInput, match="did you mean 'random forest'"):
        performance(REAL, TEST, SCHEMA, "random forrest", 0)


def test_the_thesis_student_network_learns_from_rows_and_repeats_with_its_seed():
    first, again, other = (performance(REAL, TEST, SCHEMA, "student network", seed) for seed in (0, 0, 1))
    assert first.auc > 0.9 and first == again and first != other


def test_classifiers_are_chosen_by_name():
    found = evaluate(REAL, table(1000, "other"), SCHEMA, test=TEST, classifiers=["naive bayes"])
    named = {score.name.partition(": ")[0] for score in found.scores if score.name.endswith(": f1")}
    assert named == {"naive bayes"}
    with pytest.raises(BadInput, match="did you mean 'naive bayes'"):
        evaluate(REAL, REAL, SCHEMA, classifiers=["naive bays"])
    assert chosen_classifiers(["all"], CLASSIFIERS, KNOWN) == tuple(KNOWN)
