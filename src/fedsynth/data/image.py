"""Images in and out: idx files, npz files without pickle, and folders of PNG."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedsynth.data.atomic import replacing
from fedsynth.errors import BadInput

_EXPECTED = "expected a folder of PNG files, a .npz file, or an idx file (name ending in ubyte, .idx or .gz)"
_IDX_ENDINGS = ("ubyte", ".idx", ".gz")


def is_images(path: Path | str) -> bool:
    """True if the path has the form of images (a folder, an npz or an idx file), not of a table."""
    name = Path(path).name.lower()
    table = name.endswith((".csv.gz", ".csv", ".parquet"))
    return not table and (Path(path).is_dir() or name.endswith((".npz", *_IDX_ENDINGS)))


def read_images(path: Path | str, labels: Path | str | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Images as uint8 [rows, height, width] (grey) or [rows, height, width, 3], and labels if there are any.

    A folder's sub-folders are the labels. An npz file holds `images` and perhaps `labels`. The labels of an
    idx file are a second idx file, found by itself when it has the publisher's name (`...labels-idx1-ubyte`).
    """
    source = Path(path)
    if not source.exists():
        raise BadInput(f"{source}: there is no such file or folder; check the path")
    if source.is_dir():
        images, classes = _read_folder(source)
    elif source.suffix == ".npz":
        images, classes = _read_npz(source)
    elif source.name.lower().endswith(_IDX_ENDINGS):
        images, classes = read_idx(source), None
        labels = labels or _sibling(source)
    else:
        raise BadInput(f"{source}: unknown kind of images; {_EXPECTED}")
    if labels is not None:
        classes = read_idx(Path(labels))
    return _checked(source, images, classes)


def read_owners(path: Path | str, name: str) -> np.ndarray:
    """Who each image belongs to: the array called `name` of an npz file that holds `images`."""
    source = Path(path)
    if source.suffix != ".npz" or not source.is_file():
        raise BadInput(f"{source}: owners of images are read from a .npz file with an array {name!r}")
    try:
        with np.load(source, allow_pickle=False) as arrays:
            if name not in arrays:
                raise BadInput(
                    f"{source}: has no array {name!r} (found: {', '.join(arrays)}); name one of them"
                )
            return arrays[name]
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{source}: cannot be read as npz without pickle ({error}); check the file") from None


def write_images(images: np.ndarray, path: Path | str, labels: np.ndarray | None = None) -> None:
    """Write an npz file or a new folder of PNG files (a sub-folder a label), whole or not at all."""
    target = Path(path)
    if target.suffix not in ("", ".npz"):
        raise BadInput(
            f"{target}: images are written to a .npz file or to a folder, not to {target.suffix!r}"
        )
    if target.is_dir():
        raise BadInput(f"{target}: this folder exists; choose a new one")
    with replacing(target) as temporary:
        if target.suffix == ".npz":
            _write_npz(images, temporary, labels)
        else:
            _write_folder(images, temporary, labels)


def read_idx(path: Path) -> np.ndarray:
    """The array of an idx file of unsigned bytes (the format of MNIST), plain or compressed by gzip."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read ({error}); check the file") from None
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise BadInput(f"{path}: is not an idx file of unsigned bytes (wrong first bytes); check the file")
    header = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:header], dtype=">u4").tolist())
    expected = int(np.prod(shape, dtype=np.int64))
    if len(content) - header != expected:
        sizes = f"{len(content) - header} bytes for shape {shape}, expected {expected}"
        raise BadInput(f"{path}: is damaged ({sizes}); get the file again")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()


def _checked(
    path: Path, images: np.ndarray, labels: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    grey_or_rgb = images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3))
    if images.dtype != np.uint8 or not grey_or_rgb:
        expected = "expected uint8 [rows, height, width] or [rows, height, width, 3]"
        raise BadInput(f"{path}: images are {images.dtype} of shape {images.shape}; {expected}")
    if not len(images):
        raise BadInput(f"{path}: holds no images; expected at least one")
    if labels is not None and labels.shape != (len(images),):
        raise BadInput(
            f"{path}: labels of shape {labels.shape} for {len(images)} images; expected one an image"
        )
    return images, labels


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "images" not in arrays:
                raise BadInput(f"{path}: has no array 'images' (found: {', '.join(arrays)}); rename it")
            return arrays["images"], arrays.get("labels")
    except BadInput:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read as npz without pickle ({error}); check the file") from None


def _write_npz(images: np.ndarray, path: Path, labels: np.ndarray | None) -> None:
    if labels is None:
        np.savez_compressed(path, images=images)
    else:
        np.savez_compressed(path, images=images, labels=np.asarray(labels, dtype=np.str_))


def _sibling(path: Path) -> Path | None:
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    beside = path.with_name(name)
    return beside if name != path.name and beside.is_file() else None


def _read_folder(folder: Path) -> tuple[np.ndarray, np.ndarray | None]:
    flat = sorted(folder.glob("*.png"))
    below = sorted(folder.glob("*/*.png"))
    if bool(flat) == bool(below):
        content = "PNG files both in it and in its sub-folders" if flat else "no PNG files"
        raise BadInput(
            f"{folder}: holds {content}; expected sub-folders named by label, or all files in one folder"
        )
    files = flat or below
    images = [_read_png(file) for file in files]
    for file, image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            difference = f"has shape {image.shape}, but {files[0].name} has {images[0].shape}"
            raise BadInput(f"{file}: {difference}; make all images the same size and color mode")
    return np.stack(images), np.array([unquote(file.parent.name) for file in below]) if below else None


def _read_png(path: Path) -> np.ndarray:
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"), dtype=np.uint8)
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as PNG ({error}); remove or repair it") from None


def _write_folder(images: np.ndarray, folder: Path, labels: np.ndarray | None) -> None:
    digits = len(str(len(images)))
    folder.mkdir()
    for row, image in enumerate(images):
        place = folder if labels is None else folder / _folder_name(str(labels[row]))
        place.mkdir(exist_ok=True)
        Image.fromarray(image.squeeze()).save(place / f"{row:0{digits}d}.png")


def _folder_name(label: str) -> str:
    """A label as the name of a folder: 'T-shirt/top' must not become two."""
    return quote(label, safe=" ").replace(".", "%2E")
