"""Manifests are read back as they were written, and nothing else is accepted as one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from entrepot.errors import CorruptData, VersionMismatch
from entrepot.ids import ObjectID
from entrepot_checkpoints.manifests.manifest import Chunk, Manifest, SavedObject, TableFile
from entrepot_checkpoints.manifests.manifest_codec import decode_header, decode_manifest, encode_manifest, info_of
from entrepot_checkpoints.storage.chunks import chunk_from_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = st.text(max_size=20)
COUNT = st.integers(0, 2**63 - 1)
DIGEST = st.binary(min_size=32, max_size=32).map(bytes.hex)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    if draw(st.booleans()):
        data = draw(st.binary(min_size=1, max_size=40))
        return replace(chunk_from_bytes(data), data=data)
    return Chunk(draw(DIGEST), draw(st.integers(1, 2**40)), draw(st.integers(0, 2**32 - 1)))


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    parts = tuple(draw(st.lists(chunks(), max_size=4)))

    def extent() -> tuple[int, int, int]:
        index = draw(st.integers(0, len(parts) - 1))
        offset = draw(st.integers(0, parts[index].nbytes - 1))
        return index, offset, draw(st.integers(1, parts[index].nbytes - offset))

    def saved(oid: ObjectID) -> SavedObject:
        names = tuple(draw(st.lists(st.text(min_size=1, max_size=9), max_size=2)))
        if draw(st.integers(0, 4)) == 0:
            file = TableFile(
                draw(st.from_regex(r"(data/)?[a-z]{1,9}\.parquet", fullmatch=True)),
                draw(st.integers(0, 2**50)),
                draw(DIGEST),
                draw(TEXT),
            )
            return SavedObject(oid, draw(COUNT), draw(TEXT), b"", names, (), file)
        count = draw(st.integers(0, 3)) if parts else 0
        buffers = tuple(tuple(extent() for _ in range(draw(st.integers(0, 2)))) for _ in range(count))
        return SavedObject(oid, draw(COUNT), draw(TEXT), draw(st.binary(max_size=30)), names, buffers)

    ids = draw(st.lists(st.binary(min_size=20, max_size=20).map(ObjectID), max_size=4, unique=True))
    roots = tuple(draw(st.lists(st.sampled_from(ids), max_size=5))) if ids else ()
    return Manifest(
        what=draw(st.sampled_from(["object", "objects", "collection", "session"])),
        format=draw(st.sampled_from(["entrepot", "parquet"])),
        scope=draw(TEXT),
        session=draw(TEXT),
        instance=draw(TEXT),
        host=draw(TEXT),
        created=draw(st.floats(0, 1e11)),
        written_by=draw(TEXT),
        own_chunks=draw(st.booleans()),
        roots=roots,
        chunks=parts,
        objects=tuple(saved(oid) for oid in ids),
    )


def read(text: bytes) -> Manifest:
    return decode_manifest(text, "somewhere")


@given(manifests())
def test_what_was_written_is_read(manifest: Manifest) -> None:
    text = encode_manifest(manifest)
    assert read(text) == manifest
    assert decode_header(text, "url") == info_of(manifest, "url", "")
    assert decode_header(text.partition(b"\n")[0], "url") == info_of(manifest, "url", "")


@given(manifests(), st.data())
def test_whatever_is_cut_off_or_changed_is_seen(manifest: Manifest, data: Any) -> None:
    text = encode_manifest(manifest)
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(CorruptData):
        read(text[:cut])
    with pytest.raises(CorruptData):
        read(text + b"x")
    # In the body, no flipped bit is tolerated; the header may differ in white space and in the writer's name, which the
    # body repeats.
    body = text.index(b"\n") + 1
    at = data.draw(st.integers(body, len(text) - 2))
    with pytest.raises(CorruptData):
        read(text[:at] + bytes([text[at] ^ (1 << data.draw(st.integers(0, 7)))]) + text[at + 1 :])


@given(manifests(), st.data())
def test_a_changed_header_is_seen_or_means_the_same(manifest: Manifest, data: Any) -> None:
    text = encode_manifest(manifest)
    at = data.draw(st.integers(0, text.index(b"\n")))
    changed = text[:at] + bytes([data.draw(st.integers(0, 255))]) + text[at + 1 :]
    with suppress(CorruptData, VersionMismatch):
        assert read(changed) == manifest


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(text: bytes) -> None:
    with pytest.raises(CorruptData):
        read(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(manifests(), JSON, st.data())
def test_a_body_of_wrong_fields_is_refused_though_its_checksum_fits(manifest: Manifest, wrong: Any, data: Any) -> None:
    """Another program might write such a body; the reader raises nothing but our own errors."""
    import hashlib
    import json

    header, body, _ = encode_manifest(manifest).split(b"\n")
    fields = json.loads(body)
    place: Any = fields
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], (dict, list)) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = wrong
        break
    changed = json.dumps(fields).encode()
    header_fields = json.loads(header)
    header_fields["body_bytes"], header_fields["body_sha256"] = len(changed), hashlib.sha256(changed).hexdigest()
    try:
        again = read(json.dumps(header_fields).encode() + b"\n" + changed + b"\n")
    except CorruptData:
        return
    assert isinstance(again, Manifest)
    for entry in again.objects:
        for index, offset, length in (extent for buffer in entry.buffers for extent in buffer):
            assert 0 <= offset < offset + length <= again.chunks[index].nbytes
        # Tables of a collection have a directory of their own; all other files are directly beside the manifest.
        assert entry.file is None or "/" not in entry.file.name.removeprefix("data/")
