"""pandas: frames are sent and taken as columns where their text would say the same."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import wrapt

from entrepot_pipes.hooks.calls import Call
from entrepot_pipes.hooks.exact import plain_types
from entrepot_pipes.hooks.transfers import receive, send
from entrepot_pipes.hooks.versions import takes_columns
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text_files import open_binary, open_text


def install(module: Any) -> None:
    """Wrap the functions of ``pandas``, once it has been imported."""
    wrapt.wrap_function_wrapper(module.DataFrame, "to_csv", _to_csv)
    wrapt.wrap_function_wrapper(module.DataFrame, "to_json", _to_json)
    wrapt.wrap_function_wrapper(module.DataFrame, "to_parquet", _to_parquet)
    wrapt.wrap_function_wrapper(module, "read_csv", _read_csv)
    wrapt.wrap_function_wrapper(module, "read_json", _read_json)
    wrapt.wrap_function_wrapper(module, "read_parquet", _read_parquet)


# --- CSV


def _to_csv(wrapped: Callable[..., Any], frame: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "path_or_buf", args, kwargs)
    if call.target is None:
        return call.ordinary()
    options = call.options()
    if options is not None and options.keys() <= {"sep", "index"} and takes_columns("pandas"):
        dialect = _dialect(options.get("sep", ","))
        table = _as_table(frame, with_index=kwargs.get("index", True))
        if dialect is not None and table is not None:
            own = {name: value for name, value in options.items() if name == "index"}

            def write_rows(start: int, stop: int, file: str) -> None:
                frame.iloc[start:stop].to_csv(file, **own)

            return send(call.target, table, dialect, write_rows)
    mode = kwargs.get("mode", "w")
    with open_text(call.name, call.target, mode, kwargs.get("encoding"), kwargs.get("errors"), newline="") as file:
        return call.with_file(file)


def _as_table(frame: Any, with_index: bool) -> pa.Table | None:
    """The frame's columns, if their text is that of Arrow's columns; ``None`` otherwise."""
    columns: list[tuple[Any, Any]] = [(name, frame.iloc[:, at]) for at, name in enumerate(frame.columns)]
    if with_index:
        if frame.index.nlevels > 1:
            return None
        columns.insert(0, ("" if frame.index.name is None else frame.index.name, frame.index))
    if not columns or not all(isinstance(name, str) for name, _ in columns):
        return None
    try:
        arrays = [pa.array(values, from_pandas=True) for _, values in columns]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):  # a column of mixed types
        return None
    schema = pa.schema([pa.field(name, array.type) for (name, _), array in zip(columns, arrays, strict=True)])
    return pa.Table.from_arrays(arrays, schema=schema) if plain_types(schema) else None


def _read_csv(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "filepath_or_buffer", args, kwargs)
    if call.target is None:
        return call.ordinary()
    options = call.options()
    dialect = _dialect(options.get("sep", ",")) if options is not None else None
    understood = options is not None and options.keys() <= {"sep", "usecols"} and _names_only(options.get("usecols"))
    if options is None or dialect is None or not understood or not takes_columns("pandas"):
        return call.with_file(open_binary(call.name, call.target, "rb"))
    received = receive(call.target)
    table = received.exact(dialect.delimiter)
    wanted = options.get("usecols")
    if table is None or (wanted is not None and not set(wanted) <= set(table.schema.names)):
        return call.with_file(received.text(dialect))
    del received
    if wanted is not None:
        table = table.select([name for name in table.schema.names if name in set(wanted)])
    return table.to_pandas()


def _dialect(separator: Any) -> Dialect | None:
    if not isinstance(separator, str) or len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0':
        return None
    return Dialect(delimiter=separator)


def _names_only(wanted: Any) -> bool:
    if wanted is None:
        return True
    return isinstance(wanted, (list, tuple)) and bool(wanted) and all(isinstance(name, str) for name in wanted)


# --- JSON: pandas rounds what it writes and guesses dates in what it reads, so that its text stays text


def _to_json(wrapped: Callable[..., Any], frame: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "path_or_buf", args, kwargs)
    if call.target is None:
        return call.ordinary()
    with open_text(call.name, call.target, kwargs.get("mode", "w"), newline="") as file:
        return call.with_file(file)


def _read_json(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "path_or_buf", args, kwargs)
    if call.target is None:
        return call.ordinary()
    return call.with_file(open_binary(call.name, call.target, "rb"))


# --- Parquet: columns already


def _to_parquet(wrapped: Callable[..., Any], frame: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "path", args, kwargs)
    if call.target is None:
        return call.ordinary()
    if kwargs.get("partition_cols") is not None:
        raise call.refuse("partition_cols makes a folder of files; leave it out")
    # pandas prepares index and metadata itself; what it writes is read again from memory.
    import pyarrow.parquet as pq

    file = io.BytesIO()
    call.with_file(file, compression=None)
    return send(call.target, pq.read_table(pa.BufferReader(file.getbuffer())))


def _read_parquet(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    call = Call(wrapped, "path", args, kwargs)
    if call.target is None:
        return call.ordinary()
    received = receive(call.target)
    options = call.options()
    if options is not None and options.keys() <= {"columns", "engine"} and takes_columns("pandas"):
        table = received.table
        return (table.select(options["columns"]) if options.get("columns") else table).to_pandas()
    return call.with_file(received.parquet())
