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
from entrepot._collections.metadata import parse_member_meta, summarize
from entrepot._tree import Node, pack_tree, unpack_tree
from entrepot.errors import EntrepotError
from entrepot.ids import ObjectID
from entrepot_checkpoints.manifests.manifest import Chunk, Manifest, SavedObject
from entrepot_checkpoints.manifests.manifest_codec import decode_header, decode_manifest, encode_manifest
from entrepot_checkpoints.storage.chunks import chunk_from_bytes
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
    parsed = False
    for text in (data, with_valid_header(data)):
        try:
            result = decode_manifest(text, "file:///m")
        except EntrepotError:
            pass
        else:
            assert decode_manifest(encode_manifest(result), "file:///m") == result, (
                "what was read is written and read again"
            )
            parsed = True
        with contextlib.suppress(EntrepotError):
            decode_header(text, "file:///m")
    return parsed


def with_valid_header(data: bytes) -> bytes:
    """Replace the first line, if it is a header, by one that matches the rest."""
    header, _, body = data.partition(b"\n")
    body = body.removesuffix(b"\n")
    try:
        fields = json.loads(header)
    except (ValueError, RecursionError):
        return data
    if not isinstance(fields, dict):
        return data
    fields |= {"body_bytes": len(body), "body_sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(fields).encode() + b"\n" + body + b"\n"


def tree(data: bytes) -> bool:
    """Parse the tree of an object, and the collection that it describes."""
    try:
        root = unpack_tree(data)
    except EntrepotError:
        return False
    assert unpack_tree(pack_tree(root)) == root or has_nan(root), "what was read is packed and read again"
    with contextlib.suppress(EntrepotError):
        summarize(data)
    with contextlib.suppress(EntrepotError):
        parse_member_meta(root)
    return True


def has_nan(node: Node) -> bool:
    """Return whether the tree contains NaN, which is unequal to itself."""
    return "nan" in repr(node.params) or any(has_nan(child) for child in node.children)


def declaration(data: bytes) -> bool:
    """Parse a session's record of being durable."""
    try:
        result = durable.from_bytes(data)
    except EntrepotError:
        return False
    assert durable.from_bytes(result.to_bytes()) == result
    return True


def reference(data: bytes) -> bool:
    """Parse a reference, as stored in an orchestrator's database."""
    try:
        data_object: Any = json.loads(data)
    except (ValueError, RecursionError):
        return False
    is_reference(data_object)
    try:
        result = Reference.parse(data_object)
    except EntrepotError:
        return False
    assert Reference.parse(result.to_dict()) == result
    return True


def _manifest() -> Manifest:
    whole = Chunk("ab" * 32, 1 << 20, 7)
    inline = chunk_from_bytes(b"small")
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
    "manifest": Target(manifest, (encode_manifest(_manifest()),)),
    "tree": Target(tree, (pack_tree(_LEAF), pack_tree(Node("python.list", 1, None, [], [_LEAF, _LEAF])))),
    "declaration": Target(declaration, (durable.Durable("s3://b/d", "behind", "a*").to_bytes(),)),
    "reference": Target(reference, (json.dumps(_REFERENCE.to_dict()).encode(),)),
}
