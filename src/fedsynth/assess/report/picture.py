"""Images as one picture inside the page, and texts as quotations."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from fedsynth.assess.report.markup import Markup, tag
from fedsynth.errors import BadInput

ACROSS, DOWN = 10, 6
_LONGEST_TEXT = 400


def tiles(
    images: np.ndarray, labels: np.ndarray | None, across: int = ACROSS, down: int = DOWN
) -> np.ndarray:
    """One large image [height, width(, 3)] of the first images; with few labels, a label to each column."""
    images = np.asarray(images, dtype=np.uint8)
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.ndim not in (3, 4) or not len(images):
        raise BadInput(
            f"images of shape {images.shape}: expected [rows, height, width] or [rows, height, width, 3]"
        )
    chosen = (
        _by_label(labels, across, down)
        if labels is not None
        else list(range(min(len(images), across * down)))
    )
    height, width = images.shape[1:3]
    grid = np.full((down * (height + 1), across * (width + 1), *images.shape[3:]), 128, dtype=np.uint8)
    for place, number in enumerate(chosen):
        row, column = divmod(place, across)
        y, x = row * (height + 1), column * (width + 1)
        grid[y : y + height, x : x + width] = images[number]
    return grid[: -(-len(chosen) // across) * (height + 1)]


def write_grid(images: np.ndarray, path: Path, across: int = ACROSS) -> None:
    """Save the images as one PNG, row by row."""
    Image.fromarray(tiles(images, None, across, -(-len(images) // across))).save(path)


def _by_label(labels: np.ndarray, across: int, down: int) -> list[int]:
    """Row by row the next image of each label, as far as there are some."""
    kinds = sorted(set(map(str, labels)))[:across]
    places = [np.flatnonzero(np.asarray(labels).astype(str) == kind)[:down] for kind in kinds]
    if len(kinds) < across or any(len(indices) < down for indices in places):
        return list(range(min(len(labels), across * down)))
    return [int(indices[row]) for row in range(down) for indices in places]


def image_grid(images: np.ndarray, labels: np.ndarray | None, what: str) -> Markup:
    """The first images as one PNG inside the page; a single one by itself."""
    return _png(images[0] if len(images) == 1 else tiles(images, labels), what)


def image_pairs(above: np.ndarray, below: np.ndarray) -> Markup:
    """Synthetic images above, and below each the real one that is nearest to it."""
    grid = tiles(np.concatenate([above, below]), None, across=len(above), down=2)
    return _png(grid, "synthetic images above the nearest real")


def _png(grid: np.ndarray, what: str) -> Markup:
    buffer = io.BytesIO()
    Image.fromarray(grid).save(buffer, format="PNG", optimize=True)
    source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return tag("img", src=source, alt=f"A grid of {what} images", class_="grid-of-images")


def quotations(texts: Sequence[str]) -> list[Markup]:
    """Texts as they were made, cut where they are very long."""
    return [
        tag("blockquote", text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + " …")
        for text in texts
    ]
