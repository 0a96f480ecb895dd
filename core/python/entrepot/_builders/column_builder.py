"""Tables whose columns are written in place; see ``Store.build_table``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot._builders.arrow_fields import check_column, to_column
from entrepot._builders.object_memory import ObjectMemory
from entrepot._builders.table_builder import UnsealedTable
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ColumnBuilder(UnsealedTable):
    """A table of a fixed number of rows whose columns are written in place, or set. Thread-safe, apart from the arrays.

    Attributes:
        num_rows: of the table.

    >>> import entrepot
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> store = entrepot.connect()
    >>> with store.build_table(pa.schema([("price", pa.float64())]), rows=1000) as table:
    ...     product = np.multiply(np.arange(1000), 0.5, out=table.column("price"))
    >>> store.get(table.id)["price"][3].as_py()
    1.5
    """

    def __init__(self, memory: ObjectMemory, schema: Any, oid: ObjectID, rows: int) -> None:
        super().__init__(memory, schema, oid)
        self.num_rows = rows
        self._arrays: dict[str, NDArray[Any]] = {}  # guarded by _lock; written by the user
        self._columns: dict[str, Any] = {}  # guarded by _lock; Arrow's, in the store's memory
        if len(set(schema.names)) != len(schema.names):
            raise InvalidArgument(f"columns that are set by name must have different names, but got {schema.names}")

    def __enter__(self) -> ColumnBuilder:
        return self

    def column(self, name: str) -> NDArray[Any]:
        """Return the column as a writable NumPy array in the store, to be filled before the seal.

        Its shape is ``(num_rows,)``, or ``(num_rows, size)`` for a column of fixed-size lists; it is not initialized.
        Integers and floating-point numbers have the NumPy type of the same name, timestamps are ``datetime64`` and
        durations ``timedelta64`` of the same unit; ``NaT`` becomes null. After the seal the array is read-only. Views
        that were taken of it must not be written any more, either: their memory is protected, so that a write ends the
        process with SIGSEGV rather than change the sealed object.

        Args:
            name: a column of the schema. Asking again returns the same array.

        Raises:
            InvalidArgument: there is no such column, it was set (:meth:`set_column`), or its type has no NumPy type of
                the same layout; or the table is already sealed or discarded.
            StoreFull: not enough memory.
            NotSealed: this process is a fork of the one that created the builder.
        """
        self._memory.check_usable()
        with self._lock:
            self._memory.check_usable()
            if name not in self._arrays:
                self._check_unset(name)
                self._arrays[name] = self._allocate(self._field(name))
            return self._arrays[name]

    def set_column(self, name: str, values: Any) -> None:
        """Set a column of any type. Values are copied, except for buffers that lie in sealed objects already.

        Args:
            name: a column of the schema.
            values: ``num_rows`` values: a ``pyarrow.Array`` or ``ChunkedArray`` of the column's type, or anything that
                ``pyarrow.array`` converts to it.

        Raises:
            InvalidArgument: there is no such column, it has been set, or the values have another type or number; or the
                table is already sealed or discarded.
            StoreFull: not enough memory; the column is not set.
            NotSealed: this process is a fork of the one that created the builder.
        """
        self._memory.check_usable()
        field = self._field(name)
        column = to_column("the table", name, values, field.type)
        check_column("the values", field, column)
        if len(column) != self.num_rows:
            raise InvalidArgument(f"column {name!r} has {len(column)} values, but the table has {self.num_rows} rows")
        with self._lock:
            self._memory.check_usable()
            self._check_unset(name)
            self._columns[name] = self._memory.store(column)

    def _field(self, name: str) -> Any:
        index = self.schema.get_field_index(name) if isinstance(name, str) else -1
        if index < 0:
            raise InvalidArgument(f"the table has no column {name!r}: its columns are {self.schema.names}")
        return self.schema.field(index)

    def _check_unset(self, name: str) -> None:
        if name in self._arrays or name in self._columns:
            raise InvalidArgument(f"column {name!r} has been set already")

    def _allocate(self, field: Any) -> NDArray[Any]:
        import numpy as np

        dtype, width = _numpy_layout(field)
        shape = (self.num_rows,) if width is None else (self.num_rows, width)
        nbytes = dtype.itemsize * self.num_rows * (1 if width is None else width)
        return np.ndarray(shape, dtype, memoryview(self._memory.allocate(nbytes)))

    def _table(self) -> Any:
        import pyarrow as pa

        missing = [name for name in self.schema.names if name not in self._arrays and name not in self._columns]
        if missing:
            raise InvalidArgument(
                f"these columns of the table are not set: {', '.join(map(repr, missing))}: fill what column() returns, "
                "or call set_column(), then seal it again"
            )
        columns = []
        for field in self.schema:
            column = self._columns.get(field.name)
            if column is None:
                column = _arrow_column(field, self._arrays[field.name])
                check_column("the table", field, column)
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _forget(self) -> None:
        for array in self._arrays.values():
            array.flags.writeable = False  # a write then raises ValueError
        self._arrays, self._columns = {}, {}


def _numpy_layout(field: Any) -> tuple[np.dtype[Any], int | None]:
    """Return the NumPy type with the layout of a column, and the size of its lists, if it has lists.

    Raises:
        InvalidArgument: there is none.
    """
    import numpy as np
    import pyarrow as pa

    type_, width = field.type, None
    if pa.types.is_fixed_size_list(type_):
        type_, width = type_.value_type, type_.list_size
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return np.dtype(type_.to_pandas_dtype()), width
    if pa.types.is_timestamp(type_):
        return np.dtype(f"datetime64[{type_.unit}]"), width
    if pa.types.is_duration(type_):
        return np.dtype(f"timedelta64[{type_.unit}]"), width
    raise InvalidArgument(
        f"column {field.name!r} of type {field.type} cannot be written in place, because NumPy has no type of the same "
        "layout: set it with set_column()"
    )


def _arrow_column(field: Any, array: NDArray[Any]) -> Any:
    """Return the array as an Arrow array over the same memory."""
    import pyarrow as pa

    flat, type_ = array.reshape(-1), field.type
    is_list = pa.types.is_fixed_size_list(type_)
    value_type = type_.value_type if is_list else type_
    buffers = [_validity(flat), pa.py_buffer(flat.view("u1"))]
    values = pa.Array.from_buffers(value_type, len(flat), buffers)
    if not is_list:
        return values
    return pa.Array.from_buffers(type_, len(array), [None], children=[values])


def _validity(array: NDArray[Any]) -> Any:
    """Return a validity bitmap in which NaT is null; None: nothing is."""
    import numpy as np
    import pyarrow as pa

    if array.dtype.kind not in "mM":
        return None
    is_nat = np.isnat(array)
    return pa.py_buffer(np.packbits(~is_nat, bitorder="little")) if is_nat.any() else None
