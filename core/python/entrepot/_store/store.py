"""The ``Store`` class: the Python interface to a store, put together from parts that each own their state.

Store ── Session           the connection, the session's handle, whether it is open
  ├───── ObjectAccess      its objects: DirectObjects, or DurableObjects around them
  ├───── LocalitySets      how they are used
  ├───── Residency         where they are
  ├───── FileReader        files decoded into the store; created by the first read
  └───── Opener            how another store is opened, for pickling; injected, as it is above this module
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, cast, overload

from entrepot import _core
from entrepot._checkpoints.functions import checkpoint_function
from entrepot._client import arguments, gateway_calls, queries
from entrepot._client.allocating import Allocating
from entrepot._client.arguments import AnyID, checked_name, given_ids, new_id, timeout_seconds, to_id
from entrepot._client.gateway_calls import Place, ReplicaStatus
from entrepot._client.info import ObjectInfo, PutResult, SessionInfo
from entrepot._client.locality import Durability, Lifetime, LocalitySet, Operation, Policy, Reading, Writing
from entrepot._client.locality_sets import LocalitySetOrName, LocalitySets
from entrepot._client.pins import Pin, Residency
from entrepot._client.reservation import Reservation
from entrepot._client.session import Session
from entrepot._client.shared_client import SharedClient
from entrepot._codecs.blob import BlobWriter, blob_tree
from entrepot._store import object_info, objects
from entrepot._store.access import access_to
from entrepot._store.browsing import ObjectTable, browse, store_table
from entrepot._store.objects import ObjectAccess, to_item
from entrepot.cluster_sessions import cluster_session
from entrepot.codec import COPY_MODES, AllowPickle, CopyMode, ObjectStrings, inlined_bytes
from entrepot.durable import Durable
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound, Timeout
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._builders.column_builder import ColumnBuilder
    from entrepot._builders.table_builder import TableBuilder
    from entrepot._collections.builder import CollectionBuilder
    from entrepot._readers.file_reader import FileReader
    from entrepot._readers.formats import Format
    from entrepot._readers.sources import PathArgument
    from entrepot._services.aggregate_plan import Aggregates
    from entrepot._services.aggregation import Aggregation
    from entrepot._services.broadcast import Broadcast
    from entrepot._services.join_map import JoinMap
    from entrepot._services.page_iterators import PageIterator
    from entrepot._services.scratch import ScratchSet
    from entrepot._services.shuffle import Shuffle
    from entrepot._streams.stream import Stream

_NO_VALUE: Any = object()
_MAX_ATTEMPTS = 64  # attempts to resolve a name that is rebound faster than its object can be read

Opener = Callable[..., "Store"]
"""Opens a store; takes the arguments of :func:`entrepot.connect`, which it is. Pickled stores name it."""


class Store:
    """Connection to a store, seen from one session of one scope. Thread-safe; a context manager that closes it.

    Created by :func:`entrepot.connect`. Keeps working after ``os.fork`` and in ``multiprocessing`` children, which pin
    objects on their own. Reconnects by itself when the daemon is restarted. If keeper and daemon both died and another
    store now runs at the address, it switches to that one (a private store is restarted): values already read stay
    valid, all other objects are lost.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> oid = store.put({"rates": [1.0, 1.5]}, name="batch", replace=True)
    >>> store.get(oid) == store.get_by_name("batch")  # here, or in another process
    True
    >>> store.delete(oid)
    True
    >>> store.close()
    """

    def __init__(self) -> None:
        raise InvalidArgument("create a Store with entrepot.connect()")

    # All set by _open, and never again, except that close() replaces _get_small, and the first read of a file sets
    # _file_reader: in one step, so that threads need no lock.
    _session: Session
    _objects: ObjectAccess
    _locality_sets: LocalitySets
    _residency: Residency
    _opener: Opener
    _get_small: Callable[[bytes], bytes | None]
    _file_reader: FileReader | None

    @classmethod
    def _open(
        cls,
        session: Session,
        opener: Opener,
        durable: Durable | Literal[False] | None,
        *,
        inherited: Durable | None = None,
    ) -> Store:
        """Return a store for a session that was just opened, and that it will close.

        Args:
            session: the session.
            opener: opens this store again, from its pickle.
            durable, inherited: as for :func:`access_to`.
        """
        store = cls.__new__(cls)
        store._session = session
        store._opener = opener
        store._get_small = session.client.raw.get_small
        store._locality_sets = LocalitySets(session)
        store._residency = Residency(session)
        store._file_reader = None
        try:
            store._objects = access_to(session, durable, inherited)
        except BaseException:
            session.close()
            raise
        return store

    # --- values

    def put(
        self,
        value: Any,
        *,
        id: AnyID | None = None,
        name: str | None = None,
        replace: bool = False,
        locality_set: LocalitySetOrName | None = None,
        consumers: int | None = None,
    ) -> ObjectID:
        """Store a value. When this returns, it is immutable and visible to everyone.

        Parts of the value that already lie in the store (arrays and tables read from it) are referenced, not copied.
        Sealing identical content under the same ID again succeeds.

        Args:
            value: anything a codec supports: Arrow, NumPy, pandas, Polars, bytes, plain Python. Other objects are
                pickled if that is allowed.
            id: the object's ID; default: a random one.
            name: a name to bind in this session, atomically with the put.
            replace: allow replacing an existing object with this ID, and an existing binding of the name.
            locality_set: the object's set, from :meth:`locality_set`, or its name; default: the session's default set.
            consumers: how many consumers will report that they have finished with the object (:meth:`consumed`); after
                the last one it is dead. Default: the set's number, or consumers are not counted.

        Raises:
            ObjectExists: the ID holds other content, or the name is taken, and ``replace`` is False.
            StoreFull: the object does not fit.
            UnsupportedType: no codec supports the value.
            InvalidArgument: malformed ID or name.
            StoreUnavailable: the daemon cannot be reached.
            Timeout: the daemon did not answer, or the value is stored, but the disk still says that the name or the ID
                leads to its former object: after 20 seconds.

        >>> import entrepot
        >>> store = entrepot.connect()
        >>> oid = store.put(b"a payload", name="payload", replace=True)
        >>> store.resolve("payload") == oid
        True
        """
        oid, item = self._new_item(value, id, name, replace, locality_set, consumers)
        self._objects.put_item(self, item)
        return oid

    def put_versioned(
        self,
        value: Any,
        *,
        id: AnyID | None = None,
        name: str | None = None,
        replace: bool = False,
        locality_set: LocalitySetOrName | None = None,
        consumers: int | None = None,
    ) -> PutResult:
        """Store a value as ``put`` does, and also return its generation.

        Args and Raises:
            As ``put``.

        Returns:
            ID, generation and size of the object that this call sealed, or of the identical one that already existed.
            A caller that keeps the generation with the ID can tell later whether the value has been replaced.
        """
        oid, item = self._new_item(value, id, name, replace, locality_set, consumers)
        generation, nbytes, existed = self._objects.put_item(self, item)
        return PutResult(oid, generation, nbytes + inlined_bytes(item[5]), existed)

    def put_many(self, values: Iterable[Any], *, ids: Sequence[AnyID] | None = None) -> list[ObjectID]:
        """Store several values in one round trip.

        Args:
            values: as for ``put``.
            ids: one ID per value; default: random ones.

        Raises:
            As ``put``, for the first value that failed, which the message names. The other values are still stored.
        """
        values = list(values)
        if ids is None:
            return self._objects.put_new(self, values)
        oids = given_ids(ids, len(values))
        self._objects.put_items(self, [to_item(self._session, *each, False) for each in zip(values, oids, strict=True)])
        return oids

    def get(self, oid: AnyID, *, timeout: float | None = 0, copy: CopyMode = "never", remote: bool = True) -> Any:
        """Return the value of an object, with the type that was put.

        With ``copy="never"``, the result is a read-only view of shared memory; writing to an array raises the library's
        own error, for example "assignment destination is read-only". To write, use ``copy="on_write"``, which returns a
        private mapping (the kernel copies each page on its first write; nobody else sees the changes), or
        ``copy="always"``, which copies at once and leaves nothing pinned. The value stays valid after the object is
        deleted or the store is closed.

        Args:
            oid: the object's ID.
            timeout: seconds to wait for the object to be sealed and, if it was spilled, reloaded. 0: do not wait for
                the seal, but wait for the disk as long as it takes. None: no limit. What was lost with a store that
                died is not waited for.
            copy: ``"never"``, ``"on_write"`` or ``"always"``.
            remote: fetch an object that is not here from another store of the cluster, if this one has a gateway
                (docs/cluster.md), however long that takes if no timeout is given. False: look only here.

        Raises:
            ObjectNotFound: the object is not sealed here, or in another store that is known, and no timeout was given.
            Timeout: it was not sealed in time, or the daemon did not answer.
            ObjectLost: its bytes are gone; or the store of another host that had them is.
            InvalidArgument: wrong ID length, unknown copy mode, or negative timeout.
            UnsupportedType: it was pickled, and pickling is disabled here.
            StoreUnavailable: the daemon cannot be reached.

        >>> import entrepot
        >>> import numpy as np
        >>> store = entrepot.connect()
        >>> oid = store.put(np.zeros(3))
        >>> store.get(oid).flags.writeable  # a view of shared memory
        False
        >>> mine = store.get(oid, copy="on_write")  # pages that are written to are copied
        >>> mine[0] = 1
        >>> store.get(oid)[0]
        np.float64(0.0)
        """
        if type(oid) is ObjectID and copy in COPY_MODES and (timeout == 0 or timeout_seconds(timeout)):
            small = self._get_small(oid._binary)  # inline bytes: the same in every copy mode, no daemon involved
            if small is not None:
                return small
        return self._objects.get_versioned(self, oid, timeout, copy, remote)[0]

    def get_versioned(
        self, oid: AnyID, *, timeout: float | None = 0, copy: CopyMode = "never", remote: bool = True
    ) -> tuple[Any, int]:
        """Return the value of an object and the generation of exactly that value; otherwise as ``get``."""
        return self._objects.get_versioned(self, oid, timeout, copy, remote)

    def get_many(
        self, oids: Iterable[AnyID], *, timeout: float | None = 0, copy: CopyMode = "never", remote: bool = True
    ) -> list[Any]:
        """Return the values of several objects, in at most one round trip; otherwise as ``get``."""
        return self._objects.get_many(self, list(oids), timeout, copy, remote)

    def create(
        self, nbytes: SupportsIndex, *, metadata: bytes = b"", id: AnyID | None = None, name: str | None = None
    ) -> BlobWriter:
        """Return a writable buffer in shared memory, to be filled and sealed.

            with store.create(1 << 20, metadata=b"frame 7") as blob:
                blob.view[:4] = b"head"
            value = store.get(blob.id)      # an entrepot.Blob

        Leaving the block seals the object; leaving it by an exception discards it. Bytes not written are undefined.

        Args:
            nbytes: length in bytes.
            metadata: bytes to store with the blob.
            id: the object's ID; default: a random one.
            name: a name to bind when the object is sealed.

        Raises:
            StoreFull: not enough memory.
            InvalidArgument: a negative length, or more than 32 MiB of metadata.

        >>> import entrepot
        >>> store = entrepot.connect()
        >>> with store.create(5, metadata=b"a greeting") as blob:
        ...     blob.view[:] = b"hello"
        >>> store.get(blob.id).metadata
        b'a greeting'
        """
        length = arguments.checked_integer("the length of a blob in bytes", nbytes)
        if not isinstance(metadata, (bytes, bytearray, memoryview)):
            raise InvalidArgument(f"the metadata of a blob must be bytes, but got {metadata!r}")
        oid, fresh = new_id(id)
        bound_name = checked_name(name) if name is not None else ""
        tree = blob_tree(bytes(metadata))
        raw = self._session.raw().create(length, objects.PUT_WAIT_SECONDS)
        return BlobWriter(self._seal_blob, raw, oid, fresh, tree, bound_name)

    @overload
    def build_table(
        self,
        schema: Any,
        *,
        rows: None = None,
        id: AnyID | None = None,
        name: str | None = None,
        replace: bool = False,
        locality_set: LocalitySetOrName | None = None,
        consumers: int | None = None,
    ) -> TableBuilder: ...

    @overload
    def build_table(
        self,
        schema: Any,
        *,
        rows: SupportsIndex,
        id: AnyID | None = None,
        name: str | None = None,
        replace: bool = False,
        locality_set: LocalitySetOrName | None = None,
        consumers: int | None = None,
    ) -> ColumnBuilder: ...

    def build_table(
        self,
        schema: Any,
        *,
        rows: SupportsIndex | None = None,
        id: AnyID | None = None,
        name: str | None = None,
        replace: bool = False,
        locality_set: LocalitySetOrName | None = None,
        consumers: int | None = None,
    ) -> TableBuilder | ColumnBuilder:
        """Return a builder of an Arrow table, which is written to the store as it grows, and sealed at the end.

            with store.build_table(schema, name="prices") as table:
                for batch in batches:
                    table.append(batch)
            value = store.get(table.id)      # a pyarrow.Table

            with store.build_table(schema, rows=1_000_000) as table:
                table.column("price")[:] = prices
                table.set_column("city", cities)

        Leaving the block seals the table; leaving it by an exception returns its memory. Until the seal, nobody else
        sees any of it. The seal binds the name and makes the table visible in one step.

        Args:
            schema: its ``pyarrow.Schema``.
            rows: the number of rows, to write the table column by column. Default: it grows by record batches.
            id, name, replace, locality_set, consumers: as for :meth:`put`; ID and name are checked by the seal.

        Returns:
            A :class:`TableBuilder`, with ``append``; with ``rows``, a :class:`ColumnBuilder`, with ``column`` and
            ``set_column``.

        Raises:
            InvalidArgument: not a schema, a malformed ID or name, a number of rows below 0, or with ``rows``, columns
                of the same name.
            StoreUnavailable: the store is closed.
        """
        from entrepot._builders.arrow_fields import checked_schema  # here, because most processes build none
        from entrepot._builders.column_builder import ColumnBuilder
        from entrepot._builders.object_memory import ObjectMemory
        from entrepot._builders.table_builder import TableBuilder

        oid, fresh = new_id(id)
        if name is not None:
            checked_name(name)
        replace = arguments.checked_boolean("replace", replace)
        checked = checked_schema(schema)

        def seal(builder: _core.ObjectBuilder, value: Any) -> PutResult:
            item = self._item_with_usage(value, oid, fresh, name, replace, locality_set, consumers)
            generation, nbytes, existed = self._objects.seal_built(self, builder, item)
            return PutResult(oid, generation, nbytes + inlined_bytes(item[5]), existed)

        memory = ObjectMemory(self._session.raw, seal, objects.PUT_WAIT_SECONDS)
        if rows is None:
            return TableBuilder(memory, checked, oid)
        return ColumnBuilder(memory, checked, oid, arguments.checked_integer("the number of rows of a table", rows))

    def replace_columns(
        self,
        oid: AnyID,
        columns: Mapping[Any, Any],
        *,
        drop: Iterable[Any] = (),
        id: AnyID | None = None,
        name: str | None = None,
        replace: bool = False,
        locality_set: LocalitySetOrName | None = None,
        consumers: int | None = None,
    ) -> ObjectID:
        """Store a new object that is another one with some columns replaced, added or dropped; return its ID.

            cleaned = store.replace_columns(oid, {"price": prices}, drop=["comment"])

        The columns that stay are not copied: both objects refer to the same bytes (docs/resharing.md). The other object
        stays as it is, and may be deleted.

        Args:
            oid: a ``pyarrow.Table``, a pandas or Polars ``DataFrame``, or a dict.
            columns: new values by name, as the library takes them for a column. Columns that exist keep their place;
                others are added at the end.
            drop: names of columns to leave out.
            id, name, replace, locality_set, consumers: of the new object, as for :meth:`put`.

        Raises:
            InvalidArgument: a column to drop does not exist, is also replaced, or the names of the columns are not
                unique; or a column has another length than the table.
            UnsupportedType: the object has no columns.
            ObjectNotFound, ObjectLost: as :meth:`get`.
            ObjectExists, StoreFull, StoreUnavailable, Timeout: as :meth:`put`.
        """
        from entrepot._builders.replacement import with_columns  # here, because most processes replace none

        value = with_columns(self.get(oid), columns, drop)
        return self.put(value, id=id, name=name, replace=replace, locality_set=locality_set, consumers=consumers)

    # --- objects

    def exists(self, oid: AnyID) -> bool:
        """Return whether an object with this ID is sealed."""
        return self._objects.exists(oid)

    def generation_of(self, oid: AnyID) -> int:
        """Return the generation of an object, in most cases without asking the daemon.

        Raises:
            ObjectNotFound: the object is not sealed here.
        """
        return self._objects.generation_of(self, oid)

    def delete(self, oid: AnyID, *, members: bool = True) -> bool:
        """Delete an object; return whether it existed. Its memory is freed when the last reader releases it.

        Args:
            oid: the object's ID.
            members: if the object is a collection, also delete its members: on all hosts, if it was sealed or moved
                here, and the collection with them; a copy of one that was sealed elsewhere is deleted here alone.

        Raises:
            StoreUnavailable: the object is a collection that other live hosts may have members of, and one of them,
                which the message names, or this host's gateway does not answer. It is still here: delete it again.
            DirectoryUnavailable: the same, and it is not known which hosts there are.
        """
        return self._objects.delete(oid, members)

    def info(self, oid: AnyID) -> ObjectInfo:
        """Return an object's metadata.

        Raises:
            ObjectNotFound: the object is not sealed here.
        """
        raw, object_id = self._session.raw(), to_id(oid)
        try:
            return object_info.info_of(raw, object_id)
        except ObjectNotFound:
            raw.refuse_lost([object_id.binary])
            raise

    def list(self, pattern: str = "*", *, session: str | None = None) -> list[ObjectInfo]:
        """Return the objects of a session whose name or ID matches a glob.

        Args:
            pattern: ``*``, ``?`` and ``[...]`` as in a shell.
            session: another session of the scope; default: this store's.

        Raises:
            ObjectNotFound: there is no such session.
        """
        number = self._session.number_of(session)
        return object_info.list_objects(
            self._session.raw(), number, arguments.checked_text("the pattern of a list", pattern)
        )

    def browse(self, pattern: str = "*", *, session: str | None = None) -> ObjectTable:
        """Return the objects of a session, largest first, as a sequence that a notebook shows as a table.

        Args:
            pattern, session: as for :meth:`list`.

        Raises:
            ObjectNotFound: there is no such session.
        """
        return browse(
            self.list(pattern, session=session), self.scope, self.session_name if session is None else session
        )

    def derive(self, key: str) -> ObjectID:
        """Return the ID derived from a key in this session; always the same, so a retry writes the same object."""
        return ObjectID.derive(self._session.scope, self._session.name, key)

    def collection(
        self,
        name: str,
        *,
        producer: str | None = None,
        locality_set: LocalitySetOrName | None = None,
        reading: Reading | None = None,
    ) -> CollectionBuilder:
        """Return a builder for the collection of this name in this session, to put members and to seal it.

        This creates nothing yet; every process that asks for the same name in the same session builds the same
        collection. Once sealed, it is read with ``get_by_name``.

        Args:
            name: its name within this session.
            producer: identifies who appends, such as a task's name: a rerun with the same producer finds what it
                appended before. Concurrent producers need different names. Default: a new producer each time.
            locality_set: the set that its members are put into (:meth:`locality_set`), or its name. Default: the
                collection's own set, ``collection:NAME``, so that eviction treats the members as read together.
            reading: reading pattern of the collection's own set, such as ``"random"`` (:class:`LocalitySet`). Default:
                as declared before, or inferred from the reads.

        Raises:
            InvalidArgument: a malformed name; or, on the first put, an unknown reading pattern.
            ObjectNotFound: on the first put: there is no such set.
        """
        from entrepot._collections.builder import CollectionBuilder  # here, because most processes build none

        return CollectionBuilder(self, name, producer, locality_set, reading)

    def stream(
        self,
        name: str,
        *,
        capacity: SupportsIndex | None = None,
        capacity_bytes: SupportsIndex | str | None = None,
        writers: SupportsIndex | None = None,
        groups: Iterable[str] = (),
        keep: bool | None = None,
        create: bool = True,
        replace: bool = False,
        cluster: bool | None = None,
    ) -> Stream:
        """Open the stream of this name in this session, through which running tasks pass values to running tasks.

            with store.stream("frames", capacity=8).writer() as writer:     # in one task
                for frame in camera:
                    writer.put(frame)

            for frame in store.stream("frames").reader("model"):            # in another, at the same time
                ...

        Writers wait while the stream is full, readers while it is empty. What is not given is as the stream has it; it
        may be given later, by whoever opens the stream next, but not after its first writer was opened.

        Args:
            name: its name within this session; names of objects are others.
            capacity: how many chunks it holds at most, until every group has consumed them: 1 to 65,536. Default: 16.
            capacity_bytes: how many bytes these chunks may have together, or a text such as ``"512MiB"``. A larger
                chunk is admitted when the stream is empty. Default: unlimited.
            writers: how many writers it expects in total: 1 to 65,536. When so many have closed, the stream has ended.
                Default: 1.
            groups: names of groups of readers that get every chunk, even if their readers come late.
            keep: whether chunks stay in the store after they were consumed, so that :meth:`Stream.seal` can make a
                collection of them. Default: False.
            create: whether it is created if it does not exist.
            replace: start a new one. If one exists, its writers and readers get ``StreamFailed``.
            cluster: whether it is one stream on all hosts of the cluster (docs/cluster.md), in sessions of the same
                scope and name. Default: if the session was opened with ``cluster=True``.

        Raises:
            ObjectNotFound: it does not exist, and ``create`` is False.
            InstanceLost: the stream of the cluster was in a store that is lost; ``replace=True`` starts a new one.
            DirectoryUnavailable: the cluster's directory, which knows where the stream is, does not answer.
            InvalidArgument: a malformed argument, or another value than it was opened with before.
            ObjectExists: with ``keep``: a collection of this name has members.
            StoreFull: there are 1,024 streams, none of which is over.
            VersionMismatch: the daemon is too old for ``capacity_bytes``.
            StoreUnavailable: the daemon cannot be reached; for a stream of the cluster, also: this store has no
                gateway, or it or the other store's does not answer.
        """
        from entrepot._streams.cluster_stream import open_cluster_stream  # here, because most processes use none
        from entrepot._streams.stream import Stream, StreamArguments

        given = StreamArguments(capacity, capacity_bytes, writers, groups, keep, create, replace)
        if cluster is None:
            is_shared = cluster_session(self._session.client, self.scope, self.session_name) is not None
        else:
            is_shared = arguments.checked_boolean("cluster", cluster)
        return open_cluster_stream(self, name, given) if is_shared else Stream(self, name, given)

    def shuffle(
        self,
        name: str,
        partitions: SupportsIndex | None = None,
        *,
        writers: SupportsIndex | None = None,
        record_bytes: SupportsIndex | None = None,
        records: bool = False,
        page_bytes: SupportsIndex | str | None = None,
    ) -> Shuffle:
        """Open the shuffle of this name in this session: rows that several processes divide between partitions.

            with store.shuffle("by-customer", 16).writer() as writer:       # in each process that writes
                for batch in batches:
                    writer.append(batch, by="customer")

            for batch in store.shuffle("by-customer").read(3):              # in the one that processes partition 3
                ...

        Rows are written to pages that lie in the store, and read where they lie; docs/services.md has more.

        Args:
            name: its name within the session.
            partitions: how many partitions it has: 1 to 65,536. Needed by its first user.
            writers: how many writers it expects in total: 1 to 4,096. Default: 1.
            record_bytes: it is a shuffle of records of this length, instead of tables.
            records: it is one of records that have lengths of their own.
            page_bytes: size of a page: 64 KiB to 1 GiB, or a text such as ``"1MiB"``. Default: up to 4 MiB, so that the
                pages that are written at the same time take at most an eighth of the store.

        Raises:
            ObjectNotFound: it does not exist, and the number of partitions was not given.
            InvalidArgument: a malformed argument, or another value than its first user gave.
        """
        from entrepot._services.shuffle import Shuffle  # here, because most processes use none

        return Shuffle(self, name, partitions, writers, record_bytes, records, page_bytes)

    def hash_aggregate(
        self,
        name: str,
        by: str | Sequence[str] | None = None,
        aggregates: Aggregates | None = None,
        *,
        partitions: SupportsIndex | None = None,
        writers: SupportsIndex | None = None,
        page_bytes: SupportsIndex | str | None = None,
    ) -> Aggregation:
        """Open the hash aggregation of this name in this session: rows that several processes group by key.

            aggregates = {"orders": "count", "revenue": ("price", "sum")}
            with store.hash_aggregate("revenue", "customer", aggregates).writer() as writer:    # where rows are
                for batch in batches:
                    writer.append(batch)

            table = store.hash_aggregate("revenue").to_arrow()                                  # in any process

        Groups are kept in pages of the store; what does not fit is moved to disk, and merged. docs/services.md has
        more.

        Args:
            name: its name within the session.
            by: key column, or columns. Its first user passes keys and aggregates.
            aggregates: for each column of the result a pair of a column and ``"count"`` (of values that are not null),
                ``"sum"``, ``"min"``, ``"max"`` or ``"mean"``; or ``"count"`` alone, of rows.
            partitions: in how many parts the result is read: 1 to 65,536. Default: 32.
            writers: how many writers it expects in total: 1 to 4,096. Default: 1.
            page_bytes: as for :meth:`shuffle`.

        Raises:
            ObjectNotFound: it does not exist, and keys and aggregates were not given.
            InvalidArgument: a malformed argument, or another value than its first user gave.
            ObjectExists: the name is that of a shuffle.
        """
        from entrepot._services.aggregation import Aggregation  # here, because most processes use none

        return Aggregation(self, name, by, aggregates, partitions, writers, page_bytes)

    @overload
    def broadcast(
        self, name: str, *, reader: str | None = None, timeout: float | None = None
    ) -> Broadcast: ...  # to receive it
    @overload
    def broadcast(self, name: str, value: Any, *, readers: SupportsIndex | None = None) -> Broadcast: ...
    def broadcast(
        self,
        name: str,
        value: Any = _NO_VALUE,
        *,
        readers: SupportsIndex | None = None,
        reader: str | None = None,
        timeout: float | None = None,
    ) -> Broadcast:
        """Publish a value for all processes of this host, or receive it, without a copy.

            store.broadcast("model", weights, readers=4)            # in one process

            with store.broadcast("model", timeout=60) as model:     # in each of four
                use(model.value)

        Args:
            name: its name within the session.
            value: publishes it; without it, waits for it and opens it.
            readers: how many readers there will be: when so many have closed, the value is deleted. Default: they are
                not counted, and it is deleted by ``discard()`` or with the session.
            reader: this reader's name, by which it is counted once, however often its work is repeated. Default: a new
                one each time.
            timeout: seconds to wait for the value; None: no limit.

        Raises:
            ObjectExists: to publish: there is a broadcast of this name.
            Timeout: to receive: it was not published in time, or is gone.
            InvalidArgument: a malformed argument.
            StoreFull, UnsupportedType, StoreUnavailable: as :meth:`put` and :meth:`get`.
        """
        from entrepot._services.broadcast import publish, receive  # here, because most processes use none

        if value is _NO_VALUE:
            if readers is not None:
                raise InvalidArgument("readers= is for publishing a value: who receives one passes reader=, or nothing")
            return receive(self, name, reader, timeout)
        if reader is not None or timeout is not None:
            raise InvalidArgument("reader= and timeout= are for receiving a value: who publishes one passes readers=")
        return publish(self, name, value, readers)

    def join_map(
        self,
        name: str,
        table: Any | Callable[[], Any] | None = None,
        key: str | Sequence[str] | None = None,
        *,
        timeout: float | None = 60,
    ) -> JoinMap:
        """Open the join map of this name: a hash index over a table's keys, built once and read by all processes.

            customers = store.join_map("customers", read_customers, "id")   # in every process; one of them builds it
            rows = customers.find(orders["customer"])
            joined = customers.join(orders, "customer")

        Args:
            name: its name within the session.
            table: whatever has the Arrow C stream interface, or a function that returns it, which is called only in
                the process that builds the map. None: somebody else builds it.
            key: key column, or columns.
            timeout: seconds to wait while another process builds it; None: no limit. If that one dies, another goes on.

        Raises:
            Timeout: it was not built in time.
            InvalidArgument: it exists with another key; there is no such column; a malformed argument.
            UnsupportedType: this is no table, or a column cannot be a key.
            StoreFull, StoreUnavailable: as :meth:`put`.
        """
        from entrepot._services.join_map import open_join_map  # here, because most processes use none

        return open_join_map(self, name, table, key, timeout)

    def pages(
        self,
        name: str,
        n: SupportsIndex = 1,
        *,
        run: str = "",
        restart: bool = False,
        timeout: float | None = 60,
    ) -> builtins.list[PageIterator]:
        """Open iterators over the members of a collection that share its members with those of all other workers.

            with store.pages("by-customer")[0] as pages:        # in each of the workers
                for page in pages:
                    work_on(page)

        Each member, such as a page of a sealed shuffle, goes to one iterator. If its worker dies, or fails, it goes to
        another one.

        Args:
            name: of a sealed collection or shuffle.
            n: how many iterators, for as many threads of this process: 1 to 1,024.
            run: names the pass: each goes over all members once.
            restart: begin this run anew; iterators of before get ``StreamFailed``.
            timeout: seconds to wait until the collection is sealed; None: no limit.

        Raises:
            Timeout: there is no such collection in time.
            InvalidArgument: it is no collection, or has more than 65,536 members.
            StreamLost: the run was begun before a restart of the daemon.
        """
        from entrepot._services.page_iterators import open_page_iterators  # here, because most processes use none

        return open_page_iterators(self, name, n, run, restart, timeout)

    def scratch(
        self,
        name: str,
        pages: SupportsIndex,
        *,
        page_bytes: SupportsIndex | str = 1 << 20,
        open_bytes: SupportsIndex | str | None = None,
    ) -> ScratchSet:
        """Open a scratch set: pages that this process, and no other, may change, and that may exceed memory.

            with store.scratch("centroids", 64) as scratch, scratch.write(3) as view:
                np.frombuffer(view, np.float32)[:] += 1

        Args:
            name: its name within the session.
            pages: how many pages.
            page_bytes: size of each: 32 KiB to 1 GiB, or a text such as ``"1MiB"``.
            open_bytes: how much of it stays open, and cannot be moved to disk. Default: an eighth of the store.

        Raises:
            ObjectExists: the set has a writer that lives.
            InvalidArgument: a malformed argument.
        """
        from entrepot._services.scratch import ScratchSet  # here, because most processes use none

        return ScratchSet(self, name, pages, page_bytes, open_bytes)

    # --- names

    def set_name(self, name: str, oid: AnyID, *, replace: bool = False) -> None:
        """Bind a name of this session to an object.

        Raises:
            ObjectExists: the name is taken, and ``replace`` is False.
            ObjectNotFound: the object is not sealed here.
        """
        self._objects.set_name(self, name, oid, replace)

    def resolve(self, name: str, *, timeout: float | None = 0, remote: bool = True) -> ObjectID:
        """Return the ID bound to a name in this session, here or (with ``remote``) in another store of the cluster.

        Raises:
            ObjectNotFound: there is no such name, and no timeout was given.
            Timeout: it was not bound in time.
        """
        return self._objects.resolve(self, name, timeout, remote)

    def get_by_name(
        self, name: str, *, timeout: float | None = 0, copy: CopyMode = "never", remote: bool = True
    ) -> Any:
        """Return the value of the object bound to a name in this session; as ``get``.

        Names are not remembered beyond the end of a store: with a timeout, this waits until somebody binds the name.
        """
        deadline = time.monotonic() + timeout_seconds(timeout)
        remaining, attempts = timeout, 0
        while True:
            oid = self.resolve(name, timeout=remaining, remote=remote)
            try:
                # A bound name refers to a sealed object: there is nothing to wait for.
                return self.get(oid, copy=copy, remote=remote)
            except ObjectNotFound:  # replaced or deleted since the name was resolved: resolve it again
                attempts += 1
                if attempts == _MAX_ATTEMPTS:
                    raise
                if timeout:
                    remaining = deadline - time.monotonic()
                    if remaining <= 0:
                        raise Timeout(f"no object was bound to the name {name!r} within {timeout:g} s") from None

    def unset_name(self, name: str) -> None:
        """Remove a name; the object stays.

        Raises:
            ObjectNotFound: there is no such name.
        """
        self._objects.unset_name(self, name)

    # --- memory and disk

    def pin(self, oid: AnyID, *, timeout: float | None = 0) -> Pin:
        """Load an object into memory if necessary, and keep it there.

            with store.pin(oid):
                ...                      # reading it needs no disk access

        Args:
            oid: the object's ID.
            timeout: seconds to wait for it to be sealed, as for ``get``.

        Raises:
            ObjectNotFound, Timeout, ObjectLost: as ``get``.
            StoreFull: not enough memory to reload it.
        """
        return self._residency.pin(oid, timeout)

    def evict(self, *oids: AnyID) -> None:
        """Move objects out of memory; a later get reloads them.

        An object without a copy on disk is written first, in the background, and stays readable meanwhile; a write that
        fails, because the disk is full, say, is tried again every second until it succeeds. Objects pinned by any
        process stay in memory, as do values of 16 KiB or less, which live in the store's records.

        Raises:
            ObjectNotFound: one of them is not in the store; the others are evicted anyway.
            InvalidArgument: the store has no spill directory.
        """
        self._residency.evict(oids)

    def prefetch(self, *oids: AnyID) -> None:
        """Start reloading objects from disk, or fetching them from other stores of the cluster, without waiting.

        Unknown objects are ignored. Of those that are in memory, up to 32 segments of shared memory that this process
        has not mapped yet are mapped, which takes one exchange with the daemon; a get then needs none.
        """
        self._residency.prefetch(oids)

    # --- other stores of the cluster

    def locate(self, oid: AnyID, *, timeout: float | None = 10) -> builtins.list[Place]:
        """Return which stores of the cluster have a published object, the latest publication first.

        Raises:
            StoreUnavailable: this store has no gateway (docs/cluster.md), or the directory does not answer.
            Timeout: not in time, in seconds.
        """
        return gateway_calls.locate(self._session.raw(), to_id(oid), timeout_seconds(timeout))

    def publish(self, *oids: AnyID, wait_for_replicas: bool = False, timeout: float | None = 10) -> None:
        """Publish objects, so that the other stores of the cluster find them by their IDs, and wait until they are.

        Named objects, those of sessions opened with ``cluster=True``, and members of such collections are published
        without this, a moment after they are sealed.

        Args:
            oids: the objects.
            wait_for_replicas: also wait until as many hosts have each as its session asks for
                (``entrepot.connect(cluster=True, replicas=N)``).
            timeout: in seconds.

        Raises:
            ObjectNotFound: one of them is not sealed here.
            StoreUnavailable: this store has no gateway (docs/cluster.md).
            DirectoryUnavailable: the directory does not answer.
            Timeout: not in time; with ``wait_for_replicas``, the message says which hosts have it.
        """
        raw, ids = self._session.raw(), [to_id(oid) for oid in oids]
        gateway_calls.publish(raw, ids, timeout_seconds(timeout), wait_for_replicas=wait_for_replicas)

    def replica_status(self, *, timeout: float | None = 10) -> ReplicaStatus:
        """Return how far the copies are that sessions ask for (``entrepot.connect(cluster=True, replicas=N)``).

        Raises:
            StoreUnavailable: this store has no gateway, or it does not answer.
            Timeout: not in time, in seconds.
        """
        return gateway_calls.replica_status(self._session.raw(), timeout_seconds(timeout))

    def migrate(self, oid: AnyID, to: str, *, timeout: float | None = None) -> None:
        """Move an object, or a collection with its members, to another store of the cluster.

        Args:
            oid: the object.
            to: the other store: its host's name, or its instance.
            timeout: in seconds. Default: as long as the transfer makes progress.

        Raises:
            ObjectNotFound: it is neither here nor there.
            ObjectExists: its ID or one of its names is bound to something else there.
            StoreFull: it does not fit there. It stays here then, as after any other error.
            StoreUnavailable: this store has no gateway, or the other one cannot be reached.
        """
        wait = 0.0 if timeout is None else timeout_seconds(timeout)
        gateway_calls.migrate(self._session.raw(), to_id(oid), arguments.checked_text("a store", to), wait)

    # --- how objects are used

    def locality_set(
        self,
        name: str,
        *,
        durability: Durability | None = None,
        reading: Reading | None = None,
        writing: Writing | None = None,
        lifetime: Lifetime | None = None,
        consumers: int | None = None,
        operation: Operation | None = None,
        policy: Policy | None = None,
        priority: int | None = None,
    ) -> LocalitySet:
        """Create or change a locality set of this session; attributes left at None keep their value.

            features = store.locality_set("features", reading="loop_sequential")
            store.put(table, locality_set=features)

        Args:
            name: its name within this session; ``""`` is the default set, of objects that belong to no other.
            durability, reading, writing, lifetime, consumers, operation, policy, priority: see :class:`LocalitySet`.
                A new set is write-back, read in an inferred pattern, written once, and lives as long as the job.

        Raises:
            InvalidArgument: an invalid value for an attribute.
            StoreFull: the store already has 65,536 sets.
        """
        choices: dict[str, str | None] = {
            "durability": durability,
            "reading": reading,
            "writing": writing,
            "lifetime": lifetime,
            "operation": operation,
            "policy": policy,
        }
        return self._locality_sets.define(name, consumers, priority, choices)

    def locality_sets(self) -> builtins.list[LocalitySet]:
        """Return the locality sets of this session, the default one first."""
        return self._locality_sets.all()

    def hint(
        self,
        target: AnyID | LocalitySet,
        *,
        priority: int | None = None,
        operation: Operation | None = None,
        keep: bool | None = None,
        locality_set: LocalitySetOrName | None = None,
        recompute_seconds: float | None = None,
    ) -> None:
        """Change the hints of an object or a locality set; arguments left at None keep their value.

        Args:
            target: an object's ID, or a set.
            priority: -8 to 8; each step makes evicting the object four times as expensive. An object's priority is
                added to its set's.
            operation: sets only: what is being done with the set now: ``"none"``, ``"reading"`` or ``"writing"``.
            keep: objects only: True keeps the object in memory, whoever reads it, until a hint with False.
            locality_set: objects only: the set to which the object belongs from now on; ``""`` is the default set.
            recompute_seconds: objects only: how long it takes to recompute the object, including everything it needs.
                When memory is short, the object is dropped instead of written to disk if that is expected to cost
                less; reading it then raises :class:`~entrepot.errors.ObjectDropped` until it is put again. An object
                that was dropped once is not dropped again. ``math.inf``, the default for every object: it cannot be
                recomputed.

        Raises:
            ObjectNotFound: there is no such object or set.
            InvalidArgument: an invalid value, or a hint that does not apply to this kind of target.
        """
        self._locality_sets.hint(
            target,
            priority=priority,
            operation=operation,
            keep=keep,
            locality_set=locality_set,
            recompute_seconds=recompute_seconds,
        )

    def consumed(self, oid: AnyID, consumer: str) -> int:
        """Mark an object as consumed by ``consumer``; idempotent. Return how many consumers are still outstanding.

        After the last one the object is dead: still readable, but evicted first when memory is short, and never
        written to disk. In a session with ``delete_consumed`` it is deleted at once.

        Args:
            oid: an object that was put with ``consumers``, or into a set that defines their number.
            consumer: a key of the consumer, such as its task's name. A rerun must pass the same key, so that it counts
                once.

        Returns:
            The number of consumers still outstanding; 0 also if the object no longer exists.

        Raises:
            InvalidArgument: the object's consumers are not counted, or the key is empty.
        """
        return self._locality_sets.consumed(oid, consumer)

    # --- sessions

    def session(
        self,
        name: str,
        *,
        ttl: float | None = None,
        limit_bytes: int | None = None,
        delete_consumed: bool | None = None,
    ) -> Store:
        """Open another session of this scope over the same connection; create it if it does not exist.

        Args:
            name: its name; ``""`` is the scope's own session.
            ttl: seconds after its last use until the session is removed with everything in it; 0: never. Default: keep
                its current TTL; one day for a new session.
            limit_bytes: maximum number of bytes that it may hold; default: keep its current limit; none for a new one.
            delete_consumed: delete each object as soon as its last consumer has finished. Default: keep the current
                setting; in a new session, such objects stay until memory is short.

        >>> import entrepot
        >>> store = entrepot.connect()
        >>> run = store.session("run-7", ttl=3600)
        >>> oid = run.put("a result", name="result", replace=True)
        >>> store.exists(oid)  # IDs are found in any session, names in their own
        True
        >>> store.remove_session("run-7")
        >>> store.exists(oid)
        False
        """
        opened = self._session.open_another(name, ttl=ttl, limit_bytes=limit_bytes, delete_consumed=delete_consumed)
        return Store._open(opened, self._opener, None, inherited=self._objects.durable)

    def sessions(self) -> builtins.list[SessionInfo]:
        """Return the sessions of this scope."""
        return self._session.all()

    def remove_session(self, name: str) -> None:
        """Remove a session of this scope with all its objects and names. Values already read stay valid.

        Raises:
            ObjectNotFound: there is no such session.
        """
        self._session.remove(name)

    # --- checkpoints

    def save(
        self,
        what: Any,
        url: str,
        *,
        format: Literal["entrepot", "parquet", "arrow", "csv", "orc", "npy", "h5"] = "entrepot",
        incremental: bool = True,
        progress: Callable[[Any], None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write a checkpoint: a durable copy outside the store, which this or another store can load.

            store.save(oid, "s3://bucket/checkpoints/orders")
            store.save(store.session("run-7"), "/data/checkpoints/run-7")

        Data is written first and the manifest last, so a failed save leaves the previous checkpoint intact. Saving the
        same content again writes nothing; repeating a failed save writes only what is still missing.

        Args:
            what: an ObjectID, a list of them, a collection (with its members), or a ``Store``, for its whole session.
            url: the checkpoint's directory: a path, ``file://``, ``s3://``, ``memory://``, or any other fsspec URL. An
                existing checkpoint is replaced when the new one is complete.
            format: ``"entrepot"`` preserves every value exactly; the others write tables (``"parquet"``, ``"arrow"``,
                ``"csv"``, ``"orc"``, ``"h5"``) or arrays (``"npy"``, ``"h5"``) as files that any tool can read.
            incremental: share data with other checkpoints in the parent directory. If False, this directory is
                self-contained and everything is written.
            progress: called with an ``entrepot_checkpoints.Progress`` as the save proceeds, from any thread.
            storage_options: passed to fsspec's driver: credentials, endpoints.

        Returns:
            An ``entrepot_checkpoints.SaveReport``: how many objects and bytes, and how many of them were written.

        Raises:
            ObjectNotFound: an object is not sealed here.
            ObjectLost: an object's bytes are gone.
            UnsupportedType: another format than ``"entrepot"``, and a value has no such files, or would not survive a
                round trip.
            InvalidArgument: unknown scheme, driver not installed, or the path is not a directory.
            AccessDenied: no credentials, or no permission to write there.
            StoreFull: the target is full.
            StoreUnavailable: the target or the daemon cannot be reached.
        """
        return checkpoint_function("save")(
            self,
            what,
            url,
            format=format,
            incremental=incremental,
            progress=progress,
            storage_options=storage_options,
        )

    def load(
        self,
        url: str,
        *,
        session: str | None = None,
        replace: bool = False,
        progress: Callable[[Any], None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> ObjectID | builtins.list[ObjectID]:
        """Load a checkpoint's objects into the store, under the same IDs, types and names.

        Objects already here with the same content are left alone, so repeating a failed load continues it.

        Args:
            url: where it was saved.
            session: session of this scope that receives the objects and names; default: this store's.
            replace: replace objects that have the same ID but other content, and names bound to other objects.
            progress: as for ``save``.
            storage_options: as for ``save``.

        Returns:
            The ID of the object or collection, or the list of IDs, in the order in which they were saved.

        Raises:
            ObjectNotFound: there is no checkpoint.
            CorruptData: the manifest or a chunk is damaged; none of the objects affected is put.
            ObjectLost: a chunk is missing.
            VersionMismatch: it was written by a newer version.
            ObjectExists: an ID holds other content here, or a name is taken, and ``replace`` is False.
            StoreFull: it does not fit.
            InvalidArgument, AccessDenied, StoreUnavailable: as for ``save``.
        """
        load = checkpoint_function("load")
        return cast(
            "ObjectID | builtins.list[ObjectID]",
            load(self, url, session=session, replace=replace, progress=progress, storage_options=storage_options),
        )

    # --- durable sessions; see entrepot.durable

    @property
    def durable(self) -> Durable | None:
        """This session's settings from ``connect(durable=...)``; None: not durable."""
        return self._objects.durable

    def make_durable(self, oid: AnyID) -> None:
        """Write one object to this session's durable tier, whatever its name.

        Raises:
            InvalidArgument: the session is not durable.
            ObjectNotFound: the object is not sealed here.
            Anything that ``save`` raises.
        """
        self._objects.make_durable(self, oid)

    def flush_durable(self, timeout: float | None = None) -> None:
        """Wait until this process's pending writes to the durable tier are done; a no-op if there is no such tier.

        Args:
            timeout: in seconds; None: no limit.

        Raises:
            Timeout: it took longer.
            Anything that ``save`` raises, for an object that could not be written.
        """
        self._objects.flush(timeout)

    def recall(self, oid: AnyID, *, life: tuple[str, int] | None = None) -> bool:
        """Restore an object from the durable tier; return whether it was there.

        Args:
            oid: the object's ID.
            life: required instance and generation; None: whichever version was written last.

        Raises:
            Anything that ``load`` raises.
        """
        return self._objects.recall(self, oid, life)

    # --- files, decoded once for all processes of this host

    def read_parquet(
        self,
        path: PathArgument | Sequence[PathArgument],
        *,
        columns: Sequence[str] | None = None,
        filters: Any = None,
        dictionary: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
        timeout: float | None = 600,
    ) -> Any:
        """Return the table in a Parquet file, decoded at most once as long as there is room for it.

            orders = store.read_parquet("s3://bucket/orders.parquet", columns=["day", "total"])

        Whoever asks first, in whatever session or scope, decodes the file into the store; others who ask meanwhile
        wait, and all get views of the same memory. The table is kept until memory is short or the file has changed, and
        is then decoded again on demand; what was read stays valid. It is equal to what ``pyarrow.parquet.read_table``
        returns.

        Args:
            path: a local path or a URL that fsspec knows, of a file, a directory (with partitions as in
                ``year=2020/``) or a pattern (``*``, ``?``, ``[...]``); or a list of files.
            columns: names, in the order of the result; ``"a.b"`` is the field ``b`` of the struct ``a``. Default: all.
            filters: which rows: a ``pyarrow.compute.Expression``, or tuples such as ``[("year", ">", 2020)]``.
                Default: all.
            dictionary: names of text columns to read dictionary-encoded.
            storage_options: passed to fsspec's driver: credentials, endpoints.
            timeout: seconds to wait for another process that decodes the file; None: no limit. What this call decodes
                itself takes as long as it takes.

        Returns:
            A ``pyarrow.Table`` in shared memory. If the file system reports neither a version nor a modification time,
            the table is in private memory and decoded by each call; the logger ``entrepot`` warns once.

        Raises:
            FileNotFoundError: there is no such file, or no file matches.
            InvalidArgument: an unknown column, a malformed argument, or fsspec or a driver of it is not installed.
            StoreFull: the table does not fit.
            Timeout: the other process took longer, or the file changed during each of five attempts.
            StoreUnavailable: the daemon cannot be reached.
            Anything that pyarrow or fsspec raises, for a damaged file, say.
        """
        from entrepot._readers.formats import Parquet

        return self._read_file(path, storage_options, Parquet(columns, filters, dictionary), timeout)

    def read_csv(
        self,
        path: PathArgument,
        *,
        columns: Sequence[str] | None = None,
        dictionary: Sequence[str] = (),
        read_options: Any = None,
        parse_options: Any = None,
        convert_options: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        timeout: float | None = 600,
    ) -> Any:
        """Return the table in a CSV file, as ``pyarrow.csv.read_csv`` reads it; otherwise as :meth:`read_parquet`.

        Args:
            path: one file; compressed if its name ends in ``.gz``, ``.bz2``, ``.zst`` or ``.lz4``.
            columns: names, in the order of the result. Default: all.
            dictionary: names of columns to encode as dictionaries.
            read_options, parse_options, convert_options: of ``pyarrow.csv``, except for functions in them. Default:
                pyarrow's.
            storage_options, timeout: as for ``read_parquet``.

        Raises:
            As ``read_parquet``. InvalidArgument also for a directory or several files.
        """
        from entrepot._readers.formats import Csv

        decoder = Csv(columns, dictionary, read_options, parse_options, convert_options)
        return self._read_file(path, storage_options, decoder, timeout)

    def read_ipc(
        self,
        path: PathArgument,
        *,
        columns: Sequence[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        timeout: float | None = 600,
    ) -> Any:
        """Return the table in an Arrow IPC file (Feather) or stream; otherwise as :meth:`read_parquet`.

        Args:
            path: one file; which of the two formats it has is detected.
            columns: names, in the order of the result. Default: all.
            storage_options, timeout: as for ``read_parquet``.

        Raises:
            As ``read_parquet``. InvalidArgument also for a directory or several files.
        """
        from entrepot._readers.formats import Ipc

        return self._read_file(path, storage_options, Ipc(columns), timeout)

    # --- the store

    def allocating(self, *, warn: bool = True) -> Allocating:
        """Let NumPy and Arrow make large values in the store's memory, so that ``put`` seals them without a copy.

        For a ``with`` block, or from ``start()`` to ``stop()`` of what is returned. It concerns all threads of the
        process, and arrays of 2 MiB or more; pandas and others that build on NumPy and Arrow are included. What does
        not fit, or is made by other means, is copied by ``put`` as usual. A value may be written to after its put: the
        pages that are written become the process's own, and the stored bytes stay as they are.

        Args:
            warn: False: a release of NumPy or pyarrow that was not tested is left alone without a warning.

        Warns:
            RuntimeWarning: once per library, if its release was not tested; its values are copied, as without this.
        """
        return Allocating(self._session.raw(), self, warn=warn)

    def reserve(self, size: SupportsIndex | str, *, timeout: float | None = 60) -> Reservation:
        """Wait until the store has room for what this process is going to put, and keep that room for it.

            with store.reserve("2GiB", timeout=600) as reservation:
                store.put(result)
                print(reservation.used, "of", reservation.bytes)

        Requests are granted strictly in the order in which they came. Nothing else changes: a put neither needs a
        reservation nor waits for one, and it may store more than was reserved. Reserve before the values are made, and
        do not ask for a second one while others may wait for what the first holds.

        Args:
            size: how much, in bytes, or as a text such as ``"512MiB"``; what is shared with stored objects is free. 0
                is granted at once, and only measures (:attr:`Reservation.used`).
            timeout: seconds to wait; None: no limit. 0: it is granted now or refused.

        Raises:
            StoreFull: it was not granted in time; the message says who has reserved what. Or it is more than this store
                could ever reserve: at once, with the number of bytes that it could.
            InvalidArgument: the size or the timeout is none.
            StoreUnavailable: the daemon cannot be reached.
            Timeout: the daemon did not answer.
        """
        return Reservation(self._session.raw(), size, timeout)

    def status(self) -> dict[str, Any]:
        """Return capacity and usage in bytes, objects, clients; keys: see the documentation of ``entrepot status``."""
        return queries.status_of(self._session.raw())

    def wait_provisioned(self, timeout: float = 60) -> None:
        """Wait until the daemon has provisioned its memory (``status()["provisioned"]``).

        Raises:
            Timeout: it took longer than ``timeout`` seconds.
        """
        self._session.raw().wait_provisioned(timeout_seconds(timeout))

    def close(self) -> None:
        """Release the connection. Values already read stay valid; closing twice is harmless."""
        if self._session.closed:
            return
        try:
            self._objects.flush(None)
        finally:
            if self._file_reader is not None:
                self._file_reader.close()
            self._get_small = _nothing  # so that a get takes the way on which it is refused
            self._session.close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._session.closed

    @property
    def scope(self) -> str:
        """The scope's name."""
        return self._session.scope

    @property
    def session_name(self) -> str:
        """The session's name; ``""`` is the scope's own session."""
        return self._session.name

    @property
    def address(self) -> str:
        """The store's address: ``unix:///path``."""
        return self._session.address

    @property
    def instance_id(self) -> str:
        """The store's instance, in hex; no other instance holds these objects."""
        return self._session.client.raw.instance

    @property
    def host(self) -> str:
        """The host that the store runs on."""
        return self._session.client.raw.host

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        session = self._session
        return f"<entrepot.Store {session.address} scope={session.scope!r} session={session.name!r}>"

    def _repr_html_(self) -> str | None:
        """What a notebook shows; None, and so :meth:`__repr__`, if the store is closed or does not answer."""
        try:
            return store_table(self.address, self.scope, self.session_name, self.status())
        except EntrepotError:
            return None

    def __reduce__(self) -> Any:
        # Arguments that make the unpickled store as strict as this one, whatever the receiving process's settings.
        session, allow = self._session, self._session.allow_pickle
        options: dict[str, Any] = {"session": session.name, "scope": session.scope}
        if self._objects.durable is not None:
            options["durable"] = self._objects.durable
        options["allow_pickle"] = allow if isinstance(allow, bool) else True
        options["object_strings"] = session.object_strings
        if not isinstance(allow, bool):
            options["pickled_classes"] = allow
        return (partial(self._opener, session.address, **options), ())

    # --- for this package's own modules

    @property
    def _client(self) -> SharedClient:
        return self._session.client

    @property
    def _session_number(self) -> int:
        return self._session.number

    @property
    def _allow_pickle(self) -> AllowPickle:
        return self._session.allow_pickle

    @property
    def _object_strings(self) -> ObjectStrings:
        return self._session.object_strings

    def _raw(self) -> _core.Client:
        return self._session.raw()

    def _get_set_handle(self, target: LocalitySetOrName) -> int:
        return self._locality_sets.handle_of(target)

    def _item(self, value: Any, oid: ObjectID, fresh: bool, name: str = "", replace: bool = False) -> _core.Item:
        return to_item(self._session, value, oid, fresh, name, replace)

    def _new_item(
        self,
        value: Any,
        id: AnyID | None,
        name: str | None,
        replace: bool,
        locality_set: LocalitySetOrName | None,
        consumers: int | None,
    ) -> tuple[ObjectID, _core.Item]:
        oid, fresh = new_id(id)
        if replace is not False:
            replace = arguments.checked_boolean("replace", replace)
        return oid, self._item_with_usage(value, oid, fresh, name, replace, locality_set, consumers)

    def _item_with_usage(
        self,
        value: Any,
        oid: ObjectID,
        fresh: bool,
        name: str | None,
        replace: bool,
        locality_set: LocalitySetOrName | None,
        consumers: int | None,
    ) -> _core.Item:
        item = to_item(self._session, value, oid, fresh, checked_name(name) if name is not None else "", replace)
        if locality_set is not None or consumers is not None:
            item = self._locality_sets.with_usage(item, locality_set, consumers)
        return item

    def _read_file(
        self,
        path: PathArgument | Sequence[PathArgument],
        options: Mapping[str, Any] | None,
        decoder: Format,
        timeout: float | None,
    ) -> Any:
        from entrepot._readers.file_reader import FileReader  # here, because most processes read no files
        from entrepot._readers.sources import source_of

        source = source_of(path, options)
        reader = self._file_reader
        if reader is None:
            reader = self._file_reader = FileReader(self._session)  # a second one, of another thread, closes itself
        return reader.read(self, source, decoder, timeout)

    def _put_item(self, item: _core.Item) -> tuple[int, int, bool]:
        return self._objects.put_item(self, item)

    def _seal_blob(self, raw: _core.WritableBlob, oid: ObjectID, fresh: bool, name: str, tree: bytes) -> PutResult:
        return self._objects.seal_blob(self, raw, oid, fresh, name, tree)


def _nothing(oid: bytes, /) -> bytes | None:
    return None
