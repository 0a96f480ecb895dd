"""Deprecated alias of :mod:`entrepot.collection_plugins`."""

from __future__ import annotations

from entrepot.lazy_imports import deprecated_module

__getattr__ = deprecated_module(
    __name__,
    "entrepot.collection_plugins",
    {"Traits": "ValueTraits", "Views": "CollectionPlugin", "views": "collection_plugin"},
)
