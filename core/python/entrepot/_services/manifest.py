"""What the writers of a shuffle leave behind: which pages each of them wrote, and under which IDs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot import _core
from entrepot.errors import CorruptData, ObjectExists, ObjectNotFound
from entrepot.ids import ID_BYTES, ObjectID

if TYPE_CHECKING:
    from entrepot._services.store_access import ServiceStore

PREFIX_BYTES = 12
_PAGE = struct.Struct(f"<{ID_BYTES}sIQQQ")
_DELETE_BATCH = 256


@dataclass(frozen=True, slots=True)
class PageEntry:
    """One page.

    Attributes:
        id: the object.
        partition: whose it is.
        records: how many records it has.
        nbytes: the object's size.
        sealed_ns: when it was sealed, by the host's monotonic clock.
    """

    id: bytes
    partition: int
    records: int
    nbytes: int
    sealed_ns: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one writer wrote.

    Attributes:
        pages: its pages.
        rows: how many records or rows each partition got.
        schema: of its tables, as an Arrow message; None: it wrote none.
    """

    pages: list[PageEntry]
    rows: list[int]
    schema: bytes | None


def pack_manifest(pages: bytes, rows: list[int], schema: bytes | None) -> dict[str, Any]:
    """Return a manifest as a plain value; ``pages`` as ``PageWriter.finish`` returns them."""
    return {"pages": pages, "rows": rows, "schema": schema}


def parse_manifest(name: str, raw: Any) -> Manifest:
    """Parse what :func:`pack_manifest` returned.

    Raises:
        CorruptData: it is something else.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("pages"), bytes) or len(raw["pages"]) % _PAGE.size:
        raise CorruptData(f"the list of pages of a writer of shuffle {name!r} is damaged: discard() the shuffle")
    return Manifest(parse_pages(raw["pages"]), raw["rows"], raw["schema"])


def parse_pages(packed: bytes) -> list[PageEntry]:
    """Parse what ``PageWriter.finish`` returned."""
    return [PageEntry(*fields) for fields in _PAGE.iter_unpack(packed)]


class WriterSlots:
    """The places of a shuffle's writers. A writer takes the first free one, which says how its pages' IDs begin."""

    def __init__(self, store: ServiceStore, name: str, writers: int) -> None:
        self._store = store
        self._name = name
        self._writers = writers

    def take(self, prefix: bytes) -> int | None:
        """Take a place; None: all are taken."""
        for number in range(self._writers):
            try:
                self._store.put(prefix, id=self._slot_id(number))
            except ObjectExists:
                continue
            return number
        return None

    def manifest_id(self, prefix: bytes) -> ObjectID:
        """Return the ID of a writer's manifest; not by its place, because a late one must not be taken for a new one's.

        Such a writer belongs to a shuffle that was discarded, and closes when the next one of its name has begun.
        """
        return self._store.derive(f"shuffle-pages:{prefix.hex()}:{self._name}")

    def manifests(self) -> list[ObjectID] | None:
        """Return the IDs of all writers' manifests; None: not all have finished."""
        prefixes = [self._prefix_of(number) for number in range(self._writers)]
        ids = [self.manifest_id(prefix) for prefix in prefixes if prefix is not None]
        return ids if len(ids) == self._writers and all(map(self._store.exists, ids)) else None

    def count_finished(self) -> int:
        """Return how many writers have finished."""
        prefixes = [self._prefix_of(number) for number in range(self._writers)]
        return sum(prefix is not None and self._store.exists(self.manifest_id(prefix)) for prefix in prefixes)

    def any_taken(self) -> bool:
        """Whether a writer has begun."""
        return self._store.exists(self._slot_id(0))

    def discard(self) -> None:
        """Delete everything that writers have put, also those that died."""
        raw = self._store._raw()
        for number in range(self._writers):
            prefix = self._prefix_of(number)
            if prefix is not None:
                for ids in _batches(prefix):
                    if not any(raw.delete(ids)):
                        break
                raw.delete([self.manifest_id(prefix).binary])
            raw.delete([self._slot_id(number).binary])

    def _prefix_of(self, number: int) -> bytes | None:
        try:
            prefix = self._store.get(self._slot_id(number))
        except ObjectNotFound:
            return None
        return prefix if isinstance(prefix, bytes) and len(prefix) == PREFIX_BYTES else None

    def _slot_id(self, number: int) -> ObjectID:
        return self._store.derive(f"shuffle-writer:{number}:{self._name}")


def _batches(prefix: bytes) -> Iterator[list[bytes]]:
    """Yield the IDs of a writer's pages in order. Few are missing: those being sealed by other threads as it died."""
    number = 0
    while True:
        yield [_core.page_id(prefix, number + i) for i in range(_DELETE_BATCH)]
        number += _DELETE_BATCH
