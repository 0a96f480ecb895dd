"""Blobs created by ``Store.create``: raw bytes with metadata, written in place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from entrepot.codec import Codec, CodecSpec, Decoder, Encoder, Node, pack_tree
from entrepot.errors import CorruptData, InvalidArgument, UnsupportedType
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._client.info import PutResult

CODEC_NAME = "entrepot.blob"
MAX_TREE_BYTES = 32 << 20  # same limit as in client and daemon: the metadata plus the rest of the blob's tree


class Blob:
    """Value that ``get`` returns for an object written through ``Store.create``: bytes and metadata, read-only.

    Supports the buffer protocol where Python allows it for a class (3.12 and later); ``view`` works in every version.

    Attributes:
        view: the bytes, a ``memoryview`` of shared memory (no copy).
        metadata: the metadata given to ``Store.create``.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> with store.create(5) as blob:
    ...     blob.view[:] = b"hello"
    >>> bytes(store.get(blob.id).view)
    b'hello'
    """

    __slots__ = ("metadata", "view")

    def __init__(self, view: memoryview, metadata: bytes) -> None:
        self.view = view
        self.metadata = metadata

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self.view.nbytes

    def __len__(self) -> int:
        return self.view.nbytes

    def __bytes__(self) -> bytes:
        return bytes(self.view)

    def __buffer__(self, flags: int, /) -> memoryview:
        return memoryview(self.view)

    def __repr__(self) -> str:
        return f"<entrepot.Blob of {self.view.nbytes} bytes, metadata {self.metadata!r}>"


class BlobCodec(Codec):
    """Codec for blobs: one buffer, with the creator's metadata in the node."""

    name = CODEC_NAME

    def encode(self, value: Any, encoder: Encoder) -> Node:
        blob: Blob = value
        if not isinstance(blob, Blob):
            raise UnsupportedType(f"the blob codec expects an entrepot.Blob, not a {type(value).__name__}")
        return Node(self.name, self.version, blob.metadata, [encoder.add_buffer(blob.view)])

    def decode(self, node: Node, decoder: Decoder) -> Blob:
        if not isinstance(node.params, bytes) or len(node.buffers) != 1:
            raise CorruptData("malformed blob: expected metadata of type bytes and exactly one buffer")
        return Blob(memoryview(decoder.buffer(node.buffers[0])), node.params)


SPECS = [CodecSpec(CODEC_NAME, f"{__name__}:BlobCodec", ("entrepot._codecs.blob:Blob",))]


def blob_tree(metadata: bytes) -> bytes:
    """Return the packed tree of a blob with this metadata.

    Raises:
        InvalidArgument: the metadata is too long.
    """
    tree = pack_tree(Node(CODEC_NAME, BlobCodec.version, metadata, [0]))
    if len(tree) > MAX_TREE_BYTES:
        maximum = MAX_TREE_BYTES - len(tree) + len(metadata)
        raise InvalidArgument(
            f"the metadata of a blob can have at most {maximum} bytes, but got {len(metadata)}: put longer data into "
            "the blob itself"
        )
    return tree


class BlobWriter:
    """A blob that is being written; see ``Store.create``. A context manager.

    Attributes:
        view: a writable ``memoryview`` of shared memory, released when the blob is sealed or discarded. Arrays made
            from it must not be written to after that: its pages are then read-only, and a write would kill the process
            with SIGSEGV.
        id: the object's ID.
        receipt: the result of sealing it; None until then.
    """

    receipt: PutResult | None

    def __init__(
        self,
        seal: Callable[[_core.WritableBlob, ObjectID, bool, str, bytes], PutResult],
        raw: _core.WritableBlob,
        oid: ObjectID,
        fresh: bool,
        tree: bytes,
        name: str,
    ) -> None:
        self._seal = seal
        self._raw = raw
        self._fresh = fresh
        self._tree = tree
        self._name = name
        self.id = oid
        self.receipt = None
        self.view = memoryview(raw)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            if self._raw.open:
                self.seal()
        else:
            self.drop()

    def seal(self) -> ObjectID:
        """Seal the blob: make it immutable and visible.

        Raises:
            ObjectExists: its ID or name is taken by other content.
            InvalidArgument: it is already sealed or discarded.
            NotSealed: this process is a fork of the one that created it.
        """
        if not self._raw.open:
            raise InvalidArgument(f"blob {self.id} is already sealed or dropped: create a new one")
        self._release()
        self.receipt = self._seal(self._raw, self.id, self._fresh, self._name, self._tree)
        return self.id

    def drop(self) -> None:
        """Return the memory without sealing. Idempotent."""
        self._release()
        self._raw.drop()

    def _release(self) -> None:
        with suppress(BufferError):  # an array still refers to it: its pages become read-only
            self.view.release()
