"""A checkpoint's manifest in memory. ``manifest_codec`` serializes it; the format is in
``docs/formats/checkpoint.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from entrepot.codec import inlined_bytes
from entrepot.ids import ObjectID

CheckpointKind = Literal["object", "objects", "collection", "session"]
FileFormat = Literal["entrepot", "parquet", "arrow", "csv", "orc", "npy", "h5"]

# A range of a chunk: index of the chunk, offset and length in bytes.
Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes stored as one file (or within the manifest), named by their content.

    Attributes:
        digest: of its bytes, see ``digests``; also the file's name.
        nbytes: its length.
        crc: CRC-32C; checked at each read.
        data: the bytes themselves, if stored in the manifest.
    """

    digest: str
    nbytes: int
    crc: int
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table or an array stored as a file of its format beside the manifest.

    Attributes:
        name: of the file.
        nbytes: its length.
        digest: SHA-256 of its bytes.
        kind: its class, such as ``"pandas.DataFrame"``.
    """

    name: str
    nbytes: int
    digest: str
    kind: str


@dataclass(frozen=True, slots=True)
class SavedObject:
    """One object.

    Attributes:
        id: its ID, which loading restores.
        generation: its generation in the store it was saved from.
        type: the codec that wrote it, for display.
        tree: its packed tree, verbatim; empty for a table stored as a file.
        names: bound to it in its session.
        buffers: the extents of each of its buffers, in order.
        file: for a table or an array stored as a file.
        earlier_generations: other (instance, generation) pairs of this ID that had the same content, newest last.
    """

    id: ObjectID
    generation: int
    type: str
    tree: bytes
    names: tuple[str, ...] = ()
    buffers: tuple[tuple[Extent, ...], ...] = ()
    file: TableFile | None = None
    earlier_generations: tuple[tuple[str, int], ...] = ()

    @property
    def nbytes(self) -> int:
        """Size of its buffers in bytes, without data inlined in its tree."""
        return sum(length for extents in self.buffers for _, _, length in extents)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint.

    Attributes:
        what: what was saved.
        format: how values are stored.
        scope, session: where it was saved from.
        instance, host: the store that it was saved from.
        created: seconds since 1970.
        written_by: program and version.
        own_chunks: whether its chunks are in its own directory rather than the one that checkpoints share.
        roots: the IDs that were requested, in order.
        chunks: all chunks that its extents name.
        objects: all objects.
    """

    what: CheckpointKind
    format: FileFormat
    scope: str
    session: str
    instance: str
    host: str
    created: float
    written_by: str
    own_chunks: bool
    roots: tuple[ObjectID, ...]
    chunks: tuple[Chunk, ...]
    objects: tuple[SavedObject, ...]

    @property
    def nbytes(self) -> int:
        """Size of the buffers and files of all objects, in bytes; shared bytes count for each object."""
        return sum(saved.nbytes + (saved.file.nbytes if saved.file else 0) for saved in self.objects)

    @property
    def size(self) -> int:
        """``nbytes`` plus small values inlined in the trees (except for tables stored as files)."""
        return self.nbytes + sum(inlined_bytes(saved.tree) for saved in self.objects if saved.file is None)


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint as it appears in a listing.

    Attributes:
        url: of the checkpoint.
        name: name of its directory under the root.
        what, format, scope, session: as in the manifest.
        created: seconds since 1970.
        written_by: program and version.
        objects: number of objects.
        nbytes: their size.
        problem: why the manifest cannot be read; empty if it can. If set, all fields but url and name are empty.
    """

    url: str
    name: str
    what: str = ""
    format: str = ""
    scope: str = ""
    session: str = ""
    created: float = 0.0
    written_by: str = ""
    objects: int = 0
    nbytes: int = 0
    problem: str = ""
