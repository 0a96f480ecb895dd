"""What a checkpoint's manifest says. Its text is in ``manifest_text``, described in ``docs/formats/checkpoint.md``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from entrepot.codec import inlined_bytes
from entrepot.ids import ObjectID

What = Literal["object", "objects", "collection", "session"]
FileFormat = Literal["entrepot", "parquet"]

# A range of a chunk: the chunk's index, where the range begins, its length in bytes.
Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that are stored as one file (or within the manifest), named by their content.

    Attributes:
        digest: of its bytes, see ``digests``; the file's name.
        nbytes: its length.
        crc: CRC-32C; checked whenever it is read.
        data: the bytes themselves, if the manifest holds them.
    """

    digest: str
    nbytes: int
    crc: int
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table that is stored as a Parquet file beside the manifest.

    Attributes:
        name: of the file.
        nbytes: its length.
        digest: SHA-256 of its bytes.
        kind: the table's class, such as ``"pandas.DataFrame"``.
    """

    name: str
    nbytes: int
    digest: str
    kind: str


@dataclass(frozen=True, slots=True)
class SavedObject:
    """One object.

    Attributes:
        id: its ID, which it gets again.
        generation: which life of that ID in the store that it was saved from.
        type: the codec that wrote it, for people.
        tree: its packed tree as it is; empty for a table that is stored as a file.
        names: bound to it in its session.
        buffers: the extents of each of its buffers, in order.
        file: for a table stored as Parquet.
        lives: other lives of this ID, as (instance, generation), that had the same content; the newest last.
    """

    id: ObjectID
    generation: int
    type: str
    tree: bytes
    names: tuple[str, ...] = ()
    buffers: tuple[tuple[Extent, ...], ...] = ()
    file: TableFile | None = None
    lives: tuple[tuple[str, int], ...] = ()

    @property
    def nbytes(self) -> int:
        """Its buffers, in bytes; what its tree holds is not among it."""
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
        own_chunks: whether its chunks lie in its own folder and not in the one that checkpoints share.
        roots: the IDs that were asked for, in order.
        chunks: all chunks that its extents name.
        objects: all objects.
    """

    what: What
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
        """Buffers and files of all objects, in bytes; shared bytes count for each."""
        return sum(one.nbytes + (one.file.nbytes if one.file else 0) for one in self.objects)

    @property
    def size(self) -> int:
        """Their size: those, and what of small values lies in the trees (a file's table is in the file)."""
        return self.nbytes + sum(inlined_bytes(one.tree) for one in self.objects if one.file is None)


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint as a list shows it.

    Attributes:
        url: of the checkpoint.
        name: its folder's name under the root.
        what, format, scope, session: as in the manifest.
        created: seconds since 1970.
        written_by: program and version.
        objects: how many.
        nbytes: their size.
        problem: why the manifest cannot be read; empty if it can. The other fields are empty then.
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
