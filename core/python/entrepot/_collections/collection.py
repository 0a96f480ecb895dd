"""Reading collections: ordered sets of objects of one type that together form one logical value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from entrepot._client.arguments import copy_mode_number
from entrepot._codecs.encoding import decode_from
from entrepot._collections import prefetcher
from entrepot._collections.metadata import Contents, ValueTraits, collection_key
from entrepot._collections.plugins import collection_plugin
from entrepot.codec import CopyMode, inlined_bytes
from entrepot.errors import CorruptData, InvalidArgument, ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.phrases import count_of

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._collections.store_access import CollectionStore

DEFAULT_PREFETCH = 2
# Prefetched members are pinned, and pinned objects cannot be evicted, so use only this fraction of the capacity.
PREFETCH_CAPACITY_DIVISOR = 8


class Collection:
    """A sealed collection, or a slice of one. Immutable and thread-safe.

    Returned by :meth:`Store.get` and :meth:`Store.get_by_name`. It holds no members: each is read on access and
    released with the value made from it, so a collection may be larger than memory. It remains usable after the store
    that it was read from is closed, in a forked process, and, pickled, in another process on this host.
    """

    def __init__(
        self,
        store: CollectionStore,
        contents: Contents,
        *,
        positions: range | None = None,
        copy: CopyMode = "never",
        digest: bytes | None = None,
    ) -> None:
        # Opens the session once more, so that session and members stay as long as this instance lives.
        self._store = store.session(store.session_name) if positions is None else store
        self._contents = contents
        self._positions = range(contents.count) if positions is None else positions
        self._copy: CopyMode = copy
        self._digest = digest

    # --- metadata

    @property
    def id(self) -> ObjectID:
        """ID of the collection; a slice has the ID of the whole."""
        contents = self._contents
        return ObjectID.derive(contents.scope, contents.session, collection_key(contents.name))

    @property
    def name(self) -> str:
        """Name of the collection in the session where it was built."""
        return self._contents.name

    @property
    def ids(self) -> list[ObjectID]:
        """The members' IDs, in order."""
        return [self._contents.id_of(position) for position in self._positions]

    @property
    def nbytes(self) -> int:
        """Payload of all members in bytes."""
        if len(self._positions) == self._contents.count:
            return self._contents.nbytes
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Payload of each member in bytes."""
        return [self._contents.bytes_of(position) for position in self._positions]

    @property
    def rows(self) -> int | None:
        """Total number of rows of all tables, or of all tensors; None: the members have no rows."""
        counts = self.row_counts
        return None if counts is None else sum(counts)

    @property
    def row_counts(self) -> list[int] | None:
        """Number of rows of each member; None: they have none."""
        if self._contents.traits.rows is None:
            return None
        return [self._contents.rows_of(position) for position in self._positions]

    @property
    def type(self) -> str:
        """The members' type, such as ``"pyarrow.lib.Table"``; ``""`` if there are none."""
        return self._contents.traits.type

    @property
    def kind(self) -> str:
        """``"table"``, ``"tensor"`` or ``"value"``; determines which of the views below are available."""
        return self._contents.traits.kind

    @property
    def traits(self) -> ValueTraits:
        """Properties shared by all members, for code that reads them as one value."""
        return self._contents.traits

    @property
    def layout(self) -> str:
        """Structure shared by all members besides their type, as text: columns of tables, element type of tensors."""
        return self._contents.traits.layout

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """Shape of one row of a tensor; None: the members are not tensors, or their rows differ in shape."""
        return self._contents.traits.row_shape

    @property
    def schema(self) -> Any:
        """The tables' schema, a ``pyarrow.Schema``.

        Raises:
            InvalidArgument: the members are not tables.
        """
        return self._call_plugin("schema")

    @property
    def digest(self) -> bytes:
        """Digest that identifies the contents; a slice has that of the whole."""
        if self._digest is None:
            self._digest = self._contents.digest()
        return self._digest

    @property
    def positions(self) -> range:
        """Positions of these members within the whole collection."""
        return self._positions

    @property
    def count_sealed(self) -> int:
        """Number of members of the whole collection."""
        return self._contents.count

    # --- members

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Collection: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._slice(self._positions[index])
        return self.get(index)

    def get(self, index: int, *, copy: CopyMode | None = None) -> Any:
        """Return one member's value.

        Args:
            index: its position; negative: from the end.
            copy: as for ``Store.get``; default: the mode with which the collection was read.

        Raises:
            IndexError: there is no such member.
            ObjectLost: it was deleted, or its bytes are gone.
        """
        copy_mode = self._copy if copy is None else copy
        mode = copy_mode_number(copy_mode)
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"collection {self.name!r} has {count_of(len(self), 'member')}, so index {index} is out of range"
            )
        return decode_from(self._store, self._pin_member(self._positions[index]), copy_mode, mode)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate()

    def iterate(
        self, *, prefetch: int = DEFAULT_PREFETCH, prefetch_bytes: int | None = None, copy: CopyMode | None = None
    ) -> Iterator[Any]:
        """Iterate over the members' values in order; each member is read when it is asked for.

        If reading a member is slow because it has to be reloaded, a thread prefetches the next ones.

        Args:
            prefetch: maximum number of members to prefetch; 0: none.
            prefetch_bytes: maximum number of bytes to prefetch; default: an eighth of the store's capacity.
            copy: as for ``Store.get``; default: the mode with which the collection was read.

        Raises:
            ObjectLost: a member was deleted, or its bytes are gone.
            InvalidArgument: a negative number, or an unknown copy mode.
        """
        if prefetch < 0 or (prefetch_bytes is not None and prefetch_bytes < 0):
            raise InvalidArgument(
                f"prefetch and prefetch_bytes must be 0 or more, but got prefetch={prefetch}, "
                f"prefetch_bytes={prefetch_bytes}"
            )
        copy_mode = self._copy if copy is None else copy
        return self._iterate(prefetch, prefetch_bytes, copy_mode, copy_mode_number(copy_mode))

    def _iterate(self, prefetch: int, prefetch_bytes: int | None, copy: CopyMode, mode: int) -> Iterator[Any]:
        def max_bytes() -> int:
            if prefetch_bytes is not None:
                return prefetch_bytes
            return int(self._store.status()["capacity_bytes"]) // PREFETCH_CAPACITY_DIVISOR

        pinned = prefetcher.iterate_pinned(
            self._pin_member, self._positions, self._contents.bytes_of, max_members=prefetch, max_bytes=max_bytes
        )
        for pinned_member in pinned:
            values = [decode_from(self._store, pinned_member, copy, mode)]
            del pinned_member  # so that the member is released with its value, not when the next one is read
            yield values.pop()

    def delete(self, *, members: bool = True) -> bool:
        """Delete the collection; return whether it existed. Members being read stay valid for their readers.

        Args:
            members: whether to delete its members too.
        """
        return self._store.delete(self.id, members=members)

    # --- views as one value (provided by the package entrepot_io, with libraries that the user installs)

    def to_reader(self, columns: Sequence[str] | None = None) -> Any:
        """Return the tables as one ``pyarrow.RecordBatchReader``, which holds one member at a time.

        Args:
            columns: columns to read, in this order; default: all.

        Raises:
            InvalidArgument: the members are not tables, or have no such column.
        """
        return self._call_plugin("to_reader", columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow C stream of ``to_reader``, so that Arrow consumers accept a collection of tables."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> Any:
        """Return the tables as one ``pyarrow.Table`` whose chunks view shared memory; all must fit in memory.

        Raises:
            InvalidArgument: the members are not tables.
        """
        return self._call_plugin("to_arrow")

    def to_polars(self) -> Any:
        """Return the tables as one ``polars.DataFrame``; all must fit in memory.

        Raises:
            InvalidArgument: the members are not tables.
        """
        return self._call_plugin("to_polars")

    def scan_polars(self) -> Any:
        """Return a ``polars.LazyFrame`` over the tables that reads member by member, only the columns and rows needed.

        Raises:
            InvalidArgument: the members are not tables.
        """
        return self._call_plugin("scan_polars")

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return a ``duckdb.DuckDBPyRelation`` over the tables that reads member by member on each execution.

        Args:
            connection: the DuckDB connection; default: DuckDB's default one.

        Raises:
            InvalidArgument: the members are not tables.
        """
        return self._call_plugin("to_duckdb", connection)

    def iter_batches(self, rows: int) -> Iterator[Any]:
        """Iterate over the rows in batches of equal size (the last one may be smaller), across members.

        Tables yield ``pyarrow.RecordBatch``, tensors their own type. A batch within one member is a view; one that
        spans several is a copy.

        Args:
            rows: rows per batch, at least 1.

        Raises:
            InvalidArgument: the members have no rows, or their rows differ in shape; or ``rows`` is less than 1.
        """
        return cast("Iterator[Any]", self._call_plugin("iter_batches", rows))

    def torch_dataset(self, over: str = "rows", transform: Callable[[Any], Any] | None = None) -> Any:
        """Return the tensors as a map-style ``torch.utils.data.Dataset``, for any number of workers, forked or spawned.

        Args:
            over: ``"rows"``: each item is a row of a tensor; ``"members"``: each item is a whole member.
            transform: called with each item; must be picklable if workers are spawned.

        Raises:
            InvalidArgument: the members are not tensors, or ``over="rows"`` and their rows differ in shape.
        """
        return self._call_plugin("torch_dataset", over, transform)

    # --- internal

    def __repr__(self) -> str:
        type_label = self.type or "nothing"
        total = "" if len(self) == self._contents.count else f" (of {self._contents.count})"
        return f"<entrepot.Collection {self.name!r}: {len(self)}{total} of {type_label}, {self.nbytes} bytes>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collection):
            return NotImplemented
        return self.id == other.id and self.digest == other.digest and self._positions == other._positions

    def __hash__(self) -> int:
        return hash((self.id, self.digest, self._positions))

    def __reduce__(self) -> Any:
        positions = (self._positions.start, len(self._positions), self._positions.step)
        return (_unpickled, (self._store, self.id, self.name, self.digest, positions, self._copy))

    def _slice(self, positions: range, copy: CopyMode | None = None) -> Collection:
        copy = self._copy if copy is None else copy
        return Collection(self._store, self._contents, positions=positions, copy=copy, digest=self._digest)

    def _call_plugin(self, function: str, *arguments: Any) -> Any:
        return getattr(collection_plugin(), function)(self, *arguments)

    def _pin_member(self, position: int) -> _core.Object:
        contents = self._contents
        oid = contents.id_of(position)
        try:
            pinned_object = self._store._raw().get(oid.binary, 0, remote=True)
        except (ObjectNotFound, ObjectLost) as error:
            error_type = CorruptData if isinstance(error, CorruptData) else ObjectLost
            raise error_type(
                f"member {position} (object {oid}) of collection {contents.name!r} is no longer available: {error}; "
                "rerun the task that puts it, and seal the collection again"
            ) from error
        # Programs before tree format 2 counted only the buffers.
        size = pinned_object.nbytes + inlined_bytes(pinned_object.tree)
        if contents.bytes_of(position) not in (size, pinned_object.nbytes):
            raise ObjectLost(
                f"member {position} (object {oid}) of collection {contents.name!r} was replaced after the collection "
                f"was sealed: it had {contents.bytes_of(position)} bytes and now has {size}"
            )
        return pinned_object


def resolve_reference(
    store: CollectionStore,
    oid: ObjectID,
    name: str,
    digest: bytes,
    positions: tuple[int, int, int] | None,
    *,
    copy: CopyMode,
) -> Collection:
    """Return the collection that a reference refers to.

    Args:
        store: the store that has it.
        oid, name: ID and name from the reference.
        digest: digest of the referenced contents.
        positions: start, length and step of the referenced slice; None: the whole collection.

    Raises:
        ObjectLost: it no longer exists, or another collection has taken its place.
        CorruptData: the collection does not have the members of the slice.
    """
    try:
        collection = store.get(oid, copy=copy)
    except ObjectNotFound as error:
        raise ObjectLost(
            f"collection {name!r} (object {oid}) is no longer available: it was deleted, or its session ended; "
            "rerun the tasks that produce it"
        ) from error
    if not isinstance(collection, Collection) or collection.digest != digest:
        raise ObjectLost(
            f"collection {name!r} (object {oid}) was rebuilt with other members after this reference to it was "
            "written: read the newer reference"
        )
    if positions is None:
        return collection
    start, length, step = positions
    selected = range(start, start + length * step, step) if step else range(0)
    if length and (not step or not 0 <= selected[0] < len(collection) or not 0 <= selected[-1] < len(collection)):
        raise CorruptData(f"a reference to collection {name!r} selects members {positions}, which do not exist")
    return collection._slice(selected)


def _unpickled(
    store: CollectionStore, oid: ObjectID, name: str, digest: bytes, positions: tuple[int, int, int], copy: CopyMode
) -> Collection:
    return resolve_reference(store, oid, name, digest, positions, copy=copy)


_unpickled.__module__ = "entrepot._collection"  # pickled collections name it by this path, which must not change
