import gzip

import numpy as np
import pytest
from PIL import Image

from fedsynth.data.image import is_images, read_images, write_images
from fedsynth.errors import BadInput

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 5, 6), dtype=np.uint8)
LABELS = np.array(["a", "T-shirt/top", "a", ".."])


def idx(array):
    return b"\x00\x00\x08" + bytes([array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def by_label(images, labels):
    return sorted((str(label), image.tobytes()) for image, label in zip(images, labels, strict=True))


@pytest.mark.parametrize("name", ["images.npz", "folder"])
@pytest.mark.parametrize("channels", [(), (3,)])
def test_written_images_are_read_with_their_labels(tmp_path, name, channels):
    images = np.random.default_rng(1).integers(0, 256, (4, 5, 6, *channels), dtype=np.uint8)
    write_images(images, tmp_path / name, LABELS)
    back, labels = read_images(tmp_path / name)
    assert back.shape == images.shape
    assert by_label(back, labels) == by_label(images, LABELS)


@pytest.mark.parametrize("name", ["images.npz", "folder"])
def test_images_without_labels_keep_their_order(tmp_path, name):
    write_images(IMAGES, tmp_path / name)
    back, labels = read_images(tmp_path / name)
    assert np.array_equal(back, IMAGES) and labels is None


@pytest.mark.parametrize("packed", [False, True])
def test_idx_labels_are_found_beside_their_images(tmp_path, packed):
    suffix, pack = (".gz", gzip.compress) if packed else ("", bytes)
    path = tmp_path / f"train-images-idx3-ubyte{suffix}"
    path.write_bytes(pack(idx(IMAGES)))
    assert read_images(path)[1] is None
    (tmp_path / f"train-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(np.arange(4, dtype=np.uint8))))
    images, labels = read_images(path)
    assert np.array_equal(images, IMAGES) and labels.tolist() == [0, 1, 2, 3]


def test_an_npz_file_with_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "evil.npz", images=np.array([{"a": 1}], dtype=object))
    with pytest.raises(BadInput, match="without pickle"):
        read_images(tmp_path / "evil.npz")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x-ubyte", b"abcd", "not an idx file"),
        ("x-ubyte", idx(IMAGES)[:-1], "is damaged"),
        ("x-ubyte.gz", b"abcd", "cannot be read"),
        ("x.npz", b"abcd", "cannot be read as npz"),
        ("x.tiff", b"abcd", "unknown kind of images"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_sentence(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput) as refused:
        read_images(tmp_path / name)
    assert told in str(refused.value) and name in str(refused.value)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"pictures": IMAGES}, "no array 'images' .found: pictures"),
        ({"images": IMAGES / 255}, "float64"),
        ({"images": IMAGES[:0]}, "holds no images"),
        ({"images": IMAGES, "labels": LABELS[:2]}, "for 4 images"),
    ],
)
def test_arrays_that_are_no_images_are_refused(tmp_path, arrays, told):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(BadInput, match=told):
        read_images(tmp_path / "x.npz")


def test_images_of_different_size_are_refused_by_name(tmp_path):
    for number, size in enumerate([(3, 3), (3, 4)]):
        Image.new("L", size).save(tmp_path / f"{number}.png")
    with pytest.raises(BadInput, match="1.png"):
        read_images(tmp_path)


def test_a_folder_without_png_files_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no PNG files"):
        read_images(tmp_path)


def test_a_damaged_png_is_named(tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(BadInput, match="bad.png"):
        read_images(tmp_path)


def test_a_folder_that_exists_is_not_overwritten(tmp_path):
    with pytest.raises(BadInput, match="this folder exists"):
        write_images(IMAGES, tmp_path)


def test_tables_are_not_taken_for_images(tmp_path):
    names = {"a.csv": False, "a.csv.gz": False, "a.parquet": False, "a.npz": True, "a-ubyte.gz": True}
    assert {name: is_images(tmp_path / name) for name in names} == names
    assert is_images(tmp_path)
