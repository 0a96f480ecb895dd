"""Polars: frames are sent and taken as columns where their text would say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import wrapt

from entrepot_pipes.hooks.calls import Call
from entrepot_pipes.hooks.exact import plain_types
from entrepot_pipes.hooks.transfers import receive, send
from entrepot_pipes.hooks.versions import takes_columns
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text_files import open_binary


def install(module: Any) -> None:
    """Wrap the functions of ``polars``, once it has been imported."""
    wrapt.wrap_function_wrapper(module.DataFrame, "write_csv", _write_csv)
    wrapt.wrap_function_wrapper(module.DataFrame, "write_parquet", _write_parquet)
    wrapt.wrap_function_wrapper(module, "read_csv", _read_csv)
    wrapt.wrap_function_wrapper(module, "scan_csv", _scan_csv)
    wrapt.wrap_function_wrapper(module, "read_parquet", _read_parquet)
    wrapt.wrap_function_wrapper(module, "scan_parquet", _scan_parquet)


def _as_table(frame: Any) -> pa.Table:
    import polars

    # Not Polars' own layout of text, which other programs do not know.
    table: pa.Table = frame.to_arrow(compat_level=polars.CompatLevel.oldest())
    return table


def _write_csv(wrapped: Callable[..., Any], frame: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "file", args, kwargs)
    if call.target is None:
        return call.ordinary()
    options = call.options()
    if options is not None and options.keys() <= {"separator"} and takes_columns("polars"):
        table, dialect = _as_table(frame), _dialect(options.get("separator", ","))
        if dialect is not None and table.num_columns and plain_types(table.schema, booleans=True):
            return send(call.target, table, dialect, lambda a, b, file: frame.slice(a, b - a).write_csv(file))
    with open_binary(call.name, call.target, "wb") as file:
        return call.with_file(file)


def _read_csv(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "source", args, kwargs)
    return call.ordinary() if call.target is None else _frame(call, kwargs)


def _scan_csv(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "source", args, kwargs)
    if call.target is None:
        return call.ordinary()
    frame = _frame(call, kwargs)
    return frame.lazy() if hasattr(frame, "to_arrow") else frame


def _frame(call: Call, kwargs: Any) -> Any:
    import polars

    assert call.target is not None
    options = call.options()
    dialect = _dialect(kwargs.get("separator", ","))
    if options is None or dialect is None or not options.keys() <= {"separator"} or not takes_columns("polars"):
        with open_binary(call.name, call.target, "rb") as file:
            return call.with_file(file.read())
    received = receive(call.target)
    table = received.exact(dialect.delimiter)
    return polars.from_arrow(table) if table is not None else call.with_file(received.text(dialect))


def _dialect(separator: Any) -> Dialect | None:
    plain = isinstance(separator, str) and len(separator) == 1 and separator.isascii() and separator not in '"\r\n\0'
    return Dialect(delimiter=separator) if plain else None


def _write_parquet(wrapped: Callable[..., Any], frame: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "file", args, kwargs)
    if call.target is None:
        return call.ordinary()
    if kwargs.get("partition_by") is not None:
        raise call.refuse("partition_by makes a folder of files; leave it out")
    return send(call.target, _as_table(frame))


def _read_parquet(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    import polars

    call = Call(wrapped, "source", args, kwargs)
    if call.target is None:
        return call.ordinary()
    received = receive(call.target)
    options = call.options()
    if options is None or options.keys() - {"columns"} or not takes_columns("polars"):
        return call.with_file(received.parquet())
    table = received.table
    return polars.from_arrow(table.select(options["columns"]) if options.get("columns") else table)


def _scan_parquet(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    import polars

    call = Call(wrapped, "source", args, kwargs)
    if call.target is None:
        return call.ordinary()
    received = receive(call.target)
    if call.options() or not takes_columns("polars"):
        return call.with_file(received.parquet())
    frame: Any = polars.from_arrow(received.table)
    return frame.lazy()
