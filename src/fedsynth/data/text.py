"""Texts in and out: read with their owners, cut into pieces, turned into symbols of a public vocabulary and back."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedsynth.data.clients import RawClients, clients_of
from fedsynth.data.modality import ENDINGS, Modality, Source
from fedsynth.data.reading import read_rows
from fedsynth.data.schema import Schema
from fedsynth.data.table_files import write_table
from fedsynth.errors import BadInput, nearest
from fedsynth.rng import Rng

END, START, UNKNOWN = 0, 1, 2
UNKNOWN_WORD = "UNK"
_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_LINES = (".jsonl", ".jsonl.gz")
Texts = Sequence[str] | pd.DataFrame


def words_of(text: str) -> list[str]:
    """Lower-case words and punctuation marks.

    >>> words_of("I don't know, really.")
    ['i', "don't", 'know', ',', 'really', '.']
    """
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class Text(Modality):
    """Pieces of text, as a sequence or as a table with the column `text`; encoded, rows of symbols.

    A row is a start, at most `length` symbols, and ends up to its full width. With the vocabulary "bytes" a symbol is
    a byte of UTF-8 (258 with start and end); else a word of the public list, or the sign for one that is not in it.

    >>> modality = Text(Schema(kind="text", vocabulary=("a", "b"), length=4))
    >>> modality.encode(["B a, b"])[0].tolist()
    [[1, 4, 3, 2, 4]]
    >>> modality.texts(torch.tensor([[1, 4, 3, 0, 0]]))
    ['b a']
    """

    kind: ClassVar[str] = "text"
    ending: ClassVar[str] = ENDINGS["text"]
    expected: ClassVar[str] = "a list of texts"
    unconditional: ClassVar[str] = "texts cannot be conditioned"

    @staticmethod
    def problems(schema: Schema) -> list[str]:
        """Say what in a schema does not fit texts."""
        words, length = schema.vocabulary, schema.length
        problems = []
        listed = isinstance(words, tuple) and words and all(isinstance(word, str) for word in words)
        if not (words == "bytes" or listed):
            problems.append(f"vocabulary={words!r} must be 'bytes' or a list of words")
        elif isinstance(words, tuple) and len(set(words)) < len(words):
            problems.append("vocabulary: a word is listed twice")
        if length is not None and (type(length) is not int or length < 1):
            problems.append(f"length={length!r} must be a whole number of at least 1")
        return problems

    def describe(self) -> str:
        """Say that these are texts."""
        return "texts"

    def read(self, path: Path | str, column: str | None = None) -> list[str]:
        """Read the lines of a .txt file, or a column (`text` or the first) of a table or of JSON lines."""
        source = Path(path)
        if source.name.lower().endswith(".txt"):
            return _lines(source)
        frame = _read_rows(source)
        column = column or ("text" if "text" in frame.columns else str(frame.columns[0]))
        if column not in frame.columns:
            raise BadInput(f"{source}: has no column {column!r}; name it with --text-column")
        return [str(text) for text in frame[column].dropna()]

    def clients(self, source: Source) -> RawClients:
        """Read texts and their owners."""
        return self.owned(_read_rows(Path(source.path)), source)

    def owned(self, data: pd.DataFrame | Sequence[str], source: Source) -> RawClients:
        """Return the owners of texts, which are a column of a table or a list."""
        column = source.client_column
        rows = data if isinstance(data, pd.DataFrame) else pd.DataFrame({source.text_column: list(data)})
        frame = _texts_in(rows, source.path or "the table", source.text_column, column)
        owners = frame[column].to_numpy() if column else np.zeros(len(frame), int) if source.alone else None
        texts, clients = frame[source.text_column].tolist(), None if column else source.clients
        return text_clients_from(texts, self.schema, owners=owners, clients=clients, rng=source.rng)

    @property
    def length(self) -> int:
        """The most symbols in a piece."""
        return self.schema.length or (64 if self.by_bytes else 20)

    @property
    def by_bytes(self) -> bool:
        """Whether a symbol is a byte."""
        return self.schema.vocabulary == "bytes"

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number + 3 for number, word in enumerate(self.words)}

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the vocabulary; none if symbols are bytes."""
        return () if self.by_bytes else tuple(self.schema.vocabulary or ())

    @property
    def symbols(self) -> int:
        """How many there are, with start, end and (for words) unknown."""
        return 258 if self.by_bytes else len(self.words) + 3

    def pieces(self, text: str) -> Iterator[str]:
        """The sentences of a text, long ones cut where the length ends; nothing of a text is left out."""
        for sentence in _SENTENCE.split(text):
            if self.by_bytes:
                raw = sentence.strip().encode()
                cuts = (raw[at : at + self.length] for at in range(0, len(raw), self.length))
                yield from (cut.decode(errors="replace") for cut in cuts)
            else:
                words = words_of(sentence)
                for start in range(0, len(words), self.length):
                    yield " ".join(words[start : start + self.length])

    def encode(self, data: Texts) -> tuple[Tensor, Tensor]:
        """Rows [texts, length + 1] of symbols; what is longer than `length` is cut off. Texts have no classes."""
        texts = self.inputs(data)
        rows = np.zeros((len(texts), self.length + 1), dtype=np.int32)
        rows[:, 0] = START
        for row, text in zip(rows, texts, strict=True):
            symbols = self._symbols(text)[: self.length]
            row[1 : len(symbols) + 1] = symbols
        return torch.from_numpy(rows), torch.zeros(len(texts), dtype=torch.int64)

    def _symbols(self, text: str) -> list[int]:
        if self.by_bytes:
            return [byte + 2 for byte in text.encode()]
        return [self._numbers.get(word, UNKNOWN) for word in words_of(text)]

    def decode(self, x: Tensor, y: Tensor) -> pd.DataFrame:
        """A table with the column `text`."""
        return pd.DataFrame({"text": self.texts(x)})

    def texts(self, rows: Tensor) -> list[str]:
        """The texts of rows of symbols, each up to its first end; bytes that are no UTF-8 are marked."""
        return [
            self._text([symbol for symbol in _until_end(row) if symbol != START]) for row in rows.tolist()
        ]

    def _text(self, symbols: list[int]) -> str:
        if self.by_bytes:
            return bytes(symbol - 2 for symbol in symbols).decode(errors="replace")
        return " ".join(UNKNOWN_WORD if symbol == UNKNOWN else self.words[symbol - 3] for symbol in symbols)

    def write(self, data: Texts, path: Path | str) -> None:
        """Write a table with the column `text`."""
        write_table(pd.DataFrame({"text": self.inputs(data)}), path)

    def fits(self, data: Any) -> bool:
        """Tell whether these are texts."""
        listed = isinstance(data, Sequence) and not isinstance(data, str)
        return listed and all(isinstance(text, str) for text in data)

    def take(self, data: Texts, rows: np.ndarray) -> Texts:
        """Return these texts."""
        texts = self.inputs(data) if isinstance(data, pd.DataFrame) else data
        return tuple(texts[int(place)] for place in (np.flatnonzero(rows) if rows.dtype == bool else rows))

    def join(self, parts: Sequence[Texts]) -> pd.DataFrame:
        """Return the texts of several sets."""
        return pd.DataFrame({"text": [text for part in parts for text in self.inputs(part)]})

    def inputs(self, data: Texts) -> list[str]:
        """Return the texts as a list."""
        return data["text"].astype(str).tolist() if isinstance(data, pd.DataFrame) else list(data)

    def random(self, rows: int, draw: np.random.Generator) -> Tensor:
        """Return symbols of chance."""
        written = torch.from_numpy(draw.integers(UNKNOWN, self.symbols, (rows, self.length + 1)))
        written[:, 0] = START
        return written.to(torch.int32)


def _until_end(row: list[int]) -> list[int]:
    return [int(symbol) for symbol in (row[: row.index(END)] if END in row else row)]


def text_clients_from(
    texts: Sequence[str],
    schema: Schema,
    *,
    owners: Sequence[str] | np.ndarray | None = None,
    clients: int | None = None,
    rng: Rng | None = None,
) -> RawClients:
    """Clients of texts, cut into the pieces that the schema's vocabulary and length make: by owner, or dealt."""
    modality = Text(schema)
    cut = [tuple(piece for piece in modality.pieces(text) if piece) for text in texts]
    pieces = tuple(piece for text in cut for piece in text)
    whole = clients_of(pieces, len(texts), owners=owners, clients=clients, rng=rng)
    return replace(whole, owner=np.repeat(whole.owner, [len(text) for text in cut]))


def read_texts(path: Path | str, text_column: str, client_column: str | None) -> pd.DataFrame:
    """Texts and their owners from JSON lines (plain or gzip), CSV or Parquet; texts without words are left out."""
    return _texts_in(_read_rows(Path(path)), path, text_column, client_column)


def _texts_in(
    frame: pd.DataFrame, source: Path | str, text_column: str, client_column: str | None
) -> pd.DataFrame:
    wanted = [text_column] if client_column is None else [text_column, client_column]
    for name in wanted:
        if name not in frame.columns:
            raise BadInput(
                f"{source}: has no column {name!r}; {nearest(name, [str(c) for c in frame.columns])}"
            )
    texts = frame[text_column]
    if not texts.dropna().map(lambda value: isinstance(value, str)).all():
        raise BadInput(
            f"{source}: column {text_column!r} holds something other than text; expected text in every row"
        )
    kept = frame[texts.fillna("").str.strip() != ""][wanted]
    if kept.empty:
        raise BadInput(f"{source}: column {text_column!r} has no text in any row")
    return kept.reset_index(drop=True)


def read_vocabulary(path: Path | str) -> tuple[str, ...]:
    """Public words out of a file with one a line, from the most frequent on; lower case, each once."""
    source = Path(path)
    words = dict.fromkeys(line.strip().lower() for line in _lines(source) if line.strip())
    wrong = next((word for word in words if words_of(word) != [word]), None)
    if wrong is not None:
        raise BadInput(
            f"{source}: {wrong!r} is not a single word; expected one word or punctuation mark per line"
        )
    if not words:
        raise BadInput(f"{source}: holds no words; expected one per line")
    return tuple(words)


def _lines(source: Path) -> list[str]:
    try:
        return source.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(f"{source}: cannot be read ({error.strerror}); expected a file of words") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _read_rows(source: Path) -> pd.DataFrame:
    if not source.name.endswith(_LINES):
        return read_rows(source)
    if not source.is_file():
        raise BadInput(f"{source}: there is no such file; check the path")
    opened = gzip.open if source.suffix == ".gz" else open
    rows: list[dict[str, Any]] = []
    with opened(source, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise BadInput(
                    f"{source}: line {number} is not UTF-8 (byte {error.start}); save it as UTF-8"
                ) from None
            except ValueError:
                raise BadInput(f"{source}: line {number} is not JSON; expected one object per line") from None
            if not isinstance(row, dict):
                raise BadInput(f"{source}: line {number} is not an object; expected one object per line")
            rows.append(row)
    return pd.DataFrame(rows)
