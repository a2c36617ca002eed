"""The facts that a recipe may know of the data before it reads any: the public schema and the public counts."""

from __future__ import annotations

from dataclasses import dataclass

from fedsynth.data.encode import Block
from fedsynth.data.modality import kinds_of
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.errors import BadInput
from fedsynth.privacy.mechanism import Trust, Unit


@dataclass(frozen=True)
class Task:
    """The shape of the data, the numbers that are public (clients, records), and the protection that is asked for."""

    schema: Schema
    clients: int
    records: int | None = None
    private: bool = True
    unit: Unit = "client"
    trust: Trust = "central"
    transport: str = "clear"
    largest: int = 1  # clients of the participant that has most: over a federation, of the largest site

    @property
    def kind(self) -> str:
        """table, image or text: what the rows look like to a recipe."""
        return kinds_of(self.schema)[-1]

    @property
    def classes(self) -> int:
        """The number of label classes; 0 without a label."""
        return len(self.schema.classes)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The columns of an encoded row; none where rows are images or texts."""
        return Table(self.schema).blocks if self.kind == "table" else ()

    @property
    def width(self) -> int:
        """The length of an encoded row of columns."""
        return sum(block.width for block in self.blocks)

    @property
    def image(self) -> tuple[int, int]:
        """Channels and side of a square image."""
        from fedsynth.data.image import Image

        channels, height, width = Image(self.schema).shape
        if height != width or height % 4:
            raise BadInput(
                f"images of {height}x{width}: expected squares whose side is a multiple of 4, such as 28 or 32; "
                "pad or crop them"
            )
        return channels, height

    def public_records(self) -> int:
        """The declared or paid-for number of records."""
        if self.records is None:
            raise BadInput(
                "records: a record-level recipe needs the number of records, declared with --set records=N or paid for"
            )
        return self.records
