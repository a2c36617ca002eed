"""Texts in and out: read with their owners, cut into pieces, turned into symbols of a public vocabulary and back."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedsynth.data.schema import Schema
from fedsynth.data.table import read_table
from fedsynth.errors import BadInput, nearest

END, START, UNKNOWN = 0, 1, 2
UNKNOWN_WORD = "UNK"
_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_LINES = (".jsonl", ".jsonl.gz")


def words_of(text: str) -> list[str]:
    """Lower-case words and punctuation marks.

    >>> words_of("I don't know, really.")
    ['i', "don't", 'know', ',', 'really', '.']
    """
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class TextEncoding:
    """Pieces of text as rows of symbols: a start, at most `length` symbols, ends up to the row's full width.

    With the vocabulary "bytes" a symbol is a byte of UTF-8 (258 with start and end); else a word of the public list,
    or the sign for one that is not in it.

    >>> encoding = TextEncoding(Schema(kind="text", vocabulary=("a", "b"), length=4))
    >>> encoding.encode(["B a, b"]).tolist()
    [[1, 4, 3, 2, 4]]
    >>> encoding.decode(torch.tensor([[1, 4, 3, 0, 0]]))
    ['b a']
    """

    schema: Schema

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

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Rows [texts, length + 1] of symbols; what is longer than `length` is cut off."""
        rows = np.zeros((len(texts), self.length + 1), dtype=np.int32)
        rows[:, 0] = START
        for row, text in zip(rows, texts, strict=True):
            symbols = self._symbols(text)[: self.length]
            row[1 : len(symbols) + 1] = symbols
        return torch.from_numpy(rows)

    def _symbols(self, text: str) -> list[int]:
        if self.by_bytes:
            return [byte + 2 for byte in text.encode()]
        return [self._numbers.get(word, UNKNOWN) for word in words_of(text)]

    def decode(self, rows: Tensor) -> list[str]:
        """The texts of rows of symbols, each up to its first end; bytes that are no UTF-8 are marked."""
        return [
            self._text([symbol for symbol in _until_end(row) if symbol != START]) for row in rows.tolist()
        ]

    def _text(self, symbols: list[int]) -> str:
        if self.by_bytes:
            return bytes(symbol - 2 for symbol in symbols).decode(errors="replace")
        return " ".join(UNKNOWN_WORD if symbol == UNKNOWN else self.words[symbol - 3] for symbol in symbols)


def _until_end(row: list[int]) -> list[int]:
    return [int(symbol) for symbol in (row[: row.index(END)] if END in row else row)]


def read_texts(path: Path | str, text_column: str, client_column: str | None) -> pd.DataFrame:
    """Texts and their owners from JSON lines (plain or gzip), CSV or Parquet; texts without words are left out."""
    source = Path(path)
    frame = _read_lines(source) if source.name.endswith(_LINES) else read_table(source)
    wanted = [text_column] if client_column is None else [text_column, client_column]
    for name in wanted:
        if name not in frame.columns:
            raise BadInput(
                f"{source}: has no column {name!r}; {nearest(name, [str(c) for c in frame.columns])}"
            )
    texts = frame[text_column]
    if not texts.dropna().map(lambda value: isinstance(value, str)).all():
        raise BadInput(
            f"{source}: column {text_column!r} holds something else than text; expected text in every row"
        )
    kept = frame[texts.fillna("").str.strip() != ""][wanted]
    if kept.empty:
        raise BadInput(f"{source}: column {text_column!r} has no text in any row")
    return kept.reset_index(drop=True)


def read_vocabulary(path: Path | str) -> tuple[str, ...]:
    """Public words out of a file with one a line, from the most frequent on; lower case, each once."""
    source = Path(path)
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(f"{source}: cannot be read ({error.strerror}); expected a file of words") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    words = dict.fromkeys(line.strip().lower() for line in lines if line.strip())
    wrong = next((word for word in words if words_of(word) != [word]), None)
    if wrong is not None:
        raise BadInput(f"{source}: {wrong!r} is no single word; expected one word or punctuation mark a line")
    if not words:
        raise BadInput(f"{source}: holds no words; expected one a line")
    return tuple(words)


def _read_lines(source: Path) -> pd.DataFrame:
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
                raise BadInput(f"{source}: line {number} is not JSON; expected one object a line") from None
            if not isinstance(row, dict):
                raise BadInput(f"{source}: line {number} is no object; expected one object a line")
            rows.append(row)
    return pd.DataFrame(rows)
