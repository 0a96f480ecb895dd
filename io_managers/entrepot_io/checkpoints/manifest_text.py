"""Serialized manifests: a header line and a body, both JSON. Described in ``docs/formats/checkpoint.md``.

The header holds the format version, the length and digest of the body, and what a listing of checkpoints shows. Fields
in both header and body must agree, so that an edit of either is detected.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from typing import Any, cast

from entrepot.errors import CorruptData, InvalidArgument, VersionMismatch
from entrepot.ids import ObjectID

from entrepot_io.checkpoints import digests
from entrepot_io.checkpoints.manifest import (
    CheckpointInfo,
    Chunk,
    Extent,
    FileFormat,
    Manifest,
    SavedObject,
    TableFile,
    What,
)

FORMAT_VERSION = 2  # 2: digests of chunks may be BLAKE3
MANIFEST = "manifest.json"
DATA_FOLDER = "data/"  # prefix of a dataset's files, so that their directory contains nothing else
MARKER = "entrepot_checkpoint"
HEADER_MAX_BYTES = 8192
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_INT = 2**63 - 1
_WHAT = ("object", "objects", "collection", "session")
_FORMATS = ("entrepot", "parquet")


def to_text(manifest: Manifest) -> bytes:
    """Serialize a manifest."""
    body = _json(
        {
            "what": manifest.what,
            "format": manifest.format,
            "scope": manifest.scope,
            "session": manifest.session,
            "instance": manifest.instance,
            "host": manifest.host,
            "created": manifest.created,
            "written_by": manifest.written_by,
            "own_chunks": manifest.own_chunks,
            "roots": [str(oid) for oid in manifest.roots],
            "chunks": [_chunk_out(one) for one in manifest.chunks],
            "objects": [_object_out(one) for one in manifest.objects],
        }
    )
    header = _json(
        {
            MARKER: FORMAT_VERSION,
            "written_by": manifest.written_by,
            "created": manifest.created,
            "what": manifest.what,
            "format": manifest.format,
            "scope": manifest.scope,
            "session": manifest.session,
            "objects": len(manifest.objects),
            "nbytes": manifest.size,
            "body_bytes": len(body),
            "body_sha256": hashlib.sha256(body).hexdigest(),
        }
    )
    return header + b"\n" + body + b"\n"


def from_text(text: bytes, url: str) -> Manifest:
    """Parse what :func:`to_text` wrote.

    Args:
        text: the whole file.
        url: its location, for messages.

    Raises:
        VersionMismatch: it was written by a newer version.
        CorruptData: it is truncated, was edited, or is not a manifest.
    """
    header, newline, rest = text.partition(b"\n")
    said = _header(header, url)
    info = _info(said, url)
    length, digest = _integer(said, "body_bytes", url), said.get("body_sha256")
    body = rest[:length]
    if not newline or len(body) != length:
        raise CorruptData(f"{url} is truncated: it should have {length} more bytes after its first line")
    if rest[length:] != b"\n" or hashlib.sha256(body).hexdigest() != digest:
        raise CorruptData(f"{url} was changed after it was written: its body does not match its checksum")
    manifest = _manifest(_parsed(body, url), url)
    if info != info_of(manifest, info.url, info.name):
        raise CorruptData(f"{url} was changed after it was written: its first line does not fit the rest")
    return manifest


def header_of(text: bytes, url: str) -> CheckpointInfo:
    """Parse the first line only; the body is neither needed nor checked.

    Raises:
        As :func:`from_text`.
    """
    return _info(_header(text.partition(b"\n")[0], url), url)


def info_of(manifest: Manifest, url: str, name: str) -> CheckpointInfo:
    """A manifest as it appears in a listing."""
    return CheckpointInfo(
        url=url,
        name=name,
        what=manifest.what,
        format=manifest.format,
        scope=manifest.scope,
        session=manifest.session,
        created=manifest.created,
        written_by=manifest.written_by,
        objects=len(manifest.objects),
        nbytes=manifest.size,
    )


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _chunk_out(chunk: Chunk) -> list[Any]:
    kept = [] if chunk.data is None else [base64.b64encode(chunk.data).decode()]
    return [chunk.digest, chunk.nbytes, chunk.crc, *kept]


def _object_out(saved: SavedObject) -> dict[str, Any]:
    out: dict[str, Any] = {"id": str(saved.id), "generation": saved.generation, "type": saved.type}
    if saved.names:
        out["names"] = list(saved.names)
    if saved.lives:
        out["lives"] = saved.lives
    if saved.file is not None:
        file = saved.file
        out["file"] = {"name": file.name, "nbytes": file.nbytes, "sha256": file.digest, "kind": file.kind}
    else:
        out["tree"] = base64.b64encode(saved.tree).decode()
        out["buffers"] = saved.buffers
    return out


def _header(line: bytes, url: str) -> dict[str, Any]:
    if len(line) > HEADER_MAX_BYTES:
        raise CorruptData(f"{url} is no checkpoint manifest: its first line has more than {HEADER_MAX_BYTES} bytes")
    said = _parsed(line, url)
    if not isinstance(said, dict) or MARKER not in said:
        raise CorruptData(f"{url} is no checkpoint manifest: its first line has no {MARKER!r}")
    version = _integer(said, MARKER, url)
    if version > FORMAT_VERSION:
        raise VersionMismatch(
            f"{url} has checkpoint format {version}, written by {_shown(said.get('written_by'))}; this installation "
            f"reads up to format {FORMAT_VERSION}: upgrade entrepot here"
        )
    if version < 1:
        raise CorruptData(f"{url} has checkpoint format {version}; the first one is 1")
    return said


def _info(said: dict[str, Any], url: str) -> CheckpointInfo:
    return CheckpointInfo(
        url=url,
        name="",
        what=_text(said, "what", url),
        format=_text(said, "format", url),
        scope=_text(said, "scope", url),
        session=_text(said, "session", url),
        created=_number(said, "created", url),
        written_by=_text(said, "written_by", url),
        objects=_integer(said, "objects", url),
        nbytes=_integer(said, "nbytes", url),
    )


def _parsed(data: bytes, url: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"{url} is truncated or no checkpoint manifest: {error}") from error


def _manifest(body: Any, url: str) -> Manifest:
    if not isinstance(body, dict):
        raise CorruptData(f"{url}: the body is not a JSON object")
    what, format_ = _text(body, "what", url), _text(body, "format", url)
    if what not in _WHAT or format_ not in _FORMATS:
        raise CorruptData(f"{url}: what is {_shown(what)} and format {_shown(format_)}, which nobody writes")
    chunks = tuple(_chunk_in(one, url) for one in _list(body, "chunks", url))
    objects = tuple(_object_in(one, chunks, url) for one in _list(body, "objects", url))
    known = {one.id for one in objects}
    if len(known) != len(objects):
        raise CorruptData(f"{url}: an object is listed twice")
    roots = tuple(_id(one, url) for one in _list(body, "roots", url))
    if not known.issuperset(roots):
        raise CorruptData(f"{url}: one of the saved IDs is not among the objects")
    own = body.get("own_chunks")
    if not isinstance(own, bool):
        raise _damaged("own_chunks", own, url)
    return Manifest(
        what=cast("What", what),
        format=cast("FileFormat", format_),
        scope=_text(body, "scope", url),
        session=_text(body, "session", url),
        instance=_text(body, "instance", url),
        host=_text(body, "host", url),
        created=_number(body, "created", url),
        written_by=_text(body, "written_by", url),
        own_chunks=own,
        roots=roots,
        chunks=chunks,
        objects=objects,
    )


def _chunk_in(raw: Any, url: str) -> Chunk:
    if not isinstance(raw, list) or len(raw) not in (3, 4):
        raise _damaged("chunks", raw, url)
    digest, nbytes, crc = raw[:3]
    if not isinstance(digest, str) or digests.PATTERN.fullmatch(digest) is None:
        raise _damaged("chunks", digest, url)
    if not _is_count(nbytes) or not _is_count(crc) or crc >= 1 << 32:
        raise _damaged("chunks", raw[:3], url)
    data = _binary(raw[3], "chunks", url) if len(raw) == 4 else None
    if data is not None and len(data) != nbytes:
        raise _damaged("chunks", raw[:3], url)
    return Chunk(digest, nbytes, crc, data)


def _object_in(raw: Any, chunks: tuple[Chunk, ...], url: str) -> SavedObject:
    if not isinstance(raw, dict):
        raise _damaged("objects", raw, url)
    names = raw.get("names", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise _damaged("names", names, url)
    lives = raw.get("lives", [])
    if not isinstance(lives, list) or not all(_is_life(life) for life in lives):
        raise _damaged("lives", lives, url)
    file = raw.get("file")
    saved = _file_in(file, url) if file is not None else None
    return SavedObject(
        id=_id(raw.get("id"), url),
        generation=_integer(raw, "generation", url),
        type=_text(raw, "type", url),
        tree=_binary(raw.get("tree"), "tree", url) if saved is None else b"",
        names=tuple(names),
        buffers=tuple(_buffer_in(one, chunks, url) for one in _list(raw, "buffers", url)) if saved is None else (),
        file=saved,
        lives=tuple((life[0], life[1]) for life in lives),
    )


def _file_in(raw: Any, url: str) -> TableFile:
    if not isinstance(raw, dict):
        raise _damaged("file", raw, url)
    name, digest = _text(raw, "name", url), _text(raw, "sha256", url)
    # Never read anything outside the checkpoint's own directory.
    base = name.removeprefix(DATA_FOLDER)
    if "/" in base or base in ("", ".", "..") or _SHA256.fullmatch(digest) is None:
        raise _damaged("file", raw, url)
    return TableFile(name, _integer(raw, "nbytes", url), digest, _text(raw, "kind", url))


def _buffer_in(raw: Any, chunks: tuple[Chunk, ...], url: str) -> tuple[Extent, ...]:
    if not isinstance(raw, list):
        raise _damaged("buffers", raw, url)
    extents: list[Extent] = []
    for one in raw:
        if not isinstance(one, list) or len(one) != 3 or not all(_is_count(number) for number in one):
            raise _damaged("buffers", one, url)
        index, offset, length = one
        if index >= len(chunks) or length == 0 or offset + length > chunks[index].nbytes:
            raise _damaged("buffers", one, url)
        extents.append((index, offset, length))
    return tuple(extents)


def _is_life(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and _is_count(value[1])


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_INT


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _damaged(field: str, value: object, url: str) -> CorruptData:
    return CorruptData(f"{url}: the field {field!r} is {_shown(value)}, which nobody writes")


def _integer(said: dict[str, Any], field: str, url: str) -> int:
    value = said.get(field)
    if not _is_count(value):
        raise _damaged(field, value, url)
    return cast("int", value)


def _number(said: dict[str, Any], field: str, url: str) -> float:
    value = said.get(field)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise _damaged(field, value, url)
    return float(value)


def _text(said: dict[str, Any], field: str, url: str) -> str:
    value = said.get(field)
    if not isinstance(value, str):
        raise _damaged(field, value, url)
    return value


def _list(said: dict[str, Any], field: str, url: str) -> list[Any]:
    value = said.get(field)
    if not isinstance(value, list):
        raise _damaged(field, value, url)
    return value


def _binary(value: Any, field: str, url: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _damaged(field, value, url) from None


def _id(value: Any, url: str) -> ObjectID:
    try:
        return ObjectID(value if isinstance(value, str) else "")
    except InvalidArgument:
        raise _damaged("id", value, url) from None
