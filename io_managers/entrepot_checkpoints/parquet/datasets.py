"""A collection of tables as a dataset: a directory with one file for each member, named in their order.

The object that lists the members is stored in the manifest verbatim. Reloaded tables may be split into different pieces
than before, so loading seals the collection anew, with the same members in the same order and their current sizes.
"""

from __future__ import annotations

from dataclasses import replace as changed
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.codec import unpack_tree
from entrepot.errors import CorruptData, UnsupportedType
from entrepot.raw_collections import contents_in, put_collection, put_member

from entrepot_checkpoints.manifests.manifest import Chunk, Extent, FileFormat, Manifest, SavedObject
from entrepot_checkpoints.manifests.manifest_codec import DATA_FOLDER
from entrepot_checkpoints.name_binding import bind_names
from entrepot_checkpoints.parquet.tables import TableWriter, has_generation, ignore_equal_table, read_table
from entrepot_checkpoints.progress import ProgressCounter
from entrepot_checkpoints.save_request import SaveRequest, manifest_of
from entrepot_checkpoints.storage.chunks import chunk_from_bytes
from entrepot_checkpoints.storage.directory import StorageDirectory

if TYPE_CHECKING:
    from entrepot import Store


def save_collection(
    request: SaveRequest,
    root: StorageDirectory,
    name: str,
    file_format: FileFormat,
    earlier: Manifest | None,
    counter: ProgressCounter,
) -> Manifest:
    """Write each member as a file, and return the manifest, which is yet to be written.

    Raises:
        UnsupportedType: the members are not tables, or the format would not restore them exactly.
        ObjectNotFound: one was deleted meanwhile.
    """
    (oid,) = request.roots
    entries = {entry.id: entry for entry in request.objects}
    source = request.synthetic or raw_objects.read(request.store, oid)
    contents = contents_in(source.tree, source.buffers)
    if contents.traits.kind != "table":
        raise UnsupportedType(
            f"collection {contents.name!r} holds {contents.traits.type or 'nothing'}, but only collections of "
            "tables (Arrow, pandas, Polars) can be written as files: save it with format='entrepot'"
        )
    chunks, extents = _inline_chunks(source.buffers)
    type_ = unpack_tree(source.tree).codec
    saved = [SavedObject(oid, source.generation, type_, source.tree, entries[oid].names, extents)]
    writer = TableWriter(request.store, root / name, file_format, earlier)
    for position in range(contents.count):
        member = entries[contents.id_of(position)]
        saved_member, moved = writer.write(member, f"{DATA_FOLDER}{position:08}")
        saved.append(saved_member)
        counter.add(member.nbytes, moved=moved, objects=1)
    return manifest_of(request, file_format, True, chunks, saved)


def load_collection(
    store: Store, manifest: Manifest, directory: StorageDirectory, replace: bool, counter: ProgressCounter
) -> None:
    """Read the files of a manifest, put their tables as members, and seal the collection.

    Raises:
        CorruptData: the manifest is inconsistent, or a file was changed.
        ObjectLost: a file does not exist.
        ObjectExists: an ID holds different content here, or the name is bound to another object, and ``replace`` is
            False.
    """
    saved = {member.id: member for member in manifest.objects}
    if len(manifest.roots) != 1:
        raise CorruptData(f"{directory.url}: expected one collection in the checkpoint, found {len(manifest.roots)}")
    collection_object = saved[manifest.roots[0]]
    contents = contents_in(collection_object.tree, _inline_buffers(collection_object, manifest, directory))
    sizes: list[int] = []
    for position in range(contents.count):
        member = saved.get(contents.id_of(position))
        if member is None or member.file is None:
            raise CorruptData(f"{directory.url}: member {position} of collection {contents.name!r} has no file")
        if store.instance_id == manifest.instance and has_generation(store, member):
            sizes.append(raw_objects.size_of(store, member.id))
        else:
            value = read_table(directory, member.file)
            if len(value) != contents.rows_of(position):
                raise CorruptData(
                    f"{directory.url}/{member.file.name} has {len(value)} rows, but member {position} of collection "
                    f"{contents.name!r} has {contents.rows_of(position)}"
                )
            with ignore_equal_table(store, member.id, value):
                put_member(store, member.id, contents.name, position, value, replace=replace)
            sizes.append(raw_objects.size_of(store, member.id))
            counter.add(0, moved=member.file.nbytes)
        counter.add(member.file.nbytes, objects=1)
    first_name, other_names = (
        (collection_object.names[0], collection_object.names[1:]) if collection_object.names else ("", ())
    )
    put_collection(store, collection_object.id, contents, sizes, name=first_name, replace=replace)
    bind_names(store, collection_object, other_names, replace)


def _inline_chunks(buffers: list[memoryview]) -> tuple[list[Chunk], tuple[tuple[Extent, ...], ...]]:
    """The buffers as chunks stored inside the manifest."""
    chunks = [changed(chunk_from_bytes(bytes(buffer)), data=bytes(buffer)) for buffer in buffers if buffer.nbytes]
    numbers = iter(range(len(chunks)))
    return chunks, tuple(((next(numbers), 0, buffer.nbytes),) if buffer.nbytes else () for buffer in buffers)


def _inline_buffers(saved: SavedObject, manifest: Manifest, directory: StorageDirectory) -> list[bytes]:
    buffers: list[bytes] = []
    for extents in saved.buffers:
        pieces: list[bytes] = []
        for index, offset, length in extents:
            data = manifest.chunks[index].data
            if data is None:
                raise CorruptData(f"{directory.url}: the manifest lacks the list of a collection's members")
            pieces.append(data[offset : offset + length])
        buffers.append(b"".join(pieces))
    return buffers
