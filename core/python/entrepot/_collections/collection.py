"""Reading collections: ordered sets of objects of one type that together form one logical value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from entrepot._client.arguments import copy_mode_number, timeout_seconds
from entrepot._codecs.encoding import decode_from
from entrepot._collections import hosts, prefetcher
from entrepot._collections.description import CollectionDescription
from entrepot._collections.members import pin_member
from entrepot._collections.metadata import Contents
from entrepot._collections.plugins import collection_plugin
from entrepot._collections.positions import Positions, compact, pack, unpack
from entrepot.codec import CopyMode
from entrepot.errors import InvalidArgument, ObjectLost, ObjectNotFound
from entrepot.html_tables import html_table
from entrepot.ids import ObjectID
from entrepot.phrases import count_of, human_bytes

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._client.gateway_calls import Place
    from entrepot._collections.store_access import CollectionStore

DEFAULT_PREFETCH = 2
# Prefetched members are pinned, and pinned objects cannot be evicted, so use only this fraction of the capacity.
PREFETCH_CAPACITY_DIVISOR = 8
PREFETCH_ALL_DIVISOR = 2  # what prefetch() loads is not pinned


class Collection(CollectionDescription):
    """A sealed collection, or a slice or selection of one. Immutable and thread-safe.

    Returned by :meth:`Store.get` and :meth:`Store.get_by_name`. It holds no members: each is read on access and
    released with the value made from it, so a collection may be larger than memory. It remains usable after the store
    that it was read from is closed, in a forked process, and, pickled, in another process on this host.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> builder = store.collection("days")
    >>> for day in range(3):
    ...     oid = builder.put([day] * 2, index=day)
    >>> days = builder.seal(3)
    >>> len(days), days[1], list(days[1:])
    (3, [1, 1], [[1, 1], [2, 2]])
    """

    def __init__(
        self,
        store: CollectionStore,
        contents: Contents,
        *,
        positions: Positions | None = None,
        copy: CopyMode = "never",
        digest: bytes | None = None,
    ) -> None:
        # Opens the session once more, so that session and members stay as long as this instance lives.
        self._store = store.session(store.session_name) if positions is None else store
        self._copy: CopyMode = copy
        super().__init__(contents, range(contents.count) if positions is None else positions, digest)

    @property
    def schema(self) -> Any:
        """The tables' schema, a ``pyarrow.Schema``.

        Raises:
            InvalidArgument: the members are not tables.
        """
        return self._call_plugin("schema")

    # --- members

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Collection: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._part(self._positions[index])
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
        pinned_member = self._pin_member(self._positions[self._checked(index)])
        return decode_from(self._store, pinned_member, copy_mode, mode)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate()

    def iterate(
        self, *, prefetch: int = DEFAULT_PREFETCH, prefetch_bytes: int | None = None, copy: CopyMode | None = None
    ) -> Iterator[Any]:
        """Iterate over the members' values in order; each member is read when it is asked for.

        If a member has to be loaded from disk or fetched from another host, a thread prefetches the next ones.

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
            return self._capacity() // PREFETCH_CAPACITY_DIVISOR

        pinned = prefetcher.iterate_pinned(
            self._pin_member,
            self._positions,
            self._contents.bytes_of,
            max_members=prefetch,
            max_bytes=max_bytes,
            is_here=lambda position: hosts.is_here(self._store._raw(), self._contents, position),
        )
        for pinned_member in pinned:
            values = [decode_from(self._store, pinned_member, copy, mode)]
            del pinned_member  # so that the member is released with its value, not when the next one is read
            yield values.pop()

    # --- members on several hosts

    def select(self, members: Iterable[int]) -> Collection:
        """Return a view of some members, in the given order, as a slice is one. Cheap to pickle.

        Args:
            members: their positions in this collection; negative: from the end.

        Raises:
            IndexError: there is no such member.
        """
        return self._part([self._positions[self._checked(index)] for index in members])

    def local(self) -> Collection:
        """Return a view of the members that are in this host's store, in memory or on its disk. Asks nobody else."""
        raw = self._store._raw()
        return self._part([each for each in self._positions if hosts.is_here(raw, self._contents, each)])

    def places(self, *, timeout: float | None = 30) -> list[list[Place]]:
        """Return for each member the stores that have it, copies included; see ``Store.locate``.

        Without a gateway, only this host's store is known.

        Raises:
            DirectoryUnavailable: the cluster's directory does not answer.
            Timeout: not in time, in seconds.
        """
        store = self._store
        return hosts.places_of(store._raw(), store.host, self._contents, self._positions, timeout_seconds(timeout))

    def assign(self, workers: hosts.Workers, *, timeout: float | None = 30) -> dict[str, Collection]:
        """Distribute the members over workers, so that each gets about the same bytes, and few have to be fetched.

            parts = orders.assign({"w1": "host-a", "w2": "host-a", "w3": "host-b"})
            client.submit(work, parts["w1"], workers="w1")

        No worker gets more bytes than its fair share plus the largest member. The bytes to be fetched are at most those
        of the best distribution that splits members at will and gives nobody more than the fair share.

        Args:
            workers: the name of each with its host or instance, or hosts. Their stores need not have any member.
            timeout: as for :meth:`places`.

        Returns:
            for each worker its members, in order.

        Raises:
            InvalidArgument: there are no workers, or a host is no text.
            DirectoryUnavailable, Timeout: as :meth:`places`.
        """
        assigned = hosts.assign_to(workers, self.sizes, lambda: self.places(timeout=timeout))
        return {worker: self.select(members) for worker, members in assigned.items()}

    def prefetch(self, *, max_bytes: int | None = None) -> None:
        """Start reading members that are on other hosts, or on disk, into this host's store, and return at once.

        Args:
            max_bytes: as many members, in order, as are within this size. Default: half of the store's capacity.

        Raises:
            InvalidArgument: ``max_bytes`` is negative.
        """
        if max_bytes is not None and max_bytes < 0:
            raise InvalidArgument(f"max_bytes must be 0 or more, but got {max_bytes}")
        limit = self._capacity() // PREFETCH_ALL_DIVISOR if max_bytes is None else max_bytes
        hosts.prefetch(self._store._raw(), self._contents, self._positions, limit)

    def fetch_ahead(self, members: Iterable[int], *, max_members: int = DEFAULT_PREFETCH) -> None:
        """Start fetching members that are on other hosts, and return at once; what is in this store stays as it is.

        For readers that know which members they will want next. It does nothing without a gateway.

        Args:
            members: their positions, the next one first; those that do not exist are ignored.
            max_members: how many are fetched; at most an eighth of the store's capacity.
        """
        positions = [self._positions[index] for index in members if 0 <= index < len(self)]
        raw = self._store._raw()
        if any(not hosts.is_here(raw, self._contents, position) for position in positions):
            limit = self._capacity() // PREFETCH_CAPACITY_DIVISOR
            hosts.fetch(raw, self._contents, positions[:max_members], limit)

    def delete(self, *, members: bool = True) -> bool:
        """Delete the collection; return whether it existed. See ``Store.delete``.

        Members being read stay valid for their readers.

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

    def _repr_html_(self) -> str:
        """What a notebook shows; reads no member."""
        rows = [
            ("name", self.name),
            ("members", f"{len(self)} of type {self.type}" if self.type else str(len(self))),
            ("bytes", human_bytes(self.nbytes)),
            *([("rows", str(self.rows))] if self.rows is not None else []),
            ("ID", str(self.id)),
        ]
        return html_table("Collection", rows)

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
        packed = pack(self._positions)
        positions = tuple(packed) if isinstance(packed, list) else packed
        return (_unpickled, (self._store, self.id, self.name, self.digest, positions, self._copy))

    def _part(self, positions: Sequence[int]) -> Collection:
        return Collection(
            self._store, self._contents, positions=compact(positions), copy=self._copy, digest=self._digest
        )

    def _checked(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"collection {self.name!r} has {count_of(len(self), 'member')}, so index {index} is out of range"
            )
        return index

    def _capacity(self) -> int:
        return int(self._store.status()["capacity_bytes"])

    def _call_plugin(self, function: str, *arguments: Any) -> Any:
        return getattr(collection_plugin(), function)(self, *arguments)

    def _pin_member(self, position: int) -> _core.Object:
        return pin_member(self._store._raw(), self._contents, position)


def resolve_reference(
    store: CollectionStore,
    oid: ObjectID,
    name: str,
    digest: bytes,
    positions: Any | None,
    *,
    copy: CopyMode,
) -> Collection:
    """Return the collection that a reference refers to.

    Args:
        store: the store that has it.
        oid, name: ID and name from the reference.
        digest: digest of the referenced contents.
        positions: of the referenced members, packed (:mod:`entrepot._collections.positions`); None: all.

    Raises:
        ObjectLost: it no longer exists, or another collection has taken its place.
        CorruptData: the collection does not have the members of the part.
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
    return collection._part(unpack(positions, len(collection), name))


def _unpickled(
    store: CollectionStore, oid: ObjectID, name: str, digest: bytes, positions: Any, copy: CopyMode
) -> Collection:
    return resolve_reference(store, oid, name, digest, positions, copy=copy)


_unpickled.__module__ = "entrepot._collection"  # pickled collections name it by this path, which must not change
