"""Chunks: bytes stored under a digest of their content, so that existing ones are never written again."""

from __future__ import annotations

import secrets
import threading

from entrepot import _core
from entrepot.errors import CorruptData, ObjectLost

from entrepot_checkpoints.manifests.digests import digest_of, folder_of
from entrepot_checkpoints.manifests.manifest import Chunk
from entrepot_checkpoints.storage.directory import StorageDirectory, UnsyncedFolders

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

SHARED_FOLDER = ".entrepot"  # the directory under a root that its checkpoints share
NAMES_FOLDER = f"{SHARED_FOLDER}/names"  # what names of durable sessions are bound to
CHUNKS_FOLDER = "chunks"


def probe_name() -> str:
    """A new name for a small file that tries whether a root can be written, relative to the root."""
    return f"{SHARED_FOLDER}/probe-{secrets.token_hex(8)}"


def chunk_name(digest: str) -> str:
    """A chunk's file, relative to the chunk directory."""
    return f"{folder_of(digest)}/{digest}"


def chunk_length(nbytes: int) -> int:
    """The chunk length (except for the last chunk) for a buffer of this many bytes."""
    return SMALL_CHUNK_BYTES if nbytes < SMALL_BELOW_BYTES else CHUNK_BYTES


def chunk_from_bytes(data: bytes | memoryview) -> Chunk:
    """The chunk entry of these bytes: digest, length and CRC."""
    return Chunk(digest_of(data), len(data), _core.crc32c(data))


class ChunkFolder:
    """The chunks of one checkpoint. Thread-safe.

    Args:
        directory: that they are in.
        reuse_existing: whether a chunk that exists in its full length is reused; if false, all are written.
        unsynced: collects the directories to sync before the save is complete.
    """

    def __init__(
        self, directory: StorageDirectory, *, reuse_existing: bool = True, unsynced: UnsyncedFolders | None = None
    ) -> None:
        self._directory = directory
        self._reuse_existing = reuse_existing
        self._lock = threading.Lock()
        self._claimed: set[str] = set()  # guarded by _lock: digests already claimed by a thread of this save
        self._unsynced: UnsyncedFolders = {} if unsynced is None else unsynced  # setting an item is atomic

    def write(self, data: bytes | memoryview) -> tuple[Chunk, int]:
        """Store bytes; returns the chunk and the number of bytes actually written (0: it existed already)."""
        view = memoryview(data)
        chunk = chunk_from_bytes(view)
        digest = chunk.digest
        with self._lock:
            if digest in self._claimed:
                return chunk, 0
            self._claimed.add(digest)
        if self._reuse_existing and self.contains(chunk):
            self._directory.mark_unsynced(chunk_name(digest), self._unsynced, folders=4)  # up to the root
            return chunk, 0
        self._directory.write(chunk_name(digest), view, unsynced=self._unsynced)
        return chunk, view.nbytes

    def contains(self, chunk: Chunk) -> bool:
        """Whether the chunk exists in its full length."""
        return self._directory.size(chunk_name(chunk.digest)) == chunk.nbytes

    def read(self, chunk: Chunk) -> bytes:
        """The bytes of a chunk, verified.

        Raises:
            ObjectLost: it does not exist.
            CorruptData: its bytes differ from those that were written.
        """
        if chunk.data is not None:
            self._verify(chunk, memoryview(chunk.data))
            return chunk.data
        data = bytearray(chunk.nbytes)
        self.read_into(chunk, memoryview(data))
        return bytes(data)

    def read_into(self, chunk: Chunk, view: memoryview) -> None:
        """Fill ``view``, which is as long as the chunk; raises as :meth:`read`."""
        try:
            self._directory.read_into(chunk_name(chunk.digest), view)
        except FileNotFoundError as error:
            raise ObjectLost(
                f"the chunk {self._url(chunk)} of this checkpoint does not exist: it was removed; save the objects "
                "again"
            ) from error
        except CorruptData as error:
            raise CorruptData(f"damaged chunk: {error}; save the objects again") from error
        self._verify(chunk, view)

    def _verify(self, chunk: Chunk, view: memoryview) -> None:
        checksum = _core.crc32c(view)
        if checksum != chunk.crc:
            raise CorruptData(
                f"the chunk {self._url(chunk)} is damaged: its checksum is {checksum:08x}, expected {chunk.crc:08x}; "
                "save the objects again with incremental=False"
            )

    def _url(self, chunk: Chunk) -> str:
        return f"{self._directory.url}/{chunk_name(chunk.digest)}"


def chunk_folder(
    root: StorageDirectory,
    name: str,
    own_chunks: bool,
    *,
    reuse_existing: bool = True,
    unsynced: UnsyncedFolders | None = None,
) -> ChunkFolder:
    """The chunk directory of a checkpoint."""
    return ChunkFolder(
        root / name / CHUNKS_FOLDER if own_chunks else root / SHARED_FOLDER / CHUNKS_FOLDER,
        reuse_existing=reuse_existing,
        unsynced=unsynced,
    )
