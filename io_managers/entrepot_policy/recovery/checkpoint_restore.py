"""Reloads one object, with its lineage, from its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from entrepot.errors import CorruptData, EntrepotError, ObjectExists, ObjectNotFound

from entrepot_policy.checkpoints.catalog import CatalogEntry
from entrepot_policy.state import generations
from entrepot_policy.state.lineage import PREFIX

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot_checkpoints.manifests.manifest import SavedObject


def restore_checkpoint(store: Store, entry: CatalogEntry, options: Mapping[str, Any]) -> None:
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
    from entrepot_checkpoints.reader import load_manifest, read_manifest
    from entrepot_checkpoints.storage.directory import open_directory

    root, name = open_directory(entry.url, options).split()
    manifest = read_manifest(root, name)
    members = [member for member in manifest.objects if not _is_lineage(member)]
    saved = next((member for member in members if member.id == entry.ref.id), None)
    if saved is None:
        raise CorruptData(f"{entry.url} holds a different object than the catalog says")
    if (manifest.instance, saved.generation) != (entry.ref.instance, entry.ref.generation):
        raise CorruptData(f"{entry.url} holds a different generation of object {saved.id} than the catalog says")
    unnamed_members = tuple(replace(member, names=()) for member in members)
    load_manifest(store, replace(manifest, objects=unnamed_members), root, name)
    for member in members:
        for bound_name in member.names:
            with suppress(ObjectExists, ObjectNotFound):  # rebound, or the object was deleted
                store.set_name(bound_name, member.id)
    pages = tuple(member for member in manifest.objects if _is_lineage(member))
    with suppress(ObjectExists):
        load_manifest(store, replace(manifest, objects=pages), root, name)
    generations.record_restored(
        store, entry.ref, [(entry.ref.instance, entry.ref.generation), *saved.earlier_generations]
    )


def is_loadable(entry: CatalogEntry, options: Mapping[str, Any]) -> bool:
    """Whether a checkpoint exists in its full length; checksums are compared only when it is loaded."""
    from entrepot_checkpoints.retention import verify

    try:
        return verify(entry.url, quick=True, storage_options=options).ok
    except EntrepotError:
        return False


def _is_lineage(saved: SavedObject) -> bool:
    return any(name.startswith(PREFIX) for name in saved.names)
