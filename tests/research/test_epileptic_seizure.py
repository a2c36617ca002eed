import pytest

from fedsynth.errors import BadInput
from fedsynth.research.datasets import data_folder, epileptic_seizure

pytestmark = pytest.mark.skipif(
    data_folder() is None or not (data_folder() / "epileptic_seizure.parquet").is_file(),
    reason="FEDSYNTH_DATA holds no epileptic_seizure.parquet",
)


def test_recordings_are_clients_of_one_class_and_none_is_in_both_splits():
    (train, schema), (test, _) = epileptic_seizure("train"), epileptic_seizure("test")
    assert (len(train), len(test)) == (9200, 2300)
    assert set(train.recording).isdisjoint(test.recording) and train.recording.nunique() == 400
    assert train.groupby("recording").seizure.nunique().max() == 1
    assert schema.client == "recording" and schema.label == "seizure" and not schema.inferred()


def test_all_values_lie_within_the_range_of_the_amplifier():
    frame, schema = epileptic_seizure("train")
    points = [column.name for column in schema.feature_columns]
    assert len(points) == 178
    assert frame[points].min().min() >= -2048 and frame[points].max().max() <= 2047


def test_an_unknown_split_is_refused():
    with pytest.raises(BadInput, match="split 'valid'"):
        epileptic_seizure("valid")
