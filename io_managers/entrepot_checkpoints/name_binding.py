"""Binds the names that a checkpoint records."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from entrepot.errors import ObjectNotFound

from entrepot_checkpoints.manifests.manifest import SavedObject

if TYPE_CHECKING:
    from entrepot import Store


def bind_names(store: Store, saved: SavedObject, names: tuple[str, ...], replace: bool) -> None:
    """Bind a checkpoint's names in the session; one bound to another object is replaced only if ``replace`` is true."""
    for name in names:
        with suppress(ObjectNotFound):
            if store.resolve(name) == saved.id:
                continue
        store.set_name(name, saved.id, replace=replace)
