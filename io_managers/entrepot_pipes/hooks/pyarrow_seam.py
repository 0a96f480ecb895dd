"""PyArrow: tables are sent and taken as they are where their text would say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import wrapt

from entrepot_pipes.hooks.calls import Call
from entrepot_pipes.hooks.exact import plain_types
from entrepot_pipes.hooks.transfers import receive, send
from entrepot_pipes.hooks.versions import takes_columns
from entrepot_pipes.text_files import open_binary


def install_csv(module: Any) -> None:
    """Wrap the functions of ``pyarrow.csv``, once it has been imported."""
    wrapt.wrap_function_wrapper(module, "read_csv", _read_csv)
    wrapt.wrap_function_wrapper(module, "open_csv", _open_csv)
    wrapt.wrap_function_wrapper(module, "write_csv", _write_csv)


def install_parquet(module: Any) -> None:
    """Wrap the functions of ``pyarrow.parquet``, once it has been imported."""
    wrapt.wrap_function_wrapper(module, "read_table", _read_table)
    wrapt.wrap_function_wrapper(module, "write_table", _write_table)


def _read_csv(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "input_file", args, kwargs)
    if call.target is None:
        return call.ordinary()
    if len(args) > 1 or kwargs.keys() - {"input_file"} or not takes_columns("pyarrow"):
        with open_binary(call.name, call.target, "rb") as file:
            return call.with_file(file)
    received = receive(call.target)
    table = received.exact()
    # PyArrow reads text that is not there as empty.
    missing_text = table is not None and any(
        pa.types.is_string(column.type) and column.null_count for column in table.columns
    )
    return call.with_file(received.text()) if table is None or missing_text else table


def _open_csv(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "input_file", args, kwargs)
    if call.target is None:
        return call.ordinary()
    return call.with_file(open_binary(call.name, call.target, "rb"))


def _write_csv(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    given = dict(zip(("data", "output_file", "write_options", "memory_pool"), args, strict=False)) | kwargs
    call = Call(wrapped, "output_file", (given.get("output_file"),), {})
    if call.target is None:
        return wrapped(*args, **kwargs)
    data = given["data"]
    plain = given.get("write_options") is None and given.get("memory_pool") is None and hasattr(data, "schema")
    if plain and takes_columns("pyarrow") and hasattr(data, "num_rows") and plain_types(data.schema, booleans=True):
        table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
        if table.num_columns and not _has_whole_doubles(table):
            return send(call.target, table, None, lambda a, b, file: wrapped(table.slice(a, b - a), file))
    with open_binary(call.name, call.target, "wb") as file:
        return wrapped(**{**given, "output_file": file})


def _has_whole_doubles(table: pa.Table) -> bool:
    """Whether a double would be read as an integer: PyArrow writes 1.0 as 1."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    doubles = [column for column in table.columns if column.type == pa.float64()]
    return any(compute.any(compute.equal(compute.trunc(column), column)).as_py() for column in doubles)


def _read_table(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "source", args, kwargs)
    if call.target is None:
        return call.ordinary()
    received = receive(call.target)
    options = call.options()
    if options is None or options.keys() - {"columns"} or not takes_columns("pyarrow"):
        return call.with_file(received.parquet())
    table = received.table
    return table.select(options["columns"]) if options.get("columns") else table


def _write_table(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    given = dict(zip(("table", "where"), args, strict=False)) | kwargs
    call = Call(wrapped, "where", (given.get("where"),), {})
    return wrapped(*args, **kwargs) if call.target is None else send(call.target, given["table"])
