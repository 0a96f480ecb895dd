"""How objects are written: in place between ``create`` and ``seal``, or at once."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, SupportsIndex

from entrepot import _core
from entrepot._codecs import plasma_values
from entrepot._codecs.plasma_objects import TREE
from entrepot.errors import InvalidArgument, ObjectExists, ObjectLost, ObjectNotFound, StoreFull
from entrepot.plasma import creations, notifications
from entrepot.plasma.base import ClientBase
from entrepot.plasma.buffers import as_buffer, checked_bytes
from entrepot.plasma.errors import PlasmaObjectExists, PlasmaObjectNotFound, PlasmaStoreFull
from entrepot.plasma.object_id import ObjectID, binary_of

FULL_WAIT_SECONDS = 10.0  # how long to wait for memory: until something is on disk or its readers have released it
SMALL_BYTES = 16 << 10  # an object of at most this size is stored in its record

if TYPE_CHECKING:
    _Seal = Callable[[_core.Client], _core.Sealed]


class Writer(ClientBase):
    """The part of a ``PlasmaClient`` that writes objects."""

    def create(self, object_id: ObjectID, data_size: SupportsIndex, metadata: bytes = b"") -> Any:
        """Create an object and return a writable buffer for its data, in the memory in which it will be sealed.

        Others see the object once it is sealed. After that, writing to the buffer kills the process by SIGSEGV; reading
        stays possible, and the buffer keeps the object in memory.

        Args:
            object_id: its ID.
            data_size: bytes of data. Bytes that are not written are undefined.
            metadata: stored with the object.

        Raises:
            PlasmaObjectExists: the ID is in the store, or being created by this process.
            PlasmaStoreFull: it does not fit.
        """
        binary, size = binary_of(object_id), operator.index(data_size)
        if size < 0:
            raise InvalidArgument(f"the size of an object must be 0 or more bytes, but got {size}")
        metadata = checked_bytes("metadata", metadata)
        raw = self._raw()
        creation = creations.Creation(self, size, metadata)
        if not creations.add(self._address, binary, creation):
            raise _exists(object_id)
        try:  # from here on, no other thread can create it
            if raw.generation_of(binary) is not None:
                raise _exists(object_id)
            self._charge(binary, size + len(metadata))
            creation.builder = raw.builder()
            creation.blob = raw.allocate(creation.builder, size, FULL_WAIT_SECONDS)
            creation.view = memoryview(creation.blob)
        except BaseException as error:
            creations.remove(self._address, binary)
            if isinstance(error, StoreFull) and not isinstance(error, PlasmaStoreFull):
                raise PlasmaStoreFull(error.message) from error
            raise
        return as_buffer(creation.blob)

    def seal(self, object_id: ObjectID) -> None:
        """Make an object that this client created immutable and visible, without a copy.

        Raises:
            PlasmaObjectNotFound: this client is not creating it: it was sealed already, say.
            PlasmaObjectExists: another process has sealed other content under this ID meanwhile.
            NotSealed: this process is a fork of the one that created it.
        """
        binary = binary_of(object_id)
        creation = creations.find(self._address, binary, self)
        if creation is None or creation.builder is None or creation.blob is None or creation.view is None:
            raise PlasmaObjectNotFound(f"this client is not creating {object_id}: seal it once, where it was created")
        raw, builder = self._raw(), creation.builder
        item = (binary, self._session, False, False, "", TREE, (creation.view, creation.metadata))
        try:
            _, generation, _, _ = raw.seal_built(builder, item, FULL_WAIT_SECONDS)
        except StoreFull as error:  # of the metadata: it can be tried again
            raise PlasmaStoreFull(error.message) from error
        except ObjectExists as error:
            raise PlasmaObjectExists(error.message) from error
        finally:
            if not builder.open:
                creations.remove(self._address, binary)
        with suppress(ObjectNotFound, ObjectLost):  # somebody has deleted it already
            creation.blob.keep(raw.get(binary, 0.0))  # as long as the buffer that create returned lives
        duration = int(time.time() - creation.created)
        if duration:
            self._durations[binary] = duration
        notifications.sealed(self._address, binary, generation, creation.data_size, len(creation.metadata))

    def create_and_seal(self, object_id: ObjectID, data: bytes, metadata: bytes = b"") -> None:
        """Store bytes under an ID.

        Raises:
            PlasmaObjectExists, PlasmaStoreFull: as ``create``.
        """
        self._put(binary_of(object_id), False, checked_bytes("data", data), checked_bytes("metadata", metadata))

    def put_raw_buffer(
        self, value: Any, object_id: ObjectID | None = None, metadata: bytes = b"", memcopy_threads: int = 6
    ) -> ObjectID:
        """Store the bytes of an object with the buffer protocol, which must be contiguous; return the ID.

        Args:
            value: whose bytes.
            object_id: default: a random one.
            metadata: stored with the object.
            memcopy_threads: ignored.

        Raises:
            PlasmaObjectExists, PlasmaStoreFull: as ``create``.
        """
        target, is_fresh = target_of(object_id)
        self._put(target.binary(), is_fresh, memoryview(value), checked_bytes("metadata", metadata))
        return target

    # ---

    def _put(self, binary: bytes, is_fresh: bool, data: bytes | memoryview, metadata: bytes) -> None:
        data_bytes = data.nbytes if isinstance(data, memoryview) else len(data)
        if not is_fresh and creations.exists(self._address, binary):
            raise _exists(ObjectID(binary))
        self._charge(binary, data_bytes + len(metadata))
        item = (binary, self._session, False, is_fresh, "", TREE, (data, metadata))
        self._sealed(lambda raw: raw.put([item], FULL_WAIT_SECONDS)[0], binary, is_fresh, data_bytes, len(metadata))

    def _write(self, binary: bytes, is_fresh: bool, encoded: plasma_values.EncodedValue) -> None:
        if not is_fresh and creations.exists(self._address, binary):
            raise _exists(ObjectID(binary))
        self._charge(binary, encoded.nbytes)

        def write(raw: _core.Client) -> _core.Sealed:
            blob = raw.create(encoded.nbytes, FULL_WAIT_SECONDS)
            try:
                with memoryview(blob) as view:
                    encoded.write(view, _core.copy_bytes)
                    item = (binary, self._session, False, is_fresh, "", TREE, (view, b""))
                    return raw.seal_parts([blob], item)
            finally:
                blob.drop()  # unless it was sealed

        self._sealed(write, binary, is_fresh, encoded.nbytes, 0)

    def _sealed(self, seal: _Seal, binary: bytes, is_fresh: bool, data: int, metadata: int) -> None:
        try:
            _, generation, existed, _ = seal(self._raw())
        except ObjectExists as error:
            raise PlasmaObjectExists(error.message) from error
        except StoreFull as error:
            raise PlasmaStoreFull(error.message) from error
        if existed and not is_fresh:
            raise _exists(ObjectID(binary))
        notifications.sealed(self._address, binary, generation, data, metadata)


def target_of(object_id: ObjectID | None) -> tuple[ObjectID, bool]:
    if object_id is None:
        return ObjectID.from_random(), True
    binary_of(object_id)
    return object_id, False


def _exists(object_id: ObjectID) -> PlasmaObjectExists:
    return PlasmaObjectExists(f"{object_id} exists already, sealed or being created: delete it, or use another ID")
