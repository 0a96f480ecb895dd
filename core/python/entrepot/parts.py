"""Deprecated alias of :mod:`entrepot.raw_objects`."""

from __future__ import annotations

from entrepot.lazy_imports import deprecated_module

__getattr__ = deprecated_module(
    __name__,
    "entrepot.raw_objects",
    {
        "Listed": "ObjectEntry",
        "ObjectParts": "RawObject",
        "PartsWriter": "RawObjectWriter",
        "Receipt": "PutResult",
        "listed": "iter_entries",
        "look": "ensure_connected",
        "look_up": "entry_of",
    },
)
