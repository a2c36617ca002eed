"""Tables and views of a database, or queries, through SQLAlchemy; read in one read-only transaction."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedsynth.data.sources.frames import ONE, Frames, frame_of
from fedsynth.data.sources.password import read_password
from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_CHUNK = 50_000  # rows that are held as Python objects at a time
_SECRET_KEYS = ("password", "passwd", "pwd", "sslpassword")


@dataclass(frozen=True)
class Database:
    """Where a database is and how to log in; the password lies elsewhere."""

    url: str
    password_variable: str | None = None
    password_file: str | None = None

    @contextmanager
    def open(self, folder: Path) -> Iterator[SqlReader]:
        """Connect, and read everything as of one moment; paths count from `folder`."""
        file = None if self.password_file is None else folder / self.password_file
        password = read_password(self.password_variable, file)
        try:
            import sqlalchemy
        except ImportError:
            raise BadInput(
                "kind='sql': SQLAlchemy is not installed; run pip install 'fedsynth[databases]'"
            ) from None
        errors = (sqlalchemy.exc.SQLAlchemyError, UnicodeError)
        try:
            engine = self._engine(folder, password)
            with engine.connect() as connection:
                yield SqlReader(connection)
        except errors as error:
            raise BadInput(f"{self._shown()}: {_reason(error, password)}") from None

    def _engine(self, folder: Path, password: str | None) -> Engine:
        import sqlalchemy

        try:
            url = sqlalchemy.make_url(self.url)
        except sqlalchemy.exc.ArgumentError:  # the text of that error has the address in it, password and all
            raise BadInput(
                "url: not the address of a database; expected for example postgresql://reader@db.example.org/ehr"
            ) from None
        if url.password is not None or any(key in url.query for key in _SECRET_KEYS):
            raise BadInput(
                "url: holds a password; take it out, and name a password_variable or a password_file instead"
            )
        options: dict[str, Any] = {}
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        if url.get_backend_name() == "postgresql":
            options = {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
        if url.get_backend_name() == "sqlite":
            file = folder / (url.database or "")
            if not file.is_file():
                raise BadInput(f"url: there is no database file {file}; check the path")
            url = url.set(database=f"file:{file.resolve()}", query={"mode": "ro", "uri": "true"})
        try:
            engine = sqlalchemy.create_engine(
                url.set(password=password) if password else url,
                hide_parameters=True,
                poolclass=sqlalchemy.NullPool,
            )
        except ImportError as error:
            advice = "run pip install 'fedsynth[databases]'" if "psycopg" in str(error) else "install it"
            raise BadInput(f"url: the driver {error.name!r} is not installed; {advice}") from None
        return engine.execution_options(**options) if options else engine

    def _shown(self) -> str:
        import sqlalchemy

        return sqlalchemy.make_url(self.url).render_as_string(hide_password=True)


@dataclass(frozen=True)
class SqlReader:
    """An open connection that only reads."""

    connection: Connection

    def select(self, query: str) -> pd.DataFrame:
        """Return the rows of a query, chunk by chunk."""
        import sqlalchemy

        text = sqlalchemy.text(query.replace(":", r"\:"))
        with self.connection.execution_options(stream_results=True).execute(text) as result:
            names = list(map(str, result.keys()))
            chunks = [frame_of(names, rows) for rows in result.partitions(_CHUNK)]
        return pd.concat(chunks, ignore_index=True) if chunks else frame_of(names, [])

    def tables(self, schema: str | None = None) -> dict[str, str]:
        """Return the tables and views of a database's schema: as they are written in a query, by lower-case name."""
        import sqlalchemy

        inspector = sqlalchemy.inspect(self.connection)
        names = [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
        return {name.lower(): self.quoted(f"{schema}.{name}" if schema else name) for name in names}

    def quoted(self, name: str) -> str:
        """Return a table's name, as SCHEMA.NAME or NAME, as a query has it."""
        return ".".join(map(self.connection.dialect.identifier_preparer.quote, name.split(".")))


@dataclass(frozen=True)
class Sql:
    """One table or several, each a view (or table) of the database or a query that the site writes."""

    url: str
    view: str | None = None
    query: str | None = None
    tables: Mapping[str, str] = field(default_factory=dict)  # name of the table -> view or query
    password_variable: str | None = None
    password_file: str | None = None

    def read(self, folder: Path, names: Collection[str] | None = None, cell_by_cell: bool = False) -> Frames:
        """Return the rows."""
        wanted = queries(self.view, self.query, self.tables, names)
        with Database(self.url, self.password_variable, self.password_file).open(folder) as reader:
            return {
                name: reader.select(text if is_query(text) else f"SELECT * FROM {reader.quoted(text)}")
                for name, text in wanted.items()
            }


def queries(
    view: str | None, query: str | None, tables: Mapping[str, str], names: Collection[str] | None
) -> dict[str, str]:
    """Return a view or query for each wanted table, or say what is missing or too much."""
    given = [key for key, value in {"view": view, "query": query, "tables": tables}.items() if value]
    if len(given) != 1:
        raise BadInput(
            f"{' and '.join(given) or 'view, query and tables'}: expected one of view, query and [tables]"
        )
    if query is not None and not is_query(query):
        raise BadInput(
            "query: expected a text that begins with SELECT or WITH; a view is named by view = ..."
        )
    if tables:
        absent = [name for name in names or () if name not in tables]
        if absent:
            raise BadInput(
                f"[tables] {absent[0]}: missing; the schema has this table: give it a view or query"
            )
        return {name: tables[name] for name in names or tables}
    return {ONE: query or view or ""}


def is_query(text: str) -> bool:
    """Tell a query from the name of a view.

    >>> is_query("select * from visits"), is_query("research.visits")
    (True, False)
    """
    return re.match(r"\s*(--[^\n]*\n\s*)*(select|with)\s", text, re.IGNORECASE) is not None


def _reason(error: Exception, password: str | None) -> str:
    """Return the first line of a database's message, without the password."""
    message = str(getattr(error, "orig", None) or error).strip().splitlines()
    line = message[0] if message else type(error).__name__
    return (
        line.replace(password, "***") if password else line
    ) + "; check the address, the user and the query"
