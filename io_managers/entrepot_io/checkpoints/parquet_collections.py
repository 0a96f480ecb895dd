"""A collection of tables as a Parquet dataset: a directory with one file for each member, named in their order.

The object that lists the members is stored in the manifest verbatim. Reloaded tables may be split into different pieces
than before, so loading seals the collection anew, with the same members in the same order and their current sizes.
"""

from __future__ import annotations

from dataclasses import replace as changed
from typing import TYPE_CHECKING

from entrepot import parts
from entrepot.codec import unpack_tree
from entrepot.collection_parts import contents_in, put_collection, put_member
from entrepot.errors import CorruptData, UnsupportedType

from entrepot_io.checkpoints.chunks import identified
from entrepot_io.checkpoints.manifest import Chunk, Extent, Manifest, SavedObject
from entrepot_io.checkpoints.manifest_text import DATA_FOLDER
from entrepot_io.checkpoints.parquet import TableWriter, is_generation, read_table, same_table_is_success
from entrepot_io.checkpoints.places import Place
from entrepot_io.checkpoints.progress import Counter
from entrepot_io.checkpoints.request import Wanted

if TYPE_CHECKING:
    from entrepot import Store


def save_collection(asked: Wanted, root: Place, name: str, earlier: Manifest | None, counter: Counter) -> Manifest:
    """Write each member as a file, and return the manifest, which is yet to be written.

    Raises:
        UnsupportedType: the members are not tables, or Parquet would not restore them exactly.
        ObjectNotFound: one was deleted meanwhile.
    """
    from entrepot_io.checkpoints.saving import manifest_of

    (oid,) = asked.roots
    listed = {one.id: one for one in asked.objects}
    held = asked.made or parts.read(asked.store, oid)
    contents = contents_in(held.tree, held.buffers)
    if contents.traits.kind != "table":
        raise UnsupportedType(
            f"collection {contents.name!r} is one of {contents.traits.type or 'nothing'}, and only collections of "
            "tables (Arrow, pandas, Polars) are written as Parquet: save it with format='entrepot'"
        )
    chunks, extents = _in_manifest(held.buffers)
    type_ = unpack_tree(held.tree).codec
    saved = [SavedObject(oid, held.generation, type_, held.tree, listed[oid].names, extents)]
    writer = TableWriter(asked.store, root / name, earlier)
    for position in range(contents.count):
        member = listed[contents.id_of(position)]
        done, moved = writer.write(member, f"{DATA_FOLDER}{position:08}")
        saved.append(done)
        counter.add(member.nbytes, moved=moved, objects=1)
    return manifest_of(asked, "parquet", True, chunks, saved)


def load_collection(store: Store, manifest: Manifest, place: Place, replace: bool, counter: Counter) -> None:
    """Read the files of a manifest, put their tables as members, and seal the collection.

    Raises:
        CorruptData: the manifest is inconsistent, or a file was changed.
        ObjectLost: a file does not exist.
        ObjectExists: an ID holds different content here, or the name is bound to another object, and ``replace`` is
            False.
    """
    saved = {one.id: one for one in manifest.objects}
    if len(manifest.roots) != 1:
        raise CorruptData(f"{place.url}: a checkpoint of a collection has {len(manifest.roots)} of them")
    whole = saved[manifest.roots[0]]
    contents = contents_in(whole.tree, _buffers(whole, manifest, place))
    sizes: list[int] = []
    for position in range(contents.count):
        one = saved.get(contents.id_of(position))
        if one is None or one.file is None:
            raise CorruptData(f"{place.url}: member {position} of collection {contents.name!r} has no file")
        if store.instance_id == manifest.instance and is_generation(store, one):
            sizes.append(parts.size_of(store, one.id))
        else:
            value = read_table(place, one.file)
            if len(value) != contents.rows_of(position):
                raise CorruptData(
                    f"{place.url}/{one.file.name} has {len(value)} rows, and member {position} of collection "
                    f"{contents.name!r} has {contents.rows_of(position)}"
                )
            with same_table_is_success(store, one.id, value):
                put_member(store, one.id, contents.name, position, value, replace=replace)
            sizes.append(parts.size_of(store, one.id))
            counter.add(0, moved=one.file.nbytes)
        counter.add(one.file.nbytes, objects=1)
    first, others = (whole.names[0], whole.names[1:]) if whole.names else ("", ())
    put_collection(store, whole.id, contents, sizes, name=first, replace=replace)
    from entrepot_io.checkpoints.loading import bind_names

    bind_names(store, whole, others, replace)


def _in_manifest(buffers: list[memoryview]) -> tuple[list[Chunk], tuple[tuple[Extent, ...], ...]]:
    """The buffers as chunks stored inside the manifest."""
    chunks = [changed(identified(bytes(buffer)), data=bytes(buffer)) for buffer in buffers if buffer.nbytes]
    numbers = iter(range(len(chunks)))
    return chunks, tuple(((next(numbers), 0, buffer.nbytes),) if buffer.nbytes else () for buffer in buffers)


def _buffers(saved: SavedObject, manifest: Manifest, place: Place) -> list[bytes]:
    found: list[bytes] = []
    for extents in saved.buffers:
        pieces: list[bytes] = []
        for index, offset, length in extents:
            data = manifest.chunks[index].data
            if data is None:
                raise CorruptData(f"{place.url}: the list of a collection's members is not in the manifest")
            pieces.append(data[offset : offset + length])
        found.append(b"".join(pieces))
    return found
