"""Images: idx files, npz files without pickle and folders of PNG in and out, and pixels as numbers."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import numpy as np
import PIL.Image
import torch
from torch import Tensor

from fedsynth.data.atomic import replacing
from fedsynth.data.clients import RawClients, image_clients_from
from fedsynth.data.modality import ENDINGS, Modality, Source
from fedsynth.data.schema import Schema
from fedsynth.data.values import places
from fedsynth.errors import BadInput

_EXPECTED = "expected a folder of PNG files, a .npz file, or an idx file (name ending in ubyte, .idx or .gz)"
_IDX_ENDINGS = ("ubyte", ".idx", ".gz")
Images = tuple[np.ndarray, np.ndarray | None]  # bytes [rows, height, width(, 3)], and labels


def is_images(path: Path | str) -> bool:
    """True if the path has the form of images (a folder, an npz or an idx file), not of a table."""
    name = Path(path).name.lower()
    table = name.endswith((".csv.gz", ".csv", ".parquet"))
    return not table and (Path(path).is_dir() or name.endswith((".npz", *_IDX_ENDINGS)))


def read_images(path: Path | str, labels: Path | str | None = None) -> Images:
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


@dataclass(frozen=True)
class Image(Modality):
    """Pictures of one size; encoded, bytes [rows, channels, height, width] and classes."""

    kind: ClassVar[str] = "image"
    ending: ClassVar[str] = ENDINGS["image"]
    expected: ClassVar[str] = "a pair of uint8 images [rows, height, width(, 3)] and their labels or None"
    unconditional: ClassVar[str] = "images can be conditioned on their label only"

    @staticmethod
    def problems(schema: Schema) -> list[str]:
        """Say what in a schema does not fit images."""
        problems = [
            f"{key}={getattr(schema, key)!r} must be a whole number of at least 1"
            for key in ("height", "width")
            if type(getattr(schema, key)) is not int or getattr(schema, key) < 1
        ]
        color = f"channels={schema.channels!r} must be 1 (gray) or 3 (RGB)"
        return problems if schema.channels in (1, 3) else [*problems, color]

    def describe(self) -> str:
        """Say their size and whether they have color."""
        color = "gray" if self.schema.channels == 1 else "color"
        return f"images of {self.schema.height} × {self.schema.width} pixels, {color}"

    def read(self, path: Path | str, column: str | None = None) -> Images:
        """Read a folder, an npz or an idx file."""
        return read_images(path)

    def clients(self, source: Source) -> RawClients:
        """Read images and their owners, whom an array of an npz file may name."""
        data = self.read(source.path)
        if source.client_column:
            return image_clients_from(*data, owners=read_owners(source.path, source.client_column))
        return self.owned(data, source)

    def owned(self, data: Images | np.ndarray, source: Source) -> RawClients:
        """Return the owners of images: one for all, or simulated ones."""
        images, labels = (data, None) if isinstance(data, np.ndarray) else data
        if source.alone:
            return image_clients_from(images, labels, owners=np.zeros(len(images), dtype=np.int64))
        if source.clients is None:
            raise BadInput(
                "--clients: say to how many simulated clients the images are dealt, or with --client-column which "
                "array of an npz file names their owners"
            )
        return image_clients_from(images, labels, clients=source.clients, split=source.split, rng=source.rng)

    def write(self, data: Images, path: Path | str) -> None:
        """Write an npz file or a folder of PNG files."""
        images, labels = data
        write_images(images, path, None if labels is None else np.asarray(labels))

    def size(self, data: Images) -> int:
        """Return the number of images."""
        return len(data[0])

    def fits(self, data: Any) -> bool:
        """Tell whether these are images."""
        return isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], np.ndarray)

    def take(self, data: Images, rows: np.ndarray) -> Images:
        """Return these images."""
        images, labels = data
        return images[rows], None if labels is None else labels[rows]

    def join(self, parts: Sequence[Images]) -> Images:
        """Return the images of several sets."""
        labels = [labels for _, labels in parts if labels is not None]
        return np.concatenate([images for images, _ in parts]), np.concatenate(labels) if labels else None

    def labels(self, data: Images) -> np.ndarray | None:
        """Return the labels as text."""
        return None if data[1] is None else np.asarray(data[1]).astype(str)

    def unlabelled(self, data: Images) -> Images:
        """Return the images alone."""
        return data[0], None

    def inputs(self, data: Images) -> np.ndarray:
        """Return the pixels."""
        return data[0]

    def random(self, rows: int, draw: np.random.Generator) -> Tensor:
        """Return images of chance."""
        return torch.from_numpy(draw.integers(0, 256, (rows, *self.shape), dtype=np.uint8))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        schema = self.schema
        assert schema.channels and schema.height and schema.width
        return schema.channels, schema.height, schema.width

    def encode(self, data: Images) -> tuple[Tensor, Tensor]:
        """X uint8 [rows, channels, height, width] and y int64 [rows]."""
        images, labels = data
        channels, height, width = self.shape
        expected = (height, width) if channels == 1 and images.ndim == 3 else (height, width, channels)
        if images.dtype != np.uint8 or images.shape[1:] != expected:
            complaint = f"images are {images.dtype} of shape {images.shape[1:]}"
            raise BadInput(
                f"{complaint}, but the schema says uint8 of shape {expected}; convert them or correct the schema"
            )
        x = np.ascontiguousarray(images.reshape(-1, height, width, channels).transpose(0, 3, 1, 2))
        return torch.from_numpy(x.copy()), torch.from_numpy(self._classes(labels, len(images)))

    def decode(self, x: Tensor, y: Tensor | None = None) -> Images:
        """uint8 [rows, height, width(, 3)] and the labels' names; x may be bytes or numbers in [0, 1]."""
        x = x.detach().cpu()
        if x.dtype != torch.uint8:
            x = (x.clamp(0, 1) * 255).round().to(torch.uint8)
        images = x.reshape(-1, *self.shape).permute(0, 2, 3, 1).numpy()
        if self.shape[0] == 1:
            images = images[..., 0]
        if y is None or not self.schema.classes:
            return np.ascontiguousarray(images), None
        return np.ascontiguousarray(images), np.array(self.schema.classes)[y.detach().cpu().numpy()]

    def _classes(self, labels: np.ndarray | None, rows: int) -> np.ndarray:
        if self.schema.label is None:
            return np.zeros(rows, dtype=np.int64)
        if labels is None or len(labels) != rows:
            complaint = f"{'no' if labels is None else len(labels)} labels for {rows} images"
            raise BadInput(
                f"{complaint}, but the schema has the label {self.schema.label!r}; give one for each image"
            )
        codes = places(labels, self.schema.classes)
        if (codes < 0).any():
            example = str(np.asarray(labels)[codes < 0][0])
            expected = ", ".join(self.schema.classes)
            raise BadInput(
                f"label {example!r} is not in the schema; expected {expected}; correct it or add it"
            )
        return codes


def _checked(path: Path, images: np.ndarray, labels: np.ndarray | None) -> Images:
    grey_or_rgb = images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3))
    if images.dtype != np.uint8 or not grey_or_rgb:
        expected = "expected uint8 [rows, height, width] or [rows, height, width, 3]"
        raise BadInput(f"{path}: images are {images.dtype} of shape {images.shape}; {expected}")
    if not len(images):
        raise BadInput(f"{path}: holds no images; expected at least one")
    if labels is not None and labels.shape != (len(images),):
        raise BadInput(
            f"{path}: labels of shape {labels.shape} for {len(images)} images; expected one per image"
        )
    return images, labels


def _read_npz(path: Path) -> Images:
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


def _read_folder(folder: Path) -> Images:
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
        with PIL.Image.open(path) as image:
            return np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"), dtype=np.uint8)
    except (OSError, PIL.UnidentifiedImageError, SyntaxError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as PNG ({error}); remove or repair it") from None


def _write_folder(images: np.ndarray, folder: Path, labels: np.ndarray | None) -> None:
    digits = len(str(len(images)))
    folder.mkdir()
    for row, image in enumerate(images):
        place = folder if labels is None else folder / _folder_name(str(labels[row]))
        place.mkdir(exist_ok=True)
        PIL.Image.fromarray(image.squeeze()).save(place / f"{row:0{digits}d}.png")


def _folder_name(label: str) -> str:
    """A label as the name of a folder: 'T-shirt/top' must not become two."""
    return quote(label, safe=" ").replace(".", "%2E")
