"""Files of tables: CSV and Parquet in and out."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from fedsynth.data.atomic import replacing
from fedsynth.data.column import NUMBERS
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.late import pd

EXTENSIONS = (".csv", ".csv.gz", ".parquet")
# "None" and "?" are not here: they are often a category. A category of the schema is never missing.
MISSING_TEXTS = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")
NAMELESS = "Unnamed: "  # and its place: pandas' name of a column that has none in the first line
_OTHER_MARKS = (";", "\t", "|")
_AS_WRITTEN: dict[str, Any] = {
    "keep_default_na": False, "encoding": "utf-8", "low_memory": False, "index_col": False,
}  # fmt: skip


def read_table(
    path: Path | str, schema: Schema | None = None, *, as_written: bool = False, may_be_empty: bool = False
) -> pd.DataFrame:
    """Read a CSV, CSV.gz or Parquet file.

    With a schema, all but its columns of numbers are kept as they are written in a CSV file ("007" stays "007");
    `as_written` keeps all columns so, because a type that is guessed from a whole column lets one row change the rest.
    """
    source = Path(path)
    extension = _extension(source)
    if not source.is_file():
        raise BadInput(f"{source}: there is no such file; check the path")
    try:
        frame = _read_parquet(source) if extension == ".parquet" else _read_csv(source, schema, as_written)
    except UnicodeDecodeError:
        raise BadInput(
            f"{source}: line {_first_bad_line(source)} is not UTF-8; save it again as UTF-8"
        ) from None
    except BadInput:
        raise
    except pd.errors.EmptyDataError:
        raise BadInput(f"{source}: is empty; expected a first line with the names of the columns") from None
    except pd.errors.ParserWarning:
        raise BadInput(
            f"{source}: cannot be read as {extension}, because rows have more cells than the first line has names; "
            "remove lines above the names and name every column"
        ) from None
    except (OSError, EOFError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(f"{source}: cannot be read as {extension} ({reason}); check the file") from None
    if not len(frame) and not may_be_empty:
        raise BadInput(f"{source}: has no rows; expected at least one")
    return frame


def write_table(frame: pd.DataFrame, path: Path | str) -> None:
    """Write a CSV, CSV.gz or Parquet file, whole or not at all."""
    target = Path(path)
    extension = _extension(target)
    with replacing(target) as temporary:
        if extension == ".parquet":
            frame.to_parquet(temporary, index=False)
        else:
            frame.to_csv(temporary, index=False, compression="gzip" if extension == ".csv.gz" else None)


def write_parts(parts: Iterable[pd.DataFrame], path: Path | str) -> None:
    """Write one such file out of tables with the same columns, of which one at a time is in memory."""
    target, some = Path(path), iter(parts)
    first = next(some)
    second = next(some, None)
    if second is None:
        write_table(first, target)
        return
    whole, extension = chain([first, second], some), _extension(target)
    with replacing(target) as temporary:
        if extension == ".parquet":
            _write_parquet(whole, temporary)
            return
        opened: Any = gzip.open if extension == ".csv.gz" else open
        with opened(temporary, "wt", newline="", encoding="utf-8") as file:
            for number, part in enumerate(whole):
                part.to_csv(file, index=False, header=number == 0)


def _write_parquet(parts: Iterator[pd.DataFrame], path: Path) -> None:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    first = pyarrow.Table.from_pandas(next(parts), preserve_index=False)
    with ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for part in parts:
            writer.write_table(pyarrow.Table.from_pandas(part, first.schema, preserve_index=False))


def list_tables(folder: Path) -> dict[str, Path]:
    """Return the files of tables in a folder, by the name of the table."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder; expected one with CSV or Parquet files")
    return {
        file.name[: -len(ending)]: file
        for ending in reversed(EXTENSIONS)
        for file in sorted(folder.iterdir())
        if file.name.lower().endswith(ending)
    }


def _first_bad_line(path: Path) -> int:
    """The number of the first line that is not UTF-8: a reader counts bytes from anywhere."""
    opened: Any = gzip.open if _extension(path) == ".csv.gz" else open
    with opened(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _extension(path: Path) -> str:
    for extension in EXTENSIONS:
        if path.name.lower().endswith(extension):
            return extension
    raise BadInput(
        f"{path}: unknown kind of table {path.suffix!r}; expected a name ending in {', '.join(EXTENSIONS)}"
    )


def _read_parquet(path: Path) -> pd.DataFrame:
    frame = pd.read_parquet(path)
    if isinstance(frame.index, pd.RangeIndex) and frame.index.name is None:
        return frame
    named = frame.index.name is not None or isinstance(frame.index, pd.MultiIndex)
    return frame.reset_index(drop=not named)


def _read_csv(path: Path, schema: Schema | None, as_written: bool) -> pd.DataFrame:
    names = [name or f"{NAMELESS}{place}" for place, name in enumerate(_header(path))]
    other = [mark for mark in _OTHER_MARKS if mark in names[0]] if len(names) == 1 else []
    if other:  # as spreadsheets write it where a comma is the decimal point
        raise BadInput(
            f"{path}: its first line has {other[0]!r} between the names; save it with commas between the columns and "
            "a point in numbers"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:  # pandas would rename the second one without a word
        raise BadInput(f"{path}: column {twice[0]!r} is there twice; rename one")
    words = (
        {}
        if schema is None
        else {column.name: column.categories or () for column in schema.columns if column.type not in NUMBERS}
    )
    own = {} if schema is None else {column.name: column.missing_values for column in schema.columns}
    absent = {
        name: [text for text in (*MISSING_TEXTS, *own.get(name, ())) if text not in words.get(name, ())]
        for name in names
    }
    kept = {*words, *(() if schema is None else (schema.client,)), *(names if as_written else ())}
    types = {name: "str" for name in names if name in kept}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header: else cut off
        return pd.read_csv(path, dtype=types, na_values=absent, **_AS_WRITTEN)


def _header(path: Path) -> list[str]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        first = pd.read_csv(file, header=None, nrows=1, dtype="str", keep_default_na=False, encoding="utf-8")
    return [str(name) for name in first.iloc[0]]
