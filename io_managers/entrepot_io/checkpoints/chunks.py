"""Chunks: bytes stored under a digest of their content, so that existing ones are never written again."""

from __future__ import annotations

import threading

from entrepot import _core
from entrepot.errors import CorruptData, ObjectLost

from entrepot_io.checkpoints.digests import digest_of, folder_of
from entrepot_io.checkpoints.manifest import Chunk
from entrepot_io.checkpoints.places import Place, Unsettled

# Large enough to hide an object store's latency, small enough that eight in flight use little memory.
CHUNK_BYTES = 16 << 20
# Smaller chunks for buffers that would make few large ones: one is hashed while others are written, and all are synced
# together.
SMALL_CHUNK_BYTES = 4 << 20
SMALL_BELOW_BYTES = 4 * CHUNK_BYTES
# Buffers below this size share a chunk of up to PACK_BYTES: a request for each would cost more than their bytes.
PACK_BELOW_BYTES = 256 << 10
PACK_BYTES = 4 << 20
# If all small buffers together have no more than this, they are stored in the manifest itself.
INLINE_BYTES = 64 << 10

SHARED = ".entrepot"  # the directory under a root that its checkpoints share
CHUNKS = "chunks"


def chunk_name(digest: str) -> str:
    """A chunk's file, relative to the chunk directory."""
    return f"{folder_of(digest)}/{digest}"


def chunk_length(nbytes: int) -> int:
    """The chunk length (except for the last chunk) for a buffer of this many bytes."""
    return SMALL_CHUNK_BYTES if nbytes < SMALL_BELOW_BYTES else CHUNK_BYTES


def identified(data: bytes | memoryview) -> Chunk:
    """The chunk entry of these bytes: digest, length and CRC."""
    return Chunk(digest_of(data), len(data), _core.crc32c(data))


class ChunkFolder:
    """The chunks of one checkpoint. Thread-safe.

    Args:
        place: the directory.
        trust: whether a chunk that exists in its full length is reused; if false, all are written.
        unsettled: collects the directories to sync before the save is complete.
    """

    def __init__(self, place: Place, *, trust: bool = True, unsettled: Unsettled | None = None) -> None:
        self._place = place
        self._trust = trust
        self._lock = threading.Lock()
        self._begun: set[str] = set()  # guarded by _lock: digests already claimed by a thread of this save
        self._unsettled: Unsettled = {} if unsettled is None else unsettled  # setting an item is atomic

    def write(self, data: bytes | memoryview) -> tuple[Chunk, int]:
        """Store bytes; returns the chunk and the number of bytes actually written (0: it existed already)."""
        view = memoryview(data)
        chunk = identified(view)
        digest = chunk.digest
        with self._lock:
            if digest in self._begun:
                return chunk, 0
            self._begun.add(digest)
        if self._trust and self.holds(chunk):
            self._place.unsettle(chunk_name(digest), self._unsettled, folders=4)  # up to the root
            return chunk, 0
        self._place.write(chunk_name(digest), view, unsettled=self._unsettled)
        return chunk, view.nbytes

    def holds(self, chunk: Chunk) -> bool:
        """Whether the chunk exists in its full length."""
        return self._place.size(chunk_name(chunk.digest)) == chunk.nbytes

    def read(self, chunk: Chunk) -> bytes:
        """The bytes of a chunk, verified.

        Raises:
            ObjectLost: it does not exist.
            CorruptData: its bytes differ from those that were written.
        """
        if chunk.data is not None:
            self._check(chunk, memoryview(chunk.data))
            return chunk.data
        data = bytearray(chunk.nbytes)
        self.read_into(chunk, memoryview(data))
        return bytes(data)

    def read_into(self, chunk: Chunk, view: memoryview) -> None:
        """Fill ``view``, which is as long as the chunk; raises as :meth:`read`."""
        try:
            self._place.read_into(chunk_name(chunk.digest), view)
        except FileNotFoundError as error:
            raise ObjectLost(
                f"the chunk {self._url(chunk)} of this checkpoint is not there: it was removed; save again what it was "
                "made from"
            ) from error
        except CorruptData as error:
            raise CorruptData(f"a damaged chunk: {error}; save again what it was made from") from error
        self._check(chunk, view)

    def _check(self, chunk: Chunk, view: memoryview) -> None:
        found = _core.crc32c(view)
        if found != chunk.crc:
            raise CorruptData(
                f"the chunk {self._url(chunk)} is damaged: its checksum is {found:08x} and was {chunk.crc:08x}; "
                "save again what it was made from, with incremental=False"
            )

    def _url(self, chunk: Chunk) -> str:
        return f"{self._place.url}/{chunk_name(chunk.digest)}"


def chunk_folder(
    root: Place, name: str, own: bool, *, trust: bool = True, unsettled: Unsettled | None = None
) -> ChunkFolder:
    """The chunk directory of a checkpoint."""
    return ChunkFolder(root / name / CHUNKS if own else root / SHARED / CHUNKS, trust=trust, unsettled=unsettled)
