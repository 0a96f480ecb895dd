"""``PlasmaClient``: the methods of pyarrow's class of that name."""

from __future__ import annotations

import builtins
import hashlib
import operator
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from entrepot import _core
from entrepot._codecs import plasma_values
from entrepot._codecs.plasma_objects import TREE
from entrepot.errors import InvalidArgument, ObjectNotFound, UnsupportedType
from entrepot.plasma import listing, notifications, reading
from entrepot.plasma.buffers import as_buffer
from entrepot.plasma.errors import PlasmaObjectNotFound, PlasmaSerializationError
from entrepot.plasma.object_id import ObjectID, binary_of
from entrepot.plasma.quota import Quota
from entrepot.plasma.writer import SMALL_BYTES, Writer, target_of

_HASH_BYTES = 8


class ObjectNotAvailable:
    """Stands for an object that was not there in time in what ``PlasmaClient.get`` returns: the class itself."""


class PlasmaClient(Writer):
    """A connection to a store, created by :func:`entrepot.plasma.connect`. Thread-safe.

    Keeps working in forked children, except that only the parent can seal what it has created. Reconnects when the
    daemon is restarted. What was read stays valid after ``disconnect``.
    """

    # --- values

    def put(
        self,
        value: Any,
        object_id: ObjectID | None = None,
        memcopy_threads: int = 6,
        serialization_context: None = None,
    ) -> ObjectID:
        """Store a Python value, pickled; arrays and tables in it are copied as they are, and not again by ``get``.

        Args:
            value: anything that can be pickled, and Arrow tensors.
            object_id: default: a random one.
            memcopy_threads: ignored.
            serialization_context: must be None: pyarrow removed it.

        Raises:
            PlasmaObjectExists: the ID is taken.
            PlasmaStoreFull: the value does not fit.
            PlasmaSerializationError: it cannot be pickled, or pickling is switched off here.
        """
        _refuse_context(serialization_context)
        self._check_pickling()
        try:
            encoded = plasma_values.encode(value)
        except UnsupportedType as error:
            raise PlasmaSerializationError(error.message) from error
        target, is_fresh = target_of(object_id)
        if encoded.nbytes <= SMALL_BYTES or not encoded.buffers:
            self._put(target.binary(), is_fresh, encoded.joined(), b"")
        else:
            self._write(target.binary(), is_fresh, encoded)
        return target

    def get(
        self, object_ids: ObjectID | Sequence[ObjectID], timeout_ms: int = -1, serialization_context: None = None
    ) -> Any:
        """Return a value, or a list of values for a sequence of IDs.

        Objects that were written through Entrepot's own interface are returned as ``Store.get`` does.

        Args:
            object_ids: whose values.
            timeout_ms: how long to wait for them, in milliseconds; 0: not at all; -1: without limit.
            serialization_context: must be None: pyarrow removed it.

        Returns:
            ``ObjectNotAvailable`` for each that was not sealed in time.

        Raises:
            PlasmaSerializationError: the data is not a value that ``put`` wrote, or pickling is switched off here.
            ObjectLost: its bytes were lost with a store that died.
        """
        if type(object_ids) is ObjectID and serialization_context is None:
            try:
                sealed_object = self._get(object_ids._binary, 0.0)  # pyright: ignore[reportPrivateUsage]
            except ObjectNotFound:
                pass
            else:
                return self._value(sealed_object, object_ids)
        _refuse_context(serialization_context)
        if isinstance(object_ids, Sequence):
            ids = [*object_ids]
            return [
                ObjectNotAvailable if sealed_object is None else self._value(sealed_object, object_id)
                for object_id, sealed_object in zip(ids, self._find(ids, timeout_ms), strict=True)
            ]
        return self.get([object_ids], timeout_ms)[0]

    # --- bytes, and where they came from

    def get_buffers(
        self, object_ids: Iterable[ObjectID], timeout_ms: int = -1, with_meta: bool = False
    ) -> builtins.list[Any]:
        """Return the data of objects, each as a read-only ``PlasmaBuffer`` over shared memory.

        Byte strings and blobs that were written through Entrepot's own interface have data, too.

        Args:
            object_ids: of which objects.
            timeout_ms: as for ``get``.
            with_meta: return tuples of metadata, as bytes, and data.

        Returns:
            None, or ``(None, None)``, for each that was not sealed in time.

        Raises:
            PlasmaSerializationError: an Entrepot value of another type.
            ObjectLost: as ``get``.
        """
        parts = self._parts(object_ids, timeout_ms)
        if with_meta:
            return [(None, None) if each is None else (bytes(each[1]), as_buffer(each[0])) for each in parts]
        return [None if each is None else as_buffer(each[0]) for each in parts]

    def get_metadata(self, object_ids: Iterable[ObjectID], timeout_ms: int = -1) -> builtins.list[Any]:
        """Return the metadata of objects, each as a read-only ``PlasmaBuffer``; otherwise as ``get_buffers``."""
        return [None if each is None else as_buffer(each[1]) for each in self._parts(object_ids, timeout_ms)]

    # --- objects

    def contains(self, object_id: ObjectID) -> bool:
        """Return whether the object is sealed, in memory or on disk."""
        return self._raw().generation_of(binary_of(object_id)) is not None

    def hash(self, object_id: ObjectID) -> bytes:
        """Return 8 bytes that depend on the object's data and metadata only; not those that Plasma computed.

        Raises:
            PlasmaObjectNotFound: it is not sealed.
        """
        (parts,) = self._parts([object_id], 0)
        if parts is None:
            raise PlasmaObjectNotFound(f"no object {object_id} is sealed in the store at {self._address}")
        data, metadata = (memoryview(part) for part in parts)
        digest = hashlib.blake2b(data.nbytes.to_bytes(8, "little"), digest_size=_HASH_BYTES)
        digest.update(data)
        digest.update(metadata)
        return digest.digest()

    def delete(self, object_ids: Iterable[ObjectID]) -> None:
        """Delete objects. They are gone for others at once; those who hold one can still read it.

        IDs that are not sealed are ignored.
        """
        ids = [binary_of(object_id) for object_id in object_ids]
        if not ids:
            return
        for binary, existed in zip(ids, self._raw().delete(ids), strict=True):
            if existed:
                notifications.deleted(self._address, binary)

    def evict(self, num_bytes: int) -> int:
        """Drop Plasma objects in memory that nobody holds, least recently used first; return their bytes.

        Memory need not be made in this way: what does not fit goes to disk.

        Args:
            num_bytes: drop at least so many bytes of data and metadata, if there are.
        """
        self._raw()
        with self._lock:
            return self._queue.evict(operator.index(num_bytes))

    def list(self) -> dict[ObjectID, dict[str, Any]]:
        """Return the Plasma objects in the store, and what this process is creating.

        Each has ``data_size`` and ``metadata_size`` in bytes, ``ref_count`` (processes that hold it), ``create_time``
        (seconds since 1970), ``construct_duration`` (seconds; 0 for what other clients wrote, -1 before the seal) and
        ``state``: ``"created"`` or ``"sealed"``.
        """
        return listing.entries(self._raw(), self._session, self._address, self._durations)

    # --- notifications

    def subscribe(self) -> None:
        """Begin to receive notifications: of all Plasma objects there are, and of those sealed or deleted from now on.

        What other processes do is reported within a tenth of a second, later in a store of many objects; what they seal
        and delete within that time is not reported.
        """
        previous, self._subscription = (
            self._subscription,
            notifications.Subscription(self._raw(), self._session, self._address),
        )
        if previous is not None:
            previous.end()

    def get_next_notification(self) -> tuple[ObjectID, int, int]:
        """Wait for the next notification; return the ID and the bytes of data and metadata, -1 each if it was deleted.

        Raises:
            InvalidArgument: without ``subscribe``.
            StoreUnavailable: the store cannot be reached, or more than a million notifications were left unread.
        """
        binary, data, metadata = self._subscribed().next()
        return ObjectID(binary), data, metadata

    def get_notification_socket(self) -> socket.socket:
        """Return a socket to read notifications from: each is 8 bytes, its length in native order, and so many bytes.

        Raises:
            InvalidArgument: without ``subscribe``.
        """
        return self._subscribed().reader.dup()

    def decode_notifications(self, buf: bytes) -> tuple[Sequence[ObjectID], Sequence[int], Sequence[int]]:
        """Return the IDs, bytes of data and bytes of metadata in what was read from the socket after a length."""
        decoded = notifications.decode(buf)
        ids = [ObjectID(binary) for binary, _, _ in decoded]
        return ids, [data for _, data, _ in decoded], [metadata for _, _, metadata in decoded]

    # --- client and store

    @property
    def store_socket_name(self) -> str:
        """What ``connect`` was given."""
        return self._name

    def store_capacity(self) -> int:
        """Return the store's capacity in bytes."""
        return int(self._store.status()["capacity_bytes"])

    def set_client_options(self, client_name: str, limit_output_memory: int) -> None:
        """Limit what this client may have in the store.

        Args:
            client_name: for messages.
            limit_output_memory: bytes of the objects that it creates from now on, until they are deleted; beyond, a put
                raises ``PlasmaStoreFull``. 0: no limit.
        """
        limit = operator.index(limit_output_memory)
        self._quota = Quota(client_name, limit) if limit > 0 else None

    def debug_string(self) -> str:
        """Return the store's state as text for people."""
        return listing.summary(self._raw())

    def to_capsule(self) -> Any:
        """Raise ``NotImplementedError``: the capsule held Plasma's C++ client, which does not exist here."""
        raise NotImplementedError("entrepot.plasma has no C++ Plasma client: use Entrepot's C interface (entrepot.h)")

    # ---

    def _check_pickling(self) -> None:
        if not self._allows_pickle:
            raise PlasmaSerializationError(
                "values are pickled, which is switched off here: set ENTREPOT_ALLOW_PICKLE=1 if you trust all writers "
                "of this store, or use put_raw_buffer and get_buffers"
            )

    def _find(self, object_ids: Iterable[ObjectID], timeout_ms: int) -> builtins.list[_core.Object | None]:
        return reading.find(self._raw(), [binary_of(object_id) for object_id in object_ids], timeout_ms)

    def _parts(self, object_ids: Iterable[ObjectID], timeout_ms: int) -> builtins.list[tuple[Any, Any] | None]:
        ids = [binary_of(object_id) for object_id in object_ids]
        return [
            None if sealed_object is None else reading.parts_of(sealed_object, binary, self._store)
            for binary, sealed_object in zip(ids, reading.find(self._raw(), ids, timeout_ms), strict=True)
        ]

    def _value(self, sealed_object: _core.Object, object_id: ObjectID) -> Any:
        if sealed_object.tree != TREE:
            return reading.value_of(sealed_object, self._store)
        if not self._allows_pickle:
            self._check_pickling()
        try:
            return plasma_values.decode(sealed_object.buffer(0, 0), plasma_values.load_any)
        except UnsupportedType as error:
            raise PlasmaSerializationError(f"{object_id} cannot be read by get: {error}") from error

    def _subscribed(self) -> notifications.Subscription:
        if self._subscription is None:
            raise InvalidArgument("there are no notifications without a subscription: call subscribe() first")
        return self._subscription


def _refuse_context(context: object) -> None:
    if context is not None:
        raise PlasmaSerializationError(
            "serialization_context must be None: pyarrow has removed its own serialization. Values are pickled: give "
            "the class a __reduce__ method, or register a function with copyreg"
        )
