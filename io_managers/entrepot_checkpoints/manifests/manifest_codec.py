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

from entrepot_checkpoints.manifests import digests
from entrepot_checkpoints.manifests.manifest import (
    CheckpointInfo,
    CheckpointKind,
    Chunk,
    Extent,
    FileFormat,
    Manifest,
    SavedObject,
    TableFile,
)

FORMAT_VERSION = 3  # 2: digests of chunks may be BLAKE3; 3: formats other than Parquet
MANIFEST_NAME = "manifest.json"
DATA_FOLDER = "data/"  # prefix of a dataset's files, so that their directory contains nothing else
MARKER = "entrepot_checkpoint"
HEADER_MAX_BYTES = 8192
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_INT = 2**63 - 1
_KINDS = ("object", "objects", "collection", "session")
_FORMATS = ("entrepot", "parquet", "arrow", "csv", "orc", "npy", "h5")
_FORMATS_BEFORE_3 = ("entrepot", "parquet")


def encode_manifest(manifest: Manifest) -> bytes:
    """Serialize a manifest."""
    body = _to_json(
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
            "chunks": [_encode_chunk(item) for item in manifest.chunks],
            "objects": [_encode_object(item) for item in manifest.objects],
        }
    )
    header = _to_json(
        {
            MARKER: 2 if manifest.format in _FORMATS_BEFORE_3 else FORMAT_VERSION,
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


def decode_manifest(text: bytes, url: str) -> Manifest:
    """Parse what :func:`encode_manifest` wrote.

    Args:
        text: the whole file.
        url: its location, for messages.

    Raises:
        VersionMismatch: it was written by a newer version.
        CorruptData: it is truncated, was edited, or is not a manifest.
    """
    header, newline, rest = text.partition(b"\n")
    fields = _decode_header_fields(header, url)
    info = _decode_info(fields, url)
    length, digest = _integer(fields, "body_bytes", url), fields.get("body_sha256")
    body = rest[:length]
    if not newline or len(body) != length:
        raise CorruptData(f"{url} is truncated: expected {length} bytes after its first line")
    if rest[length:] != b"\n" or hashlib.sha256(body).hexdigest() != digest:
        raise CorruptData(f"{url} was changed after it was written: its body does not match its checksum")
    manifest = _decode_body(_from_json(body, url), url)
    if info != info_of(manifest, info.url, info.name):
        raise CorruptData(f"{url} was changed after it was written: its first line does not match the rest")
    return manifest


def decode_header(text: bytes, url: str) -> CheckpointInfo:
    """Parse the first line only; the body is neither needed nor checked.

    Raises:
        As :func:`decode_manifest`.
    """
    return _decode_info(_decode_header_fields(text.partition(b"\n")[0], url), url)


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


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _encode_chunk(chunk: Chunk) -> list[Any]:
    inline_data = [] if chunk.data is None else [base64.b64encode(chunk.data).decode()]
    return [chunk.digest, chunk.nbytes, chunk.crc, *inline_data]


def _encode_object(saved: SavedObject) -> dict[str, Any]:
    out: dict[str, Any] = {"id": str(saved.id), "generation": saved.generation, "type": saved.type}
    if saved.names:
        out["names"] = list(saved.names)
    if saved.earlier_generations:
        out["lives"] = saved.earlier_generations
    if saved.file is not None:
        file = saved.file
        out["file"] = {"name": file.name, "nbytes": file.nbytes, "sha256": file.digest, "kind": file.kind}
    else:
        out["tree"] = base64.b64encode(saved.tree).decode()
        out["buffers"] = saved.buffers
    return out


def _decode_header_fields(line: bytes, url: str) -> dict[str, Any]:
    if len(line) > HEADER_MAX_BYTES:
        raise CorruptData(f"{url} is not a checkpoint manifest: its first line has more than {HEADER_MAX_BYTES} bytes")
    fields = _from_json(line, url)
    if not isinstance(fields, dict) or MARKER not in fields:
        raise CorruptData(f"{url} is not a checkpoint manifest: its first line has no {MARKER!r}")
    version = _integer(fields, MARKER, url)
    if version > FORMAT_VERSION:
        raise VersionMismatch(
            f"{url} has checkpoint format {version}, written by {_quote(fields.get('written_by'))}, but this "
            f"installation reads up to format {FORMAT_VERSION}: upgrade entrepot here"
        )
    if version < 1:
        raise CorruptData(f"{url} has checkpoint format {version}; the lowest is 1")
    return fields


def _decode_info(fields: dict[str, Any], url: str) -> CheckpointInfo:
    return CheckpointInfo(
        url=url,
        name="",
        what=_text(fields, "what", url),
        format=_text(fields, "format", url),
        scope=_text(fields, "scope", url),
        session=_text(fields, "session", url),
        created=_number(fields, "created", url),
        written_by=_text(fields, "written_by", url),
        objects=_integer(fields, "objects", url),
        nbytes=_integer(fields, "nbytes", url),
    )


def _from_json(data: bytes, url: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"{url} is truncated or not a checkpoint manifest: {error}") from error


def _decode_body(body: Any, url: str) -> Manifest:
    if not isinstance(body, dict):
        raise CorruptData(f"{url}: the body is not a JSON object")
    what, format_ = _text(body, "what", url), _text(body, "format", url)
    if what not in _KINDS or format_ not in _FORMATS:
        raise CorruptData(f"{url}: unknown combination of what={_quote(what)} and format={_quote(format_)}")
    chunks = tuple(_decode_chunk(item, url) for item in _list(body, "chunks", url))
    objects = tuple(_decode_object(item, chunks, url) for item in _list(body, "objects", url))
    ids = {item.id for item in objects}
    if len(ids) != len(objects):
        raise CorruptData(f"{url}: an object is listed twice")
    roots = tuple(_decode_id(item, url) for item in _list(body, "roots", url))
    if not ids.issuperset(roots):
        raise CorruptData(f"{url}: one of the saved IDs is not among the objects")
    own_chunks = body.get("own_chunks")
    if not isinstance(own_chunks, bool):
        raise _damaged("own_chunks", own_chunks, url)
    return Manifest(
        what=cast("CheckpointKind", what),
        format=cast("FileFormat", format_),
        scope=_text(body, "scope", url),
        session=_text(body, "session", url),
        instance=_text(body, "instance", url),
        host=_text(body, "host", url),
        created=_number(body, "created", url),
        written_by=_text(body, "written_by", url),
        own_chunks=own_chunks,
        roots=roots,
        chunks=chunks,
        objects=objects,
    )


def _decode_chunk(raw: Any, url: str) -> Chunk:
    if not isinstance(raw, list) or len(raw) not in (3, 4):
        raise _damaged("chunks", raw, url)
    digest, nbytes, crc = raw[:3]
    if not isinstance(digest, str) or digests.DIGEST_PATTERN.fullmatch(digest) is None:
        raise _damaged("chunks", digest, url)
    if not _is_count(nbytes) or not _is_count(crc) or crc >= 1 << 32:
        raise _damaged("chunks", raw[:3], url)
    data = _decode_base64(raw[3], "chunks", url) if len(raw) == 4 else None
    if data is not None and len(data) != nbytes:
        raise _damaged("chunks", raw[:3], url)
    return Chunk(digest, nbytes, crc, data)


def _decode_object(raw: Any, chunks: tuple[Chunk, ...], url: str) -> SavedObject:
    if not isinstance(raw, dict):
        raise _damaged("objects", raw, url)
    names = raw.get("names", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise _damaged("names", names, url)
    earlier_generations = raw.get("lives", [])
    if not isinstance(earlier_generations, list) or not all(
        _is_instance_generation(pair) for pair in earlier_generations
    ):
        raise _damaged("lives", earlier_generations, url)
    file = raw.get("file")
    table_file = _decode_file(file, url) if file is not None else None
    return SavedObject(
        id=_decode_id(raw.get("id"), url),
        generation=_integer(raw, "generation", url),
        type=_text(raw, "type", url),
        tree=_decode_base64(raw.get("tree"), "tree", url) if table_file is None else b"",
        names=tuple(names),
        buffers=tuple(_decode_buffer(item, chunks, url) for item in _list(raw, "buffers", url))
        if table_file is None
        else (),
        file=table_file,
        earlier_generations=tuple((pair[0], pair[1]) for pair in earlier_generations),
    )


def _decode_file(raw: Any, url: str) -> TableFile:
    if not isinstance(raw, dict):
        raise _damaged("file", raw, url)
    name, digest = _text(raw, "name", url), _text(raw, "sha256", url)
    # Never read anything outside the checkpoint's own directory.
    base = name.removeprefix(DATA_FOLDER)
    if "/" in base or base in ("", ".", "..") or _SHA256.fullmatch(digest) is None:
        raise _damaged("file", raw, url)
    return TableFile(name, _integer(raw, "nbytes", url), digest, _text(raw, "kind", url))


def _decode_buffer(raw: Any, chunks: tuple[Chunk, ...], url: str) -> tuple[Extent, ...]:
    if not isinstance(raw, list):
        raise _damaged("buffers", raw, url)
    extents: list[Extent] = []
    for item in raw:
        if not isinstance(item, list) or len(item) != 3 or not all(_is_count(number) for number in item):
            raise _damaged("buffers", item, url)
        index, offset, length = item
        if index >= len(chunks) or length == 0 or offset + length > chunks[index].nbytes:
            raise _damaged("buffers", item, url)
        extents.append((index, offset, length))
    return tuple(extents)


def _is_instance_generation(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and _is_count(value[1])


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_INT


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _damaged(field: str, value: object, url: str) -> CorruptData:
    return CorruptData(f"{url}: the field {field!r} has the invalid value {_quote(value)}")


def _integer(fields: dict[str, Any], field: str, url: str) -> int:
    value = fields.get(field)
    if not _is_count(value):
        raise _damaged(field, value, url)
    return cast("int", value)


def _number(fields: dict[str, Any], field: str, url: str) -> float:
    value = fields.get(field)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise _damaged(field, value, url)
    return float(value)


def _text(fields: dict[str, Any], field: str, url: str) -> str:
    value = fields.get(field)
    if not isinstance(value, str):
        raise _damaged(field, value, url)
    return value


def _list(fields: dict[str, Any], field: str, url: str) -> list[Any]:
    value = fields.get(field)
    if not isinstance(value, list):
        raise _damaged(field, value, url)
    return value


def _decode_base64(value: Any, field: str, url: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _damaged(field, value, url) from None


def _decode_id(value: Any, url: str) -> ObjectID:
    try:
        return ObjectID(value if isinstance(value, str) else "")
    except InvalidArgument:
        raise _damaged("id", value, url) from None
