"""What a hash aggregation computes: the states behind each aggregate, for columns of certain types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from entrepot._services.partitioning import key_width, validity
from entrepot.errors import InvalidArgument, UnsupportedType

if TYPE_CHECKING:
    import pyarrow as pa

    from entrepot import _core

Function = Literal["count", "sum", "min", "max", "mean"]
Aggregates = Mapping[str, "Literal['count'] | tuple[str, Function]"]
_FUNCTIONS = ("count", "sum", "min", "max", "mean")

# enum AggregateKind in core/src/client/aggregate_page.h
_COUNT = 0
_SIGNED, _UNSIGNED, _FLOAT = 0, 1, 2
_SUM, _MIN, _MAX = 1, 4, 7


def parse_plan(by: str | Sequence[str], aggregates: Aggregates) -> dict[str, Any]:
    """Return keys and aggregates as plain data, which all processes of an aggregation agree on.

    Raises:
        InvalidArgument: they are malformed.
    """
    keys = [by] if isinstance(by, str) else list(by)
    if not keys or not all(isinstance(key, str) for key in keys):
        raise InvalidArgument(f"by= must name one key column or several, but got {by!r}")
    parsed: list[list[str | None]] = []
    for output, given in dict(aggregates).items():
        column, function = (None, given) if isinstance(given, str) else given if len(given) == 2 else (None, None)
        if function not in _FUNCTIONS or (column is None) != isinstance(given, str):
            raise InvalidArgument(
                f"aggregate {output!r} must be a pair of a column and one of {', '.join(_FUNCTIONS)}, but got {given!r}"
            )
        if column is None and function != "count":
            raise InvalidArgument(f"aggregate {output!r} needs a column: pass (column, {function!r})")
        parsed.append([output, column, function])
    names = [*keys, *(output for output, _, _ in parsed)]
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"the result would have several columns {twice[0]!r}: rename the aggregate")
    return {"by": keys, "aggregates": parsed}


@dataclass(frozen=True, slots=True)
class _State:
    """One state of a record: its kind, and of which column; None: of all rows."""

    kind: int
    column: str | None

    @property
    def family(self) -> int:
        return (self.kind - 1) % 3


class BoundPlan:
    """A plan for columns of known types.

    Args:
        plan: as :func:`parse_plan` returned it.
        schema: the columns of the rows.

    Attributes:
        schema: those that are used.
        widths, kinds: as the extension takes them.

    Raises:
        InvalidArgument: a column does not exist, or twice.
        UnsupportedType: a column cannot be a key, or be aggregated so.
    """

    def __init__(self, plan: dict[str, Any], schema: pa.Schema) -> None:
        import pyarrow as pa

        self._keys: list[str] = plan["by"]
        self._aggregates: list[tuple[str, str | None, str]] = [(name, of, how) for name, of, how in plan["aggregates"]]
        used = dict.fromkeys([*self._keys, *(column for _, column, _ in self._aggregates if column is not None)])
        for name in used:
            if schema.get_field_index(name) < 0:
                raise InvalidArgument(f"there is no column {name!r}, or several: the columns are {schema.names}")
        self.schema = pa.schema([pa.field(name, schema.field(name).type) for name in used])
        self.widths = [key_width(self.schema.field(key).type) for key in self._keys]
        self._states: list[_State] = []
        self._places: list[list[int]] = []  # of each aggregate: which states
        for name, column, function in self._aggregates:
            places = []
            for state in self._states_of(name, column, function):
                places.append(len(self._states))
                self._states.append(state)
            self._places.append(places)
        self.kinds = [state.kind for state in self._states]

    @property
    def keys(self) -> list[str]:
        """Names of the key columns."""
        return self._keys

    def values(self, batch: pa.RecordBatch) -> list[_core.ValueColumn]:
        """Return the column of values of each state."""
        made: list[_core.ValueColumn] = []
        cache: dict[tuple[str, int], _core.ValueColumn] = {}
        for state in self._states:
            if state.column is None:
                made.append((None, None))
                continue
            column = batch.column(state.column)
            if state.kind == _COUNT:
                made.append((None, validity(column)))
                continue
            key = (state.column, state.family)
            if key not in cache:
                cache[key] = _value_column(column, state.family)
            made.append(cache[key])
        return made

    def result(self, merger: _core.AggregateMerger) -> pa.Table:
        """Return keys and results as a table.

        Raises:
            InvalidArgument: a sum of integers exceeds 64 bits.
        """
        import pyarrow as pa

        columns = [
            _key_array(self.schema.field(key).type, merger.rows, *decoded)
            for key, decoded in zip(self._keys, merger.keys(), strict=True)
        ]
        for (name, column, function), places in zip(self._aggregates, self._places, strict=True):
            try:
                arrays = [_state_array(self._states[place], merger.rows, *merger.results(place)) for place in places]
            except InvalidArgument as error:
                raise InvalidArgument(
                    f"{error}, in aggregate {name!r}: cast column {column!r} to float64, or to a decimal and sum it "
                    "elsewhere"
                ) from error
            columns.append(self._finished(column, function, arrays))
        return pa.table(columns, [*self._keys, *(name for name, _, _ in self._aggregates)])

    def _states_of(self, name: str, column: str | None, function: str) -> list[_State]:
        if function == "count":
            return [_State(_COUNT, column)]
        kind = _value_type(self.schema.field(str(column)).type)
        family = _family(kind)
        is_number = family is not None and not _is_time(kind)
        if family is None or (not is_number and function in ("sum", "mean")):
            raise UnsupportedType(
                f"aggregate {name!r}: the {function} of a column of type {kind} cannot be computed; of numbers it can, "
                "and of times the least and greatest"
            )
        if function == "mean":
            return [_State(_SUM + _FLOAT, column), _State(_COUNT, column)]
        return [_State({"sum": _SUM, "min": _MIN, "max": _MAX}[function] + family, column)]

    def _finished(self, column: str | None, function: str, arrays: list[Any]) -> Any:
        pc: Any = import_module("pyarrow.compute")  # whose functions are made at run time
        import pyarrow as pa

        if function == "mean":
            total, count = arrays
            divisor = pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.float64()), count.cast(pa.float64()))
            return pc.divide(total, divisor)
        if function in ("min", "max"):
            return _as_type(arrays[0], _value_type(self.schema.field(str(column)).type))
        return arrays[0]


def _value_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_time(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_temporal(kind)) and not pa.types.is_interval(kind)


def _family(kind: pa.DataType) -> int | None:
    import pyarrow as pa

    if pa.types.is_signed_integer(kind) or _is_time(kind):
        return _SIGNED
    if pa.types.is_unsigned_integer(kind) or pa.types.is_boolean(kind):
        return _UNSIGNED
    return _FLOAT if pa.types.is_floating(kind) else None


def _physical(kind: pa.DataType) -> pa.DataType:
    """Return the integers that times are stored as."""
    import pyarrow as pa

    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _value_column(column: pa.Array, family: int) -> _core.ValueColumn:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_time(column.type):
        column = column.view(_physical(column.type))
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    wide = {_SIGNED: pa.int64(), _UNSIGNED: pa.uint64(), _FLOAT: pa.float64()}[family]
    column = column if column.type == wide else column.cast(wide, safe=False)
    data = memoryview(column.buffers()[1])[column.offset * 8 : (column.offset + len(column)) * 8]
    return data, validity(column)


def _bitmap(valid: bytes, nulls: int) -> pa.Buffer | None:
    import numpy as np
    import pyarrow as pa

    return pa.array(np.frombuffer(valid, np.uint8).astype(bool)).buffers()[1] if nulls else None


def _key_array(kind: pa.DataType, rows: int, width: int, data: bytes, offsets: bytes, valid: bytes, nulls: int) -> Any:
    import pyarrow as pa

    value = _value_type(kind)
    if pa.types.is_null(value):
        return pa.nulls(rows)
    bitmap = _bitmap(valid, nulls)
    if width:
        stored = pa.uint8() if pa.types.is_boolean(value) else value
        made = pa.Array.from_buffers(stored, rows, [bitmap, pa.py_buffer(data)])
        return made.cast(value)
    is_text = pa.types.is_string(value) or pa.types.is_large_string(value)
    stored = pa.large_string() if is_text else pa.large_binary()
    made = pa.Array.from_buffers(stored, rows, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])
    return made if stored == value or len(data) >= 1 << 31 else made.cast(value)


def _state_array(state: _State, rows: int, data: bytes, valid: bytes, nulls: int) -> Any:
    import pyarrow as pa

    kind = pa.int64() if state.kind == _COUNT else (pa.int64(), pa.uint64(), pa.float64())[state.family]
    return pa.Array.from_buffers(kind, rows, [_bitmap(valid, nulls), pa.py_buffer(data)])


def _as_type(array: Any, kind: pa.DataType) -> Any:
    """Cast a least or greatest value back to the column's type."""
    import pyarrow as pa

    if _is_time(kind):
        return array.cast(_physical(kind)).view(kind)
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8()).cast(kind)
    return cast("Any", array if array.type == kind else array.cast(kind))
