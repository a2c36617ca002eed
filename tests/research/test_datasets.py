import numpy as np
import pytest

from fedsynth.data.clients import clients_from, encode_clients, image_clients_from
from fedsynth.data.rand_health import rand_health
from fedsynth.data.table import Table, check
from fedsynth.errors import BadInput
from fedsynth.research import datasets

needs_data = pytest.mark.skipif(
    datasets.data_folder() is None, reason="the data sets are not here; set FEDSYNTH_DATA to their folder"
)


def test_the_demo_data_fits_its_schema_and_has_people_as_clients():
    pytest.importorskip("statsmodels", reason="the extra 'demo' is not installed")
    frame, schema = rand_health()
    assert len(frame) == 20_190 and check(frame, schema) == []
    clients = encode_clients(clients_from(frame, client_column="person"), schema)
    assert (len(clients), clients.sizes.max(), schema.inferred()) == (5912, 5, ())
    assert clients.y.float().mean().item() == pytest.approx(0.6876, abs=1e-4)


@needs_data
@pytest.mark.parametrize(("split", "rows", "rich"), [("train", 32_561, 7841), ("test", 16_281, 3846)])
def test_adult_fits_its_schema_and_keeps_its_missing_values(split, rows, rich):
    frame, schema = datasets.adult(split)
    assert (len(frame), len(schema.feature_columns), check(frame, schema)) == (rows, 14, [])
    assert (frame["income"] == ">50K").sum() == rich
    assert frame["occupation"].isna().any() and "split" not in frame


@needs_data
def test_adult_comes_back_from_its_encoding_exactly():
    frame, schema = datasets.adult("test")
    encoding = Table(schema)
    back = encoding.decode(*encoding.encode(frame))
    for name in frame:
        assert (back[name].astype("str").fillna("?") == frame[name].astype("str").fillna("?")).all(), name


@needs_data
def test_heart_disease_has_four_hospitals():
    frame, schema = datasets.heart_disease()
    assert check(frame, schema) == []
    assert clients_from(frame, client_column=schema.client).sizes.tolist() == [303, 294, 123, 200]


@needs_data
@pytest.mark.parametrize(("load", "first"), [(datasets.mnist, "7"), (datasets.fashion_mnist, "Ankle boot")])
def test_image_sets_fit_their_schema(load, first):
    images, labels, schema = load("test")
    assert images.shape == (10_000, 28, 28) and labels[0] == first and len(schema.classes) == 10
    clients = encode_clients(image_clients_from(images, labels, clients=100), schema)
    assert clients.sizes.tolist() == [100] * 100


@needs_data
def test_digits_have_writers():
    assert len(np.unique(datasets.mnist_writers("train"))) == 539


@needs_data
def test_house_numbers_are_colored_digits():
    for split, rows in (("train", 5000), ("test", 2000)):
        images, labels, schema = datasets.svhn(split)
        assert images.shape == (rows, 32, 32, 3) and images.dtype == np.uint8
        assert set(labels) == set(schema.classes) == set("0123456789") and schema.channels == 3


@needs_data
def test_faces_have_identities_and_each_has_an_image_held_out():
    train, labels, schema = datasets.celeba("train")
    test = datasets.celeba("test")[0]
    assert train.shape == (7200, 32, 32, 3) and test.shape == (1800, 32, 32, 3)
    assert set(labels) == set(schema.classes) and schema.channels == 3
    names, counts = np.unique(datasets.celeba_identities("train"), return_counts=True)
    assert len(names) == 1800 and set(counts) == {4}
    assert set(datasets.celeba_identities("test")) == set(names)


def test_a_data_set_that_is_not_there_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSYNTH_DATA", str(tmp_path))
    assert datasets.data_folder() == tmp_path
    with pytest.raises(BadInput, match="set it to the folder"):
        datasets.adult()
    monkeypatch.setenv("FEDSYNTH_DATA", str(tmp_path / "no"))
    assert datasets.data_folder() is None


@needs_data
def test_a9a_has_124_binary_attributes_and_adults_labels():
    frame, schema = datasets.adult_a9a("test")
    assert frame.shape == (16_281, 124) and len(schema.columns) == 124
    assert (frame["income"] == ">50K").sum() == 3846
    assert schema.classes == ("<=50K", ">50K")
