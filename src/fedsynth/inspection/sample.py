"""Synthetic examples of a selection: drawn, kept in a file, put together, and dealt to made-up clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedsynth.data.clients import Clients, RawClients, encode_clients
from fedsynth.data.image import read_images, write_images
from fedsynth.data.schema import Schema
from fedsynth.data.table import read_table, write_table
from fedsynth.rng import Rng
from fedsynth.synthesis.generator import Generator


@dataclass(frozen=True)
class Sample:
    """Examples that a generator made up: images with labels, a table, or a table with the column `text`."""

    schema: Schema
    frame: pd.DataFrame | None = None
    images: np.ndarray | None = None
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return (
            len(self.frame) if self.frame is not None else len(self.images if self.images is not None else ())
        )

    @classmethod
    def draw(cls, generator: Generator, rows: int, rng: Rng) -> Sample:
        """So many examples of a generator, at no privacy cost."""
        drawn = generator.sample(rows, rng)
        if isinstance(drawn, pd.DataFrame):
            return cls(generator.schema, frame=drawn)
        images, labels = drawn
        return cls(generator.schema, images=images, labels=None if labels is None else np.asarray(labels))

    @property
    def texts(self) -> list[str]:
        """The texts of a sample of them."""
        return (
            []
            if self.frame is None or self.schema.kind != "text"
            else self.frame["text"].astype(str).tolist()
        )

    def file(self, folder: Path, name: str) -> Path:
        """Where a sample of this kind is kept."""
        return folder / f"{name}.{'npz' if self.schema.kind == 'image' else 'parquet'}"

    def save(self, folder: Path, name: str) -> Path:
        """Write it beside the others."""
        path = self.file(folder, name)
        if self.frame is not None:
            write_table(self.frame, path)
        else:
            assert self.images is not None
            write_images(self.images, path, self.labels)
        return path

    @classmethod
    def load(cls, folder: Path, name: str, schema: Schema) -> Sample:
        """Read what `save` wrote."""
        path = cls(schema).file(folder, name)
        if schema.kind == "image":
            images, labels = read_images(path)
            return cls(schema, images=images, labels=None if labels is None else labels.astype(str))
        return cls(schema, frame=read_table(path, schema if schema.kind == "table" else None))


def pooled(samples: Sequence[Sample]) -> Sample:
    """Several samples of one schema as one."""
    first = samples[0]
    if first.frame is not None:
        return Sample(first.schema, frame=pd.concat([s.frame for s in samples], ignore_index=True))
    images = np.concatenate([s.images for s in samples if s.images is not None])
    labels = [s.labels for s in samples if s.labels is not None]
    return Sample(first.schema, images=images, labels=np.concatenate(labels) if labels else None)


def made_up_clients(sample: Sample, clients: int, share: float, rows: int, rng: Rng) -> Clients:
    """So many clients, of whom a share holds `rows` examples each, drawn from the sample by chance."""
    draw = rng.at("population").numpy()
    holders = np.flatnonzero(draw.random(clients) < share)
    owner = np.repeat(holders, rows)
    places = draw.integers(0, len(sample), len(owner))
    raw = RawClients(
        owner=owner.astype(np.int64),
        count=clients,
        names=(),
        frame=None
        if sample.frame is None or sample.texts
        else sample.frame.iloc[places].reset_index(drop=True),
        images=None if sample.images is None else sample.images[places],
        labels=None if sample.labels is None else sample.labels[places],
        texts=tuple(sample.texts[place] for place in places) if sample.texts else None,
    )
    return encode_clients(raw, sample.schema)
