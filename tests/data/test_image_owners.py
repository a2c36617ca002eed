import numpy as np
import pytest

from fedsynth.data.image import read_owners
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.synthesis.inputs import read_clients
from fedsynth.synthesis.request import Request


@pytest.fixture
def scans(tmp_path):
    path = tmp_path / "scans.npz"
    np.savez(path, images=np.zeros((5, 4, 4), dtype=np.uint8), ward=np.array(["b", "a", "b", "b", "a"]))
    return path


def test_images_belong_to_whom_an_array_names(scans):
    schema = Schema(kind="image", height=4, width=4, channels=1)
    request = Request(data=str(scans), client_column="ward", private=False)
    raw = read_clients(request, schema)
    assert raw.count == 2 and sorted(raw.sizes.tolist()) == [2, 3]


def test_an_array_that_is_not_there_is_named_with_those_that_are(scans, tmp_path):
    with pytest.raises(BadInput, match="has no array 'wards' .found: images, ward"):
        read_owners(scans, "wards")
    with pytest.raises(BadInput, match="read from a .npz file"):
        read_owners(tmp_path / "none.csv", "ward")
