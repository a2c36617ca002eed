"""Draft a schema from whatever holds the rows: a frame, frames by name, images, or the path of a file or folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fedsynth.data.draft import Draft, Wishes, draft_image_schema, draft_schema
from fedsynth.data.image import is_images, read_images
from fedsynth.data.linked_draft import draft_linked
from fedsynth.data.modality import Data
from fedsynth.data.reading import holds_tables, read_all
from fedsynth.errors import BadInput


def draft_from(source: Data, wishes: Wishes | None = None) -> Draft:
    """Guess a schema from rows in memory or in a file; everything in it is `inferred`."""
    wishes = wishes or Wishes()
    if isinstance(source, str | Path):
        return _draft_file(Path(source), wishes)
    if isinstance(source, pd.DataFrame):
        return draft_schema(source, wishes)
    if isinstance(source, Mapping):
        return draft_linked(source, wishes)
    if isinstance(source, np.ndarray):
        source = (source, None)
    if not isinstance(source, tuple) or len(source) != 2:
        raise BadInput(
            f"data: a schema cannot be drafted from a {type(source).__name__}; expected a DataFrame, frames by name, "
            "a pair of images and labels, or the path of a file"
        )
    return _of_images(*source, wishes)


def _draft_file(file: Path, wishes: Wishes) -> Draft:
    if file.name.endswith((".jsonl", ".jsonl.gz")):
        raise BadInput(f"{file}: holds texts; their schema is written by `fedsynth schema text`")
    if holds_tables(file) or not is_images(file):
        rows = read_all(file)
        return draft_linked(rows, wishes) if isinstance(rows, dict) else draft_schema(rows, wishes)
    return _of_images(*read_images(file), wishes)


def _of_images(images: np.ndarray, labels: np.ndarray | None, wishes: Wishes) -> Draft:
    if wishes != Wishes():
        raise BadInput(
            "--label, --client-column and the like name columns of a table; images bring their labels themselves"
        )
    return Draft(draft_image_schema(images, labels))
