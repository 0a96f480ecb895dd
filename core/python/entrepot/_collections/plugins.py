"""Finding the plugin that turns a collection into one value; :mod:`entrepot.collection_plugins` has its interface."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from entrepot.errors import UnsupportedType

ENTRY_POINT_GROUP = "entrepot.collections"
_plugin: Any = None


def collection_plugin() -> Any:
    """Return the plugin module.

    Raises:
        UnsupportedType: no installed package offers one.
    """
    global _plugin
    if _plugin is None:
        for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
            _plugin = entry.load()
            break
        else:
            raise UnsupportedType(
                "no installed package can read collections of tables and tensors: install entrepot with entrepot_io"
            )
    return _plugin
