"""Records in the store of which stores were asked to keep copies of an object, until those copies are withdrawn.

not known ──noted, before a copy is made──▶ noted ──the object is gone, and so are its copies──▶ not known
                                              └──another store has taken the object over──▶ not known

They outlive the gateway: what is deleted while it is down is found by its record when it is back. They belong to the
gateway's own session, because an object may also be removed with its session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
from entrepot import raw_objects
from entrepot._codecs import inline_bytes
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID
from entrepot.origins import Life

if TYPE_CHECKING:
    from entrepot import Store

WAIT_SECONDS = 4.0  # for room
_KEY = "entrepot.kept:"
_FORMAT = "kept"
_BEGINS = b"\x95"  # msgpack: a list of five


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """What is recorded of an object of which copies were asked for.

    Attributes:
        oid, generation: the object, in this store.
        life: what the others have copies of.
        holders: instances that were asked to keep one.
    """

    oid: bytes
    generation: int
    life: Life
    holders: frozenset[str]


class ReplicaRecords:
    """Writes and deletes them. For one thread at a time.

    Args:
        store: a connection to the store, in the gateway's own session.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: dict[tuple[bytes, int], frozenset[str]] = {}  # holders, as they are recorded

    def note(self, records: Iterable[ReplicaRecord]) -> None:
        """Record holders, in addition to those that are recorded.

        Raises:
            StoreFull, StoreUnavailable: that is not possible at the moment.
        """
        objects: list[raw_objects.SmallObject] = []
        written: dict[tuple[bytes, int], frozenset[str]] = {}
        for record in records:
            key = (record.oid, record.generation)
            before = self._written.get(key, frozenset())
            if record.holders <= before:
                continue
            holders = written[key] = before | record.holders
            packed: Any = msgpack.packb([_FORMAT, record.oid, record.generation, list(record.life), sorted(holders)])
            objects.append(raw_objects.SmallObject(_record_id(*key), inline_bytes.tree_of(packed), ()))
        if objects:
            raw_objects.put_small(self._store, objects, replace=True, wait_seconds=WAIT_SECONDS)
            self._written.update(written)

    def note_existing(self, record: ReplicaRecord) -> None:
        """Note a record that is in the store, of this gateway or an earlier one."""
        self._written.setdefault((record.oid, record.generation), record.holders)

    def forget(self, oid: bytes, generation: int) -> None:
        """Delete a record; no-op if there is none."""
        record = _record_id(oid, generation)
        if raw_objects.generation_of(self._store, record) is not None:
            raw_objects.discard(self._store, record)
        self._written.pop((oid, generation), None)


def recorded_replicas(store: Store, candidate: ObjectID) -> ReplicaRecord | None:
    """Return what an object of the gateway's session says if it is such a record; None: it is something else."""
    data = store._raw().get_small(candidate.binary)  # pyright: ignore[reportPrivateUsage]
    if data is None or data[:1] != _BEGINS:
        return None
    try:
        form, oid, generation, (instance, began_as), holders = msgpack.unpackb(data)
        record = ReplicaRecord(
            ObjectID(oid).binary, int(generation), Life(str(instance), int(began_as)), frozenset(map(str, holders))
        )
    except (ValueError, TypeError, InvalidArgument, msgpack.UnpackException):
        return None
    return record if form == _FORMAT and _record_id(record.oid, record.generation) == candidate else None


def _record_id(oid: bytes, generation: int) -> ObjectID:
    return ObjectID.derive("default", "", f"{_KEY}{oid.hex()}:{generation}")
