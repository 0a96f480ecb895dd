"""Fuzz targets for Python code that parses untrusted bytes: each accepts any input, and rejects it only by Entrepot's
own errors.

``test_targets.py`` replays seeds and mutations of them; ``fuzz_python.py`` runs the same targets under Atheris
(libFuzzer).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from entrepot import durable
from entrepot._collection_tree import card_of, described
from entrepot._tree import Node, pack_tree, unpack_tree
from entrepot.errors import EntrepotError
from entrepot.ids import ObjectID
from entrepot_io.checkpoints.chunks import identified
from entrepot_io.checkpoints.manifest import Chunk, Manifest, SavedObject
from entrepot_io.checkpoints.manifest_text import from_text, header_of, to_text
from entrepot_io.reference import Reference, is_reference


@dataclass(frozen=True)
class Target:
    """One parser of bytes.

    Attributes:
        run: parses bytes and returns whether it could; raises only if there is a bug.
        seeds: valid inputs.
    """

    run: Callable[[bytes], bool]
    seeds: tuple[bytes, ...]


def manifest(data: bytes) -> bool:
    """Parse a checkpoint's manifest, as it is and with its checksum fixed, so that the body is parsed too."""
    whole = False
    for text in (data, mended(data)):
        try:
            read = from_text(text, "file:///m")
        except EntrepotError:
            pass
        else:
            assert from_text(to_text(read), "file:///m") == read, "what was read is written and read again"
            whole = True
        with contextlib.suppress(EntrepotError):
            header_of(text, "file:///m")
    return whole


def mended(data: bytes) -> bytes:
    """Replace the first line, if it is a header, by one that matches the rest."""
    header, _, body = data.partition(b"\n")
    body = body.removesuffix(b"\n")
    try:
        said = json.loads(header)
    except (ValueError, RecursionError):
        return data
    if not isinstance(said, dict):
        return data
    said |= {"body_bytes": len(body), "body_sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(said).encode() + b"\n" + body + b"\n"


def tree(data: bytes) -> bool:
    """Parse the tree of an object, and the collection that it describes."""
    try:
        root = unpack_tree(data)
    except EntrepotError:
        return False
    assert unpack_tree(pack_tree(root)) == root or has_nan(root), "what was read is packed and read again"
    for look in (described, card_of):
        with contextlib.suppress(EntrepotError):
            look(root)
    return True


def has_nan(node: Node) -> bool:
    """Return whether the tree contains NaN, which is unequal to itself."""
    return "nan" in repr(node.params) or any(has_nan(child) for child in node.children)


def declaration(data: bytes) -> bool:
    """Parse a session's record of being durable."""
    try:
        read = durable.from_bytes(data)
    except EntrepotError:
        return False
    assert durable.from_bytes(read.to_bytes()) == read
    return True


def reference(data: bytes) -> bool:
    """Parse a reference, as stored in an orchestrator's database."""
    try:
        said: Any = json.loads(data)
    except (ValueError, RecursionError):
        return False
    is_reference(said)
    try:
        read = Reference.parse(said)
    except EntrepotError:
        return False
    assert Reference.parse(read.to_dict()) == read
    return True


def _manifest() -> Manifest:
    whole = Chunk("ab" * 32, 1 << 20, 7)
    inline = identified(b"small")
    oid = ObjectID(bytes(range(20)))
    saved = SavedObject(oid, 3, "numpy.ndarray", b"tree", ("a", "b"), (((0, 0, 1000), (0, 2000, 5)),))
    return Manifest(
        what="objects",
        format="entrepot",
        scope="scope",
        session="run",
        instance="0" * 32,
        host="host",
        created=1.5,
        written_by="0.1.0",
        own_chunks=True,
        roots=(oid,),
        chunks=(whole, inline),
        objects=(saved,),
    )


_LEAF = Node("numpy.ndarray", 1, {"dtype": "<i8", "shape": [3]}, [0])

_REFERENCE = Reference(
    scope="s",
    session="r",
    id=ObjectID.derive("s", "r", "orders"),
    generation=1,
    instance="0" * 32,
    host="h",
    type="numpy.ndarray",
    nbytes=24,
    shape=(3,),
    key="orders",
)

TARGETS = {
    "manifest": Target(manifest, (to_text(_manifest()),)),
    "tree": Target(tree, (pack_tree(_LEAF), pack_tree(Node("python.list", 1, None, [], [_LEAF, _LEAF])))),
    "declaration": Target(declaration, (durable.Durable("s3://b/d", "behind", "a*").to_bytes(),)),
    "reference": Target(reference, (json.dumps(_REFERENCE.to_dict()).encode(),)),
}
