"""Decoders of Parquet, CSV and Arrow IPC files: each yields the parts of one table, in order.

Parquet is decoded by row groups, a few at a time, and IPC one record batch at a time, so that the caller can store each
part before the rest is decoded. CSV is decoded as a whole, because the types of its columns follow from all its rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from itertools import islice
from typing import Any

from entrepot._readers.cache_key import option_names
from entrepot._readers.sources import FileSet, Source
from entrepot.errors import InvalidArgument


class Format(ABC):
    """A file format with the options of one read.

    Raises:
        InvalidArgument: PyArrow is not installed.
    """

    def __init__(self) -> None:
        if find_spec("pyarrow") is None:
            raise InvalidArgument("reading files needs PyArrow: pip install pyarrow")

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """All that determines the table, apart from the files."""

    @abstractmethod
    def parts(self, source: Source, files: FileSet) -> Iterator[Any]:
        """Decode the files; yield one or more ``pyarrow.Table`` of one schema.

        Raises:
            InvalidArgument: a column does not exist, or the format takes no several files.
            Anything that pyarrow raises.
        """


class Parquet(Format):
    """Parquet files, as ``pyarrow.parquet.read_table`` reads them.

    Args:
        columns: names, in the order of the result; None: all.
        filters: a ``pyarrow.compute.Expression``, or lists of tuples; None: all rows.
        dictionary: columns to read dictionary-encoded.
    """

    def __init__(self, columns: Sequence[str] | None, filters: Any, dictionary: Sequence[str]) -> None:
        super().__init__()
        self._columns = checked_columns("columns", columns)
        self._dictionary = sorted(set(checked_columns("dictionary", dictionary) or ()))
        self._filter = _expression_of(filters)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "format": "parquet",
            "pyarrow": _arrow_version(),
            "columns": self._columns,
            "dictionary": self._dictionary,
            "filter": self._filter,
        }

    def parts(self, source: Source, files: FileSet) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        dataset = pq.ParquetDataset(
            files.target,
            filesystem=source.arrow_file_system(),
            filters=self._filter,
            read_dictionary=self._dictionary or None,
            pre_buffer=True,
        )
        schema = dataset.schema
        check_columns_exist("column", self._columns or (), schema.names, nested=True)
        check_columns_exist("dictionary column", self._dictionary, schema.names, nested=True)
        selection = {"schema": schema, "columns": self._columns, "filter": self._filter}
        row_groups = (
            row_group
            for fragment in dataset.fragments
            for row_group in fragment.split_by_row_group(filter=self._filter, schema=schema)
        )
        decoded = False
        try:
            for table in _decoded_ahead(row_groups, selection, len(self._columns or schema.names)):
                yield _storable(table)
                decoded = True
                del table  # while it waits for the next one
            if not decoded:  # no row group can have a matching row
                yield _storable(dataset.read(columns=self._columns))
        except pa.ArrowInvalid as error:
            if "No match for FieldRef" not in str(error):
                raise
            raise InvalidArgument(
                f"a filter names an unknown column; {_list_columns(schema.names)}: {error}"
            ) from error


class Csv(Format):
    """A CSV file, as ``pyarrow.csv.read_csv`` reads it.

    Args:
        columns: names, in the order of the result; None: all.
        dictionary: text columns to encode as dictionaries.
        read_options, parse_options, convert_options: of ``pyarrow.csv``; None: its defaults.
    """

    def __init__(
        self,
        columns: Sequence[str] | None,
        dictionary: Sequence[str],
        read_options: Any,
        parse_options: Any,
        convert_options: Any,
    ) -> None:
        super().__init__()
        self._columns = checked_columns("columns", columns)
        self._dictionary = sorted(set(checked_columns("dictionary", dictionary) or ()))
        self._read, self._parse, self._convert = read_options, parse_options, convert_options

    @property
    def options(self) -> dict[str, Any]:
        return {
            "format": "csv",
            "pyarrow": _arrow_version(),
            "columns": self._columns,
            "dictionary": self._dictionary,
            "read": self._read,
            "parse": self._parse,
            "convert": self._convert,
        }

    def parts(self, source: Source, files: FileSet) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        path = _single_file(files, "CSV")
        options = {"read_options": self._read, "parse_options": self._parse, "convert_options": self._conversion()}
        try:
            with _open_decompressed(source, path) as file:
                table = csv.read_csv(file, **options)
        except pa.ArrowKeyError as error:
            if "include_columns" not in str(error):
                raise
            with _open_decompressed(source, path) as file, csv.open_csv(file, self._read, self._parse) as reader:
                columns = reader.schema.names
            raise InvalidArgument(f"{_first_line(error)}; {_list_columns(columns)}") from error
        check_columns_exist("dictionary column", self._dictionary, table.schema.names)
        if self._columns is not None:
            table = table.select(self._columns)
        for name in self._dictionary:
            index = table.schema.get_field_index(name)
            if not pa.types.is_dictionary(table.schema.types[index]):
                table = table.set_column(index, name, table.column(index).dictionary_encode())
        yield table

    def _conversion(self) -> Any:
        """Return the options for converting text, with the columns to be converted."""
        from pyarrow import csv

        if not self._columns:
            return self._convert
        if self._convert is None:
            return csv.ConvertOptions(include_columns=list(dict.fromkeys(self._columns)))
        given = {name: getattr(self._convert, name) for name in option_names(self._convert)}
        if given["include_columns"]:
            raise InvalidArgument(
                "columns and include_columns in convert_options both select columns: pass one of them"
            )
        return csv.ConvertOptions(**{**given, "include_columns": list(dict.fromkeys(self._columns))})


class Ipc(Format):
    """An Arrow IPC file (also called Feather version 2) or stream.

    Args:
        columns: names, in the order of the result; None: all.
    """

    def __init__(self, columns: Sequence[str] | None) -> None:
        super().__init__()
        self._columns = checked_columns("columns", columns)

    @property
    def options(self) -> dict[str, Any]:
        return {"format": "ipc", "pyarrow": _arrow_version(), "columns": self._columns}

    def parts(self, source: Source, files: FileSet) -> Iterator[Any]:
        import pyarrow as pa

        with source.open(_single_file(files, "Arrow IPC")) as file:
            schema = _open_ipc(file, [])[0].schema
            check_columns_exist("column", self._columns or (), schema.names)
            fields: list[int] = []  # all
            if self._columns is not None and schema.names:
                indices = {index for name in self._columns for index in schema.get_all_field_indices(name)}
                fields = sorted(indices) or [0]  # one must be read, if only to count its rows
            reader, is_file = _open_ipc(file, fields)
            empty = True
            for batch in _batches(reader, is_file):
                empty = False
                yield self._selected(pa.Table.from_batches([batch]))
            if empty:
                yield self._selected(reader.schema.empty_table())

    def _selected(self, table: Any) -> Any:
        return table if self._columns is None else table.select(self._columns)


def joined(tables: Sequence[Any]) -> Any:
    """Return the table that consists of these parts, without copying them."""
    import pyarrow as pa

    if len(tables) == 1:
        return tables[0]
    if tables[0].num_columns == 0:  # of which pyarrow would forget the number of rows
        rows = pa.table({"": pa.nulls(sum(table.num_rows for table in tables))})
        return rows.replace_schema_metadata(tables[0].schema.metadata).select([])
    return pa.concat_tables(tables)


def checked_columns(argument: str, names: Sequence[str] | None) -> list[str] | None:
    """Check that an argument is a list of names.

    Raises:
        InvalidArgument: it is not.
    """
    if names is None:
        return None
    listed = None if isinstance(names, (str, bytes)) or not isinstance(names, Iterable) else list(names)
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise InvalidArgument(f"{argument} must be a list of column names, but got {names!r}")
    return listed


def check_columns_exist(what: str, names: Iterable[str], columns: Sequence[str], *, nested: bool = False) -> None:
    """Check that columns exist; a nested one (``"a.b"``) if its outermost part does.

    Raises:
        InvalidArgument: one does not.
    """
    unknown = [name for name in names if name not in columns and not (nested and name.partition(".")[0] in columns)]
    if unknown:
        raise InvalidArgument(f"there is no {what} {', '.join(map(repr, unknown))}; {_list_columns(columns)}")


_MAX_NAMED = 40
_MAX_ROW_GROUPS = 8  # decoded at once
_COMPRESSIONS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}  # by the end of a file's name


def _list_columns(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_MAX_NAMED]))
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"the columns are {shown}{more}" if names else "the file has no columns"


def _expression_of(filters: Any) -> Any:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if filters is None or isinstance(filters, pc.Expression):
        return filters
    try:
        return pq.filters_to_expression(filters)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(
            f"filters must be a pyarrow.compute.Expression or lists of tuples such as [('year', '>', 2020)], but got "
            f"{filters!r}: {error}"
        ) from error


def _arrow_version() -> str:
    import pyarrow as pa

    return str(pa.__version__)


def _decoded_ahead(row_groups: Iterator[Any], selection: dict[str, Any], columns: int) -> Iterator[Any]:
    """Decode row groups, several at once; yield their tables in order.

    PyArrow decodes the columns of a row group in its pool of threads. Columns differ in what they cost, so with one row
    group at a time some threads would wait for the slowest column; the pool takes the next row group's meanwhile. Its
    size stays the limit: our own threads only wait for it.
    """
    import pyarrow as pa

    ahead = min(max(2, pa.cpu_count() // max(columns, 1) + 1), _MAX_ROW_GROUPS)
    waiting: deque[Future[Any]] = deque()

    def fill() -> None:
        for row_group in islice(row_groups, ahead - len(waiting)):
            waiting.append(threads.submit(row_group.to_table, **selection))

    with ThreadPoolExecutor(ahead, thread_name_prefix="entrepot-decode") as threads:
        try:
            fill()
            while waiting:
                table = waiting.popleft().result()
                fill()  # before the caller works on the table
                yield table
                del table
        finally:
            for future in waiting:
                future.cancel()


def _storable(table: Any) -> Any:
    """Return the table with a schema that survives being written.

    Parquet names the entries of a map after its column, which Arrow's own format does not keep.
    """
    import pyarrow as pa

    written = pa.ipc.read_schema(table.schema.serialize())
    return table if written.equals(table.schema, check_metadata=True) else table.cast(written)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0].strip("'\"")


def _single_file(files: FileSet, what: str) -> str:
    if isinstance(files.target, str) and files.files == (files.target,):
        return files.target
    raise InvalidArgument(f"only Parquet is read from several files: name one {what} file, not {files.target!r}")


def _open_decompressed(source: Source, path: str) -> Any:
    import pyarrow as pa

    compression = _COMPRESSIONS.get(path.rpartition(".")[2])
    file = source.open(path)
    return file if compression is None else pa.CompressedInputStream(file, compression)


def _open_ipc(file: Any, fields: list[int]) -> tuple[Any, bool]:
    """Return a reader of these fields (none: of all), and whether the file has the file format, not that of streams."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=fields)
    file.seek(0)
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    if is_file:
        return pa.ipc.open_file(file, options=options), True
    return pa.ipc.open_stream(file, options=options), False


def _batches(reader: Any, is_file: bool) -> Iterator[Any]:
    if not is_file:
        yield from reader
        return
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)
