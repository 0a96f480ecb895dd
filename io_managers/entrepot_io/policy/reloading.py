"""Putting one object back from its checkpoint, with its lineage."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from entrepot.errors import CorruptData, EntrepotError, ObjectExists, ObjectNotFound

from entrepot_io.policy import lives
from entrepot_io.policy.catalog import Entry
from entrepot_io.policy.lineage import PREFIX

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_io.checkpoints.manifest import SavedObject


def reload(store: Store, entry: Entry, options: Mapping[str, Any]) -> None:
    """Put an object back into its session.

    The value is sealed when all its bytes were compared, then its names are bound, then its lineage comes back, and
    last it is noted that its earlier lives had this content. A reload that ends between two of these is taken up by the
    next: what is there is left alone.

    Args:
        store: the session of the object.
        entry: of its checkpoint.
        options: for the target's driver.

    Raises:
        ObjectNotFound, ObjectLost, CorruptData, VersionMismatch: the checkpoint is not there, or damaged.
        ObjectExists: other content is under the ID.
        StoreFull, StoreUnavailable, AccessDenied: it cannot be read, or put.
    """
    from entrepot_io.checkpoints.loading import load_manifest, read_manifest
    from entrepot_io.checkpoints.places import open_place

    root, name = open_place(entry.url, options).split()
    manifest = read_manifest(root, name)
    value = [one for one in manifest.objects if not _is_lineage(one)]
    saved = next((one for one in value if one.id == entry.ref.id), None)
    if saved is None:
        raise CorruptData(f"{entry.url} holds another object than the catalog says")
    if (manifest.instance, saved.generation) != (entry.ref.instance, entry.ref.generation):
        raise CorruptData(f"{entry.url} holds another life of object {saved.id} than the catalog says")
    bare = tuple(replace(one, names=()) for one in value)
    load_manifest(store, replace(manifest, objects=bare), root, name)
    for one in value:
        for bound in one.names:
            with suppress(ObjectExists, ObjectNotFound):  # it means something else by now; or the object was deleted
                store.set_name(bound, one.id)
    pages = tuple(one for one in manifest.objects if _is_lineage(one))
    with suppress(ObjectExists):
        load_manifest(store, replace(manifest, objects=pages), root, name)
    lives.reloaded(store, entry.ref, [(entry.ref.instance, entry.ref.generation), *saved.lives])


def is_loadable(entry: Entry, options: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is there in its full length; its checksums are compared when it is loaded."""
    from entrepot_io.checkpoints.keeping import verify

    try:
        return verify(entry.url, quick=True, storage_options=options).ok
    except EntrepotError:
        return False


def _is_lineage(saved: SavedObject) -> bool:
    return any(one.startswith(PREFIX) for one in saved.names)
