"""Reloads one object, with its lineage, from its checkpoint."""

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
    """Reload an object into its session.

    The value is sealed once all its bytes are verified; then its names are bound, its lineage is restored, and finally
    it is recorded that its earlier generations had this content. If a reload is interrupted between two of these steps,
    the next one continues: what exists is left alone.

    Args:
        store: the session of the object.
        entry: of its checkpoint.
        options: for the target's driver.

    Raises:
        ObjectNotFound, ObjectLost, CorruptData, VersionMismatch: the checkpoint is missing or damaged.
        ObjectExists: the ID holds different content.
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
            with suppress(ObjectExists, ObjectNotFound):  # rebound, or the object was deleted
                store.set_name(bound, one.id)
    pages = tuple(one for one in manifest.objects if _is_lineage(one))
    with suppress(ObjectExists):
        load_manifest(store, replace(manifest, objects=pages), root, name)
    lives.reloaded(store, entry.ref, [(entry.ref.instance, entry.ref.generation), *saved.lives])


def is_loadable(entry: Entry, options: Mapping[str, Any]) -> bool:
    """Whether a checkpoint exists in its full length; checksums are compared only when it is loaded."""
    from entrepot_io.checkpoints.keeping import verify

    try:
        return verify(entry.url, quick=True, storage_options=options).ok
    except EntrepotError:
        return False


def _is_lineage(saved: SavedObject) -> bool:
    return any(one.startswith(PREFIX) for one in saved.names)
