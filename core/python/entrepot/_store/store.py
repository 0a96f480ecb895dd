"""The ``Store`` class: the Python interface to a store."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, SupportsIndex

from entrepot import _core
from entrepot._checkpoints.store_methods import CheckpointMethods, apply_durable_config
from entrepot._client import arguments, queries
from entrepot._client.arguments import AnyID, checked_name, copy_mode_number, new_id, new_ids, timeout_seconds, to_id
from entrepot._client.info import ObjectInfo, PutResult
from entrepot._client.locality_sets import LocalitySetMethods, LocalitySetOrName
from entrepot._client.memory import MemoryMethods
from entrepot._client.sessions import SessionMethods
from entrepot._client.shared_client import SharedClient
from entrepot._codecs.blob import BlobWriter, blob_tree
from entrepot._codecs.encoding import decode_object, encode_item
from entrepot._collections.store_methods import CollectionMethods, delete_object
from entrepot.codec import COPY_MODES, AllowPickle, CopyMode, inlined_bytes
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound, StoreUnavailable
from entrepot.ids import ObjectID

PUT_WAIT_SECONDS = 30.0  # how long a put waits for memory that is still being provisioned


class Store(CheckpointMethods, CollectionMethods, MemoryMethods, SessionMethods, LocalitySetMethods):
    """Connection to a store, seen from one session of one scope. Thread-safe; a context manager that closes it.

    Created by :func:`entrepot.connect`. Keeps working after ``os.fork`` and in ``multiprocessing`` children, which pin
    objects on their own. Reconnects by itself when the daemon is restarted. If keeper and daemon both died and another
    store now runs at the address, it switches to that one (a private store is restarted): values already read stay
    valid, all other objects are lost.
    """

    def __init__(self) -> None:
        raise InvalidArgument("create a Store with entrepot.connect()")

    _client: SharedClient
    _get_small: Callable[[bytes], bytes | None]
    _address: str
    _scope: str
    _session: str
    _session_number: int
    _allow_pickle: AllowPickle
    _closed: bool

    @classmethod
    def _open(
        cls,
        client: SharedClient,
        address: str,
        scope: str,
        session: str,
        allow_pickle: AllowPickle,
        limits: tuple[int, int, int] | None = None,
        delete_consumed: bool | None = None,
    ) -> Store:
        store = cls.__new__(cls)
        store._client = client
        store._get_small = client.raw.get_small
        store._address = address
        store._scope = scope
        store._session = session
        store._allow_pickle = allow_pickle
        store._session_number = client.raw.open_session(scope, session, limits, delete_consumed)
        store._closed = False
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
        """
        return self._put(value, id, name, replace, locality_set, consumers)[0]

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
        return PutResult(*self._put(value, id, name, replace, locality_set, consumers))

    def put_many(self, values: Iterable[Any], *, ids: Sequence[AnyID] | None = None) -> list[ObjectID]:
        """Store several values in one round trip.

        Args:
            values: as for ``put``.
            ids: one ID per value; default: random ones.

        Raises:
            As ``put``, for the first value that failed, which the message names. The other values are still stored.
        """
        values = list(values)
        pairs = new_ids(ids, len(values))
        items = [self._item(value, *pair) for value, pair in zip(values, pairs, strict=True)]
        if items:
            self._raw().put(items, PUT_WAIT_SECONDS)
        return [oid for oid, _ in pairs]

    def get(self, oid: AnyID, *, timeout: float | None = 0, copy: CopyMode = "never") -> Any:
        """Return the value of an object, with the type that was put.

        With ``copy="never"``, the result is a read-only view of shared memory; writing to an array raises the library's
        own error, for example "assignment destination is read-only". To write, use ``copy="on_write"``, which returns a
        private mapping (the kernel copies each page on its first write; nobody else sees the changes), or
        ``copy="always"``, which copies at once and leaves nothing pinned. The value stays valid after the object is
        deleted or the store is closed.

        Args:
            oid: the object's ID.
            timeout: seconds to wait for the object to be sealed and, if it was spilled, reloaded. 0: do not wait for
                the seal, but wait for the disk as long as it takes. None: no limit.
            copy: ``"never"``, ``"on_write"`` or ``"always"``.

        Raises:
            ObjectNotFound: the object is not sealed here, and no timeout was given.
            Timeout: it was not sealed in time, or the daemon did not answer.
            ObjectLost: its bytes are gone.
            InvalidArgument: wrong ID length, unknown copy mode, or negative timeout.
            UnsupportedType: it was pickled, and pickling is disabled here.
            StoreUnavailable: the daemon cannot be reached.
        """
        if (
            type(oid) is ObjectID
            and copy in COPY_MODES
            and (timeout == 0 or timeout_seconds(timeout))
            and not self._closed
        ):
            small = self._get_small(oid._binary)  # inline bytes: the same in every copy mode, no daemon involved
            if small is not None:
                return small
        return self.get_versioned(oid, timeout=timeout, copy=copy)[0]

    def get_versioned(self, oid: AnyID, *, timeout: float | None = 0, copy: CopyMode = "never") -> tuple[Any, int]:
        """Return the value of an object and the generation of exactly that value; otherwise as ``get``."""
        mode, raw, binary_id = copy_mode_number(copy), self._raw(), to_id(oid).binary
        try:
            pinned_object = raw.get(binary_id, timeout_seconds(timeout))
        except ObjectNotFound:
            raw.refuse_lost([binary_id])
            raise
        return decode_object(
            pinned_object, copy, mode, allow_pickle=self._allow_pickle, store=self
        ), pinned_object.generation

    def get_many(self, oids: Iterable[AnyID], *, timeout: float | None = 0, copy: CopyMode = "never") -> list[Any]:
        """Return the values of several objects, in at most one round trip; otherwise as ``get``."""
        mode = copy_mode_number(copy)
        wait, raw = timeout_seconds(timeout), self._raw()
        ids = [to_id(oid).binary for oid in oids]
        values: builtins.list[Any] = raw.get_small_many(ids)
        remaining = [index for index, value in enumerate(values) if value is None]
        if remaining:
            missing = [ids[index] for index in remaining]
            try:
                pinned_objects = raw.get_many(missing, wait)
            except ObjectNotFound:
                raw.refuse_lost(missing)
                raise
            for index, pinned_object in zip(remaining, pinned_objects, strict=True):
                values[index] = decode_object(pinned_object, copy, mode, allow_pickle=self._allow_pickle, store=self)
        return values

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
        """
        length = arguments.checked_integer("the length of a blob in bytes", nbytes)
        if not isinstance(metadata, (bytes, bytearray, memoryview)):
            raise InvalidArgument(f"the metadata of a blob must be bytes, but got {metadata!r}")
        oid, fresh = new_id(id)
        bound_name = checked_name(name) if name is not None else ""
        tree = blob_tree(bytes(metadata))
        return BlobWriter(self._seal_blob, self._raw().create(length, PUT_WAIT_SECONDS), oid, fresh, tree, bound_name)

    # --- objects

    def exists(self, oid: AnyID) -> bool:
        """Return whether an object with this ID is sealed."""
        return self._raw().generation_of(to_id(oid).binary) is not None

    def generation_of(self, oid: AnyID) -> int:
        """Return the generation of an object, in most cases without asking the daemon.

        Raises:
            ObjectNotFound: the object is not sealed here.
        """
        if (generation := self._raw().generation_of(to_id(oid).binary)) is None:
            raise ObjectNotFound(f"no object {to_id(oid)} is sealed in the store at {self._address}")
        return generation

    def delete(self, oid: AnyID, *, members: bool = True) -> bool:
        """Delete an object; return whether it existed. Its memory is freed when the last reader releases it.

        Args:
            oid: the object's ID.
            members: if the object is a collection, also delete its members.
        """
        return delete_object(self._raw(), to_id(oid).binary, arguments.checked_boolean("members", members))

    def info(self, oid: AnyID) -> ObjectInfo:
        """Return an object's metadata.

        Raises:
            ObjectNotFound: the object is not sealed here.
        """
        raw, object_id = self._raw(), to_id(oid)
        try:
            return queries.info_of(raw, object_id)
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
        raw = self._raw()
        number = self._session_number if session is None else queries.session_number(raw, self._scope, session)
        return queries.list_objects(raw, number, arguments.checked_text("the pattern of a list", pattern))

    def derive(self, key: str) -> ObjectID:
        """Return the ID derived from a key in this session; always the same, so a retry writes the same object."""
        return ObjectID.derive(self._scope, self._session, key)

    # --- the store

    @contextmanager
    def allocating(self) -> Iterator[Store]:
        """Mark a block whose results will be put. Only a hint: puts are correct inside and after it either way."""
        yield self

    def status(self) -> dict[str, Any]:
        """Return capacity and usage in bytes, objects, clients; keys: see the documentation of ``entrepot status``."""
        return queries.status_of(self._raw())

    def wait_provisioned(self, timeout: float = 60) -> None:
        """Wait until the daemon has provisioned its memory (``status()["provisioned"]``).

        Raises:
            Timeout: it took longer than ``timeout`` seconds.
        """
        self._raw().wait_provisioned(timeout_seconds(timeout))

    def close(self) -> None:
        """Release the connection. Values already read stay valid; closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._client.release((self._scope, self._session))

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    @property
    def scope(self) -> str:
        """The scope's name."""
        return self._scope

    @property
    def session_name(self) -> str:
        """The session's name; ``""`` is the scope's own session."""
        return self._session

    @property
    def address(self) -> str:
        """The store's address: ``unix:///path``."""
        return self._address

    @property
    def instance_id(self) -> str:
        """The store's instance, in hex; no other instance holds these objects."""
        return self._client.raw.instance

    @property
    def host(self) -> str:
        """The host that the store runs on."""
        return self._client.raw.host

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self, _finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At interpreter exit, module globals may be gone already; the process's exit tells the daemon anyway.
        if getattr(self, "_closed", True) is False and not _finalizing():
            with suppress(EntrepotError):
                Store.close(self)  # not a subclass's close(), which waits for pending writes: nobody asked for that

    def __repr__(self) -> str:
        return f"<entrepot.Store {self._address} scope={self._scope!r} session={self._session!r}>"

    def __reduce__(self) -> Any:
        from entrepot._client.connection import connect

        options = self._pickle_arguments()
        return (partial(connect, self._address, session=self._session, scope=self._scope, **options), ())

    def _pickle_arguments(self) -> dict[str, Any]:
        """Arguments that make the unpickled store as strict as this one, whatever the receiving process's settings."""
        allow = self._allow_pickle
        return {"allow_pickle": allow} if isinstance(allow, bool) else {"allow_pickle": True, "pickled_classes": allow}

    # --- internal

    def _raw(self) -> _core.Client:
        if self._closed:
            raise StoreUnavailable("this store was closed by close(): connect again")
        return self._client.raw

    def _open_session(self, name: str, limits: tuple[int, int, int] | None, delete_consumed: bool | None) -> Store:
        """Open another session of this scope over the same connection."""
        if self._closed or not self._client.acquire():
            raise StoreUnavailable("this store was closed by close(): connect again")
        try:
            opened = Store._open(
                self._client, self._address, self._scope, name, self._allow_pickle, limits, delete_consumed
            )
        except BaseException:
            self._client.release(None)
            raise
        return apply_durable_config(opened)

    def _item(self, value: Any, oid: ObjectID, fresh: bool, name: str = "", replace: bool = False) -> _core.Item:
        return encode_item(value, oid, fresh, self._session_number, name, replace, allow_pickle=self._allow_pickle)

    def _put(
        self,
        value: Any,
        id: AnyID | None,
        name: str | None,
        replace: bool,
        locality_set: LocalitySetOrName | None = None,
        consumers: int | None = None,
    ) -> tuple[ObjectID, int, int, bool]:
        oid, fresh = new_id(id)
        if replace is not False:
            replace = arguments.checked_boolean("replace", replace)
        item = self._item(value, oid, fresh, checked_name(name) if name is not None else "", replace)
        if locality_set is not None or consumers is not None:
            item = self._with_usage(item, locality_set, consumers)
        return oid, *self._put_item(item)

    def _put_item(self, item: _core.Item) -> tuple[int, int, bool]:
        ((_, generation, existed, nbytes),) = self._raw().put([item], PUT_WAIT_SECONDS)
        return generation, nbytes + inlined_bytes(item[5]), existed

    def _seal_blob(self, raw: _core.WritableBlob, oid: ObjectID, fresh: bool, name: str, tree: bytes) -> PutResult:
        item = (oid.binary, self._session_number, False, fresh, name, tree, ())
        _, generation, existed, nbytes = self._raw().seal(raw, item)
        return PutResult(oid, generation, nbytes, existed)
