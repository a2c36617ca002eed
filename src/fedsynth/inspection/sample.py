"""Synthetic examples of a selection: drawn, kept in a file, put together, and dealt to made-up clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsynth.data.clients import Clients, RawClients, encode_clients
from fedsynth.data.modality import Data, modality_of
from fedsynth.data.schema import Schema
from fedsynth.data.text import Text
from fedsynth.rng import Rng
from fedsynth.synthesis.generator import Generator


@dataclass(frozen=True)
class Sample:
    """Examples that a generator made up."""

    schema: Schema
    data: Data

    def __len__(self) -> int:
        return modality_of(self.schema).size(self.data)

    @classmethod
    def draw(cls, generator: Generator, rows: int, rng: Rng) -> Sample:
        """So many examples of a generator, at no privacy cost."""
        return cls(generator.schema, generator.sample(rows, rng))

    @property
    def texts(self) -> list[str]:
        """The texts of a sample of them."""
        return Text(self.schema).inputs(self.data)

    @staticmethod
    def file(folder: Path, name: str, schema: Schema) -> Path:
        """Where a sample of this schema is kept."""
        return folder / f"{name}{modality_of(schema).ending}"

    def save(self, folder: Path, name: str) -> Path:
        """Write it beside the others."""
        path = self.file(folder, name, self.schema)
        modality_of(self.schema).write(self.data, path)
        return path

    @classmethod
    def load(cls, folder: Path, name: str, schema: Schema) -> Sample:
        """Read what `save` wrote."""
        return cls(schema, modality_of(schema).read(cls.file(folder, name, schema)))


def pooled(samples: Sequence[Sample]) -> Sample:
    """Several samples of one schema as one."""
    schema = samples[0].schema
    return Sample(schema, modality_of(schema).join([sample.data for sample in samples]))


def made_up_clients(sample: Sample, clients: int, share: float, rows: int, rng: Rng) -> Clients:
    """So many clients, of whom a share holds `rows` examples each, drawn from the sample by chance."""
    draw = rng.at("population").numpy()
    holders = np.flatnonzero(draw.random(clients) < share)
    owner = np.repeat(holders, rows)
    places = draw.integers(0, len(sample), len(owner))
    drawn = modality_of(sample.schema).take(sample.data, places)
    return encode_clients(RawClients(owner.astype(np.int64), clients, (), drawn), sample.schema)
