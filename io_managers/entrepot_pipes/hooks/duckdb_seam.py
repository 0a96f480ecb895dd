"""DuckDB: ``COPY``, ``read_csv`` and ``read_parquet`` of reserved names give and take Arrow data.

What DuckDB reads otherwise, it reads as a file in memory, because it opens files more than once; what it writes
otherwise goes through an anonymous pipe of the system, as text in blocks.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import wrapt

from entrepot_pipes import pipe
from entrepot_pipes.hooks.callers import as_caller
from entrepot_pipes.hooks.duckdb_sql import Copy, Source, find_sources, mentions_pipe, parse_copy
from entrepot_pipes.hooks.exact import plain_types
from entrepot_pipes.hooks.transfers import receive, send_batches
from entrepot_pipes.hooks.versions import takes_columns
from entrepot_pipes.names import PipeName
from entrepot_pipes.text.dialect import Dialect

_BATCH_ROWS = 1 << 16
_BLOCK_BYTES = 1 << 20
_WRITER_SECONDS = 300.0
_numbers = itertools.count()

# Arrow types that a column of such a type in DuckDB takes as it would take their text.
_SAME_AS_TEXT = {
    "BIGINT": pa.int64(),
    "INTEGER": pa.int64(),
    "SMALLINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
}


def install(module: Any) -> None:
    """Wrap the functions of ``duckdb``, once it has been imported."""
    for name in ("execute", "sql", "query"):
        wrapt.wrap_function_wrapper(module.DuckDBPyConnection, name, _on_connection)
        wrapt.wrap_function_wrapper(module, name, _on_module(module, name))
    for name in ("read_csv", "read_parquet"):
        wrapt.wrap_function_wrapper(module.DuckDBPyConnection, name, _reading(name))
        wrapt.wrap_function_wrapper(module, name, _reading_on_module(module, name))
    for name in ("write_csv", "to_csv", "write_parquet", "to_parquet"):
        wrapt.wrap_function_wrapper(module.DuckDBPyRelation, name, _writing(name))


def _on_connection(wrapped: Callable[..., Any], connection: Any, args: Any, kwargs: Any) -> Any:
    call = as_caller(sys._getframe(1))
    sql = args[0] if args else kwargs.get("query")
    if not isinstance(sql, str) or not mentions_pipe(sql):
        return call(wrapped, *args, **kwargs)
    result: Any = None
    statements = [statement.query for statement in connection.extract_statements(sql)]
    kwargs = {name: value for name, value in kwargs.items() if name != "query"}
    for number, statement in enumerate(statements):
        run = _Runner(connection, wrapped, call, *((args[1:], kwargs) if number == len(statements) - 1 else ((), {})))
        result = _run(run, statement)
    return result


class _Runner:
    """Runs statements as the program would: on its connection, with its variables as tables, and its parameters."""

    def __init__(self, connection: Any, wrapped: Callable[..., Any], call: Callable[..., Any], args: Any, kwargs: Any):
        self.connection = connection
        self._wrapped = wrapped
        self._call = call
        self._args = args  # beside the SQL, of the last statement of several
        self._kwargs = kwargs

    @property
    def plain(self) -> bool:
        """Without parameters."""
        return not self._args and not self._kwargs

    def result(self, statement: str) -> Any:
        """What the program gets."""
        return self._call(self._wrapped, statement, *self._args, **self._kwargs)

    def execute(self, statement: str) -> Any:
        """A statement that the program does not see."""
        return self._call(_unwrapped(self.connection, "execute"), statement)


def _unwrapped(owner: Any, name: str) -> Callable[..., Any]:
    method = getattr(owner, name)
    plain: Callable[..., Any] = getattr(method, "__wrapped__", method)
    return plain


def _on_module(module: Any, name: str) -> Callable[..., Any]:
    def wrapper(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        call = as_caller(sys._getframe(1))
        sql = args[0] if args else kwargs.get("query")
        if not isinstance(sql, str) or not mentions_pipe(sql):
            return call(wrapped, *args, **kwargs)
        connection = kwargs.get("connection") or module.default_connection()
        rest = {name: value for name, value in kwargs.items() if name != "connection"}
        return call(getattr(connection, name), *args, **rest)

    return wrapper


def _run(run: _Runner, statement: str) -> Any:
    copy = parse_copy(statement)
    if copy is None:
        for source in find_sources(statement):
            statement = statement[: source.start] + _taken(run.connection, source) + statement[source.end :]
        return run.result(statement)
    columns = run.plain and takes_columns("duckdb")
    if copy.writes:
        rows = _copy_to(run, copy) if columns else None
        if rows is None:
            with _Sink(copy.target, _dialect(copy.options)) as path:
                return run.result(statement.replace(copy.file, f"'{path}'"))
    else:
        rows = _copy_from(run, copy) if columns else None
        if rows is None:
            path = _file_in_memory(copy.target)
            return run.result(statement.replace(copy.file, f"'{path}'"))
    return run.result(f'SELECT {rows}::BIGINT AS "Count"')


# --- COPY ... TO


def _dialect(options: dict[str, str] | None) -> Dialect | None:
    """The dialect that these options say, if they say nothing else."""
    if options is None or options.keys() - {"FORMAT", "HEADER", "DELIMITER", "DELIM", "SEP"}:
        return None
    delimiter = options.get("DELIMITER", options.get("DELIM", options.get("SEP", ",")))
    plain = len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n\0'
    if options.get("FORMAT", "csv").lower() != "csv" or not plain:
        return None
    header = options.get("HEADER", "true").lower()
    return (
        Dialect(delimiter=delimiter, header=header in ("true", "1")) if header in ("true", "1", "false", "0") else None
    )


def _copy_to(run: _Runner, copy: Copy) -> int | None:
    """Send what is copied as columns; ``None``: it has to be text."""
    parquet = copy.options is not None and copy.options.get("FORMAT", "").lower() == "parquet"
    dialect = _dialect(copy.options)
    if not parquet and (dialect is None or not dialect.header):
        return None
    reader = _arrow_reader(run.execute(copy.query))
    if not parquet and not plain_types(reader.schema, booleans=True):
        return None
    return send_batches(copy.target, reader.schema, reader, dialect)


def _arrow_reader(result: Any) -> pa.RecordBatchReader:
    # Newer versions have the one, older ones the other.
    make = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch
    reader: pa.RecordBatchReader = make(_BATCH_ROWS)
    return reader


class _Sink:
    """A path for DuckDB to write to, whose text goes into a pipe."""

    def __init__(self, target: PipeName, dialect: Dialect | None) -> None:
        self._export = pipe.open_export(target, form="text", dialect=dialect)
        self._read_end, self._write_end = os.pipe()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._pump, name="entrepot-pipe", daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"/proc/self/fd/{self._write_end}"

    def _pump(self) -> None:
        try:
            while block := os.read(self._read_end, _BLOCK_BYTES):
                self._export.write_text(block)
        except BaseException as error:  # is raised in the thread of the program
            self._error = error
        finally:
            os.close(self._read_end)  # so that a write of DuckDB's fails instead of waiting

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        os.close(self._write_end)
        self._thread.join(_WRITER_SECONDS)
        if kind is not None or self._error is not None:
            self._export.abort(str(error or self._error))
            if self._error is not None:
                raise self._error
            return
        self._export.close()


# --- COPY ... FROM, read_csv


def _copy_from(run: _Runner, copy: Copy) -> int | None:
    """Insert columns into a table whose types are theirs; ``None``: the text has to be read."""
    dialect = _dialect(copy.options)
    if dialect is None or not dialect.header or not re.fullmatch(r'[\w."]+', copy.what):
        return None
    types = run.execute(f"DESCRIBE {copy.what}").fetchall()
    if any(row[1] not in _SAME_AS_TEXT for row in types):
        return None
    received = receive(copy.target)
    table = received.exact(dialect.delimiter)
    if table is None or table.schema.types != [_SAME_AS_TEXT[row[1]] for row in types]:
        path = _bytes_in_memory(received.text(dialect).getbuffer())
        ((rows,),) = run.execute(f"COPY {copy.what} FROM '{path}' {copy.option_text}").fetchall()
        return int(rows)
    name = _register(run.connection, table)
    run.execute(f"INSERT INTO {copy.what} FROM {name}")
    run.connection.unregister(name)
    return int(table.num_rows)


def _taken(connection: Any, source: Source) -> str:
    """What stands in a query for a pipe: a table, or a file in memory."""
    if not source.alone or not takes_columns("duckdb"):
        return f"'{_file_in_memory(source.target)}'"
    received = receive(source.target)
    table = received.table if source.parquet else received.exact()
    if table is None:
        path = _bytes_in_memory(received.text().getbuffer())
        return f"read_csv('{path}')"
    return _register(connection, table)


def _register(connection: Any, table: pa.Table) -> str:
    """A name for the table, which stays as long as the connection: relations read it whenever they are used."""
    name = f"entrepot_pipe_{os.getpid()}_{next(_numbers)}"
    connection.register(name, table)
    return name


def _file_in_memory(target: PipeName) -> str:
    with pipe.open_import(target, form="text") as opened:
        return _bytes_in_memory(opened.read_text())


_files: list[int] = []  # open until the end of the process, as relations read them whenever they are used


def _bytes_in_memory(data: Any) -> str:
    number = os.memfd_create("entrepot-pipe")
    with open(number, "wb", closefd=False) as file:
        file.write(data)
    _files.append(number)
    return f"/proc/self/fd/{number}"


# --- methods instead of SQL


def _pipe_path(args: Any, kwargs: Any, parameter: str) -> str | None:
    path = args[0] if args else kwargs.get(parameter)
    return path if isinstance(path, str) and mentions_pipe(f"'{path}'") else None


def _reading(name: str) -> Callable[..., Any]:
    def wrapper(wrapped: Callable[..., Any], connection: Any, args: Any, kwargs: Any) -> Any:
        path = _pipe_path(args, kwargs, "path_or_buffer")
        if path is None:
            return wrapped(*args, **kwargs)
        if len(args) == 1 and not kwargs:
            return connection.sql(f"FROM {name}('{path}')")
        (source,) = find_sources(f"'{path}'")
        if name == "read_parquet":
            return wrapped(_bytes_in_memory(receive(source.target).parquet().getbuffer()), *args[1:], **kwargs)
        rest = {key: value for key, value in kwargs.items() if key != "path_or_buffer"}
        return wrapped(_file_in_memory(source.target), *args[1:], **rest)

    return wrapper


def _reading_on_module(module: Any, name: str) -> Callable[..., Any]:
    def wrapper(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        if _pipe_path(args, kwargs, "path_or_buffer") is None:
            return wrapped(*args, **kwargs)
        rest = {key: value for key, value in kwargs.items() if key != "connection"}
        return getattr(kwargs.get("connection") or module.default_connection(), name)(*args, **rest)

    return wrapper


def _writing(name: str) -> Callable[..., Any]:
    parquet = "parquet" in name

    def wrapper(wrapped: Callable[..., Any], relation: Any, args: Any, kwargs: Any) -> Any:
        path = _pipe_path(args, kwargs, "file_name")
        if path is None:
            return wrapped(*args, **kwargs)
        (source,) = find_sources(f"'{path}'")
        rest = {key: value for key, value in kwargs.items() if key != "file_name"}
        if parquet or (len(args) <= 1 and not rest and takes_columns("duckdb")):
            reader = _arrow_reader(relation)
            if parquet or plain_types(reader.schema, booleans=True):
                send_batches(source.target, reader.schema, reader, None if parquet else Dialect())
                return None
        with _Sink(source.target, None) as sink:
            return wrapped(sink, *args[1:], **rest)

    return wrapper
