"""Join maps: a hash index over the keys of a table, built once on a host, and read by all its processes.

States::

    (none) ──somebody has the lock──▶ being built ──▶ sealed ──discard──▶ (gone)
                     ▲                     │
                     └─────its builder dies─┘

Table and index are one object, so that nothing half-built is ever seen, or left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from entrepot import _core
from entrepot._client.arguments import checked_name, timeout_seconds
from entrepot._readers.decode_lock import DecodeLocks
from entrepot._services.partitioning import key_columns, key_width
from entrepot._services.tables import to_table
from entrepot.errors import InvalidArgument, ObjectExists, ObjectNotFound, Timeout, UnsupportedType

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from entrepot._services.store_access import ServiceStore

_SET = "join-map"
_WAIT_SLICE_SECONDS = 0.25  # then whoever has the table tries to build it


class JoinMap:
    """A join map of one session, whose bytes all processes share. Created by :meth:`Store.join_map`. Thread-safe.

    Attributes:
        name: its name within the session.
        table: the table that it was built from, in shared memory.
        key: names of its key columns.

    >>> import entrepot
    >>> import pyarrow as pa
    >>> read = lambda: pa.table({"id": [7, 8, 9], "name": ["ann", "bob", "eve"]})  # is called in one process
    >>> customers = entrepot.connect().join_map("customers", read, "id", timeout=60)
    >>> customers.join(pa.table({"id": [7], "price": [1.0]})).to_pylist()
    [{'id': 7, 'price': 1.0, 'name': 'ann'}]
    >>> customers.discard()
    """

    def __init__(self, store: ServiceStore, name: str, contents: dict[str, Any]) -> None:
        self._store = store
        self._index = memoryview(contents["index"])
        self.name = name
        self.table: pa.Table = contents["table"]
        self.key: list[str] = contents["key"]

    def find(self, *keys: Any) -> np.ndarray[Any, np.dtype[Any]]:
        """Return for each key the first row of the table that has it; -1: there is none.

        Args:
            keys: an array for each key column: Arrow's, NumPy's, or what Arrow makes an array of. Null equals nothing,
                not even null; NaN equals NaN.

        Raises:
            InvalidArgument: not as many arrays as key columns, or of another type, which cannot be cast.
        """
        import numpy as np

        return np.frombuffer(_core.join_first(self._index, self._asked(keys)), np.int64)

    def matches(self, *keys: Any) -> tuple[np.ndarray[Any, np.dtype[Any]], np.ndarray[Any, np.dtype[Any]]]:
        """Return all pairs of a key and a row of the table that has it, as two arrays of numbers, in order.

        Args and Raises:
            As :meth:`find`.
        """
        import numpy as np

        asked, rows = _core.join_matches(self._index, self._asked(keys))
        return np.frombuffer(asked, np.int64), np.frombuffer(rows, np.int64)

    def join(
        self, rows: Any, by: str | Sequence[str] | None = None, *, how: Literal["inner", "left"] = "inner"
    ) -> pa.Table:
        """Return rows with the columns of the table that they match, except its keys.

        Args:
            rows: a table, or anything else with the Arrow C stream interface.
            by: its key columns; default: of the same names.
            how: ``"inner"``: rows that match; ``"left"``: all rows, with nulls where nothing matches.

        Raises:
            InvalidArgument: a column is missing; the result would have two of one name; or as :meth:`find`.
        """
        import numpy as np
        import pyarrow as pa

        if how not in ("inner", "left"):
            raise InvalidArgument(f"how must be 'inner' or 'left', but got {how!r}")
        left = to_table(rows)
        names = self.key if by is None else [by] if isinstance(by, str) else list(by)
        _check_columns(left, names)
        right = self.table.drop_columns(self.key)
        twice = sorted(set(left.column_names) & set(right.column_names))
        if twice:
            raise InvalidArgument(f"both tables have a column {twice[0]!r}: rename one of them")
        asked, matched = self.matches(*(left[name] for name in names))
        if how == "left":
            alone = np.setdiff1d(np.arange(left.num_rows), asked)
            order = np.argsort(np.concatenate([asked, alone]), kind="stable")
            asked = np.concatenate([asked, alone])[order]
            matched = np.concatenate([matched, np.full(len(alone), -1)])[order]
        taken = pa.array(matched, mask=matched < 0)
        result = left.take(pa.array(asked))
        for name in right.column_names:
            result = result.append_column(right.schema.field(name), right[name].take(taken))
        return result

    def discard(self) -> None:
        """Delete it. Processes that have it open keep it."""
        self._store.delete(self._store.derive(f"{_SET}:{self.name}"))

    def __repr__(self) -> str:
        return f"<entrepot.JoinMap {self.name!r} key={self.key} rows={self.table.num_rows}>"

    def _asked(self, keys: Sequence[Any]) -> list[_core.KeyColumn]:
        import pyarrow as pa

        if len(keys) != len(self.key):
            raise InvalidArgument(
                f"join map {self.name!r} has {len(self.key)} key columns, but got {len(keys)} arrays: pass one for each"
            )
        columns = []
        for name, given in zip(self.key, keys, strict=True):
            column = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else pa.array(given)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            wanted = self.table.schema.field(name).type
            columns.append(_as_key(column, wanted, name))
        if len({len(column) for column in columns}) > 1:
            raise InvalidArgument(f"the arrays of keys have {', '.join(str(len(c)) for c in columns)} values")
        return key_columns(columns)


def open_join_map(
    store: ServiceStore,
    name: str,
    table: Any | Callable[[], Any] | None,
    key: str | Sequence[str] | None,
    timeout: float | None,
) -> JoinMap:
    """Build a join map, or wait until somebody else has built it; see :meth:`Store.join_map`."""
    if (table is None) != (key is None):
        raise InvalidArgument("pass both the table and its key, or neither, where others build the map")
    keys = None if key is None else [key] if isinstance(key, str) else list(key)
    oid = store.derive(f"{_SET}:{checked_name(name)}")
    deadline = time.monotonic() + timeout_seconds(timeout)
    locks = DecodeLocks(store.address)
    wait = 0.0
    while True:
        try:
            existing = JoinMap(store, name, store.get(oid, timeout=wait))
        except (ObjectNotFound, Timeout):
            pass
        else:
            if keys is not None and existing.key != keys:
                raise InvalidArgument(
                    f"join map {name!r} exists with key {existing.key}, not {keys}: choose another name, or "
                    "discard() it"
                )
            return existing
        if keys is not None:
            lock = locks.try_acquire(oid)
            if lock is not None:
                with lock:
                    if not store.exists(oid):
                        _build(store, oid, table, keys)
                wait = 0.0
                continue
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise Timeout(f"join map {name!r} was not built in time: somebody has to pass the table and its key")
        wait = min(_WAIT_SLICE_SECONDS, remaining)


def _build(store: ServiceStore, oid: Any, given: Any, keys: list[str]) -> None:
    import numpy as np

    table = to_table(given() if callable(given) else given).combine_chunks()
    _check_columns(table, keys)
    columns = []
    for name in keys:
        column = table[name].combine_chunks()
        columns.append(_as_key(column, table.schema.field(name).type, name))
    packed = key_columns(columns)
    index: Any = np.empty(_core.join_index_bytes(packed), np.uint8)
    _core.build_join_index(index, packed)
    maps = store.locality_set(_SET, reading="random", writing="once")
    try:
        store.put({"table": table, "index": index, "key": keys}, id=oid, locality_set=maps)
    except ObjectExists:  # the lock's file was deleted, and another process has built it: an identical one, or first
        return


def _check_columns(table: pa.Table, names: Sequence[str]) -> None:
    for name in names:
        if table.schema.get_field_index(name) < 0:
            raise InvalidArgument(f"there is no column {name!r}, or several: the columns are {table.column_names}")
    if not names:
        raise InvalidArgument("key names no column")


def _as_key(column: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Return a column of keys as values of the type that the map's keys have."""
    import pyarrow as pa

    if pa.types.is_dictionary(wanted):
        wanted = wanted.value_type
    if not key_width(wanted):
        wanted = pa.large_string() if "string" in str(wanted) else pa.large_binary()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == wanted:
        return column
    pc: Any = import_module("pyarrow.compute")  # whose functions are made at run time
    try:
        return pc.cast(column, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        kind = UnsupportedType if isinstance(error, pa.ArrowNotImplementedError) else InvalidArgument
        raise kind(f"keys for column {name!r} must be of type {wanted}, but got {column.type}: {error}") from error
