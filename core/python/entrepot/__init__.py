"""Entrepot: pass large data between the tasks of a workflow by object ID, through shared memory.

    import entrepot
    store = entrepot.connect()
    oid = store.put(table, name="orders")
    table = store.get(oid)

Importing this package imports none of its modules; each is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entrepot._blob import Blob as Blob
    from entrepot._collection import Collection as Collection
    from entrepot._collection_builder import CollectionBuilder as CollectionBuilder
    from entrepot._connect import connect as connect
    from entrepot._info import ObjectInfo as ObjectInfo
    from entrepot._info import Receipt as Receipt
    from entrepot._info import SessionInfo as SessionInfo
    from entrepot._locality import LocalitySet as LocalitySet
    from entrepot._store import Store as Store
    from entrepot._store_memory import Pin as Pin
    from entrepot.durable import Durable as Durable
    from entrepot.errors import AccessDenied as AccessDenied
    from entrepot.errors import BuildMismatch as BuildMismatch
    from entrepot.errors import CorruptData as CorruptData
    from entrepot.errors import EntrepotError as EntrepotError
    from entrepot.errors import InstanceLost as InstanceLost
    from entrepot.errors import InvalidArgument as InvalidArgument
    from entrepot.errors import InvalidReference as InvalidReference
    from entrepot.errors import NotSealed as NotSealed
    from entrepot.errors import ObjectDropped as ObjectDropped
    from entrepot.errors import ObjectExists as ObjectExists
    from entrepot.errors import ObjectLost as ObjectLost
    from entrepot.errors import ObjectNotFound as ObjectNotFound
    from entrepot.errors import StoreFull as StoreFull
    from entrepot.errors import StoreUnavailable as StoreUnavailable
    from entrepot.errors import Timeout as Timeout
    from entrepot.errors import UnsupportedType as UnsupportedType
    from entrepot.errors import VersionMismatch as VersionMismatch
    from entrepot.ids import ObjectID as ObjectID

    __version__: str

_ERRORS = (
    "AccessDenied",
    "BuildMismatch",
    "CorruptData",
    "EntrepotError",
    "InstanceLost",
    "InvalidArgument",
    "InvalidReference",
    "NotSealed",
    "ObjectDropped",
    "ObjectExists",
    "ObjectLost",
    "ObjectNotFound",
    "StoreFull",
    "StoreUnavailable",
    "Timeout",
    "UnsupportedType",
    "VersionMismatch",
)
_HOME = {
    "Blob": "entrepot._blob",
    "Collection": "entrepot._collection",
    "CollectionBuilder": "entrepot._collection_builder",
    "Durable": "entrepot.durable",
    "LocalitySet": "entrepot._locality",
    "ObjectID": "entrepot.ids",
    "ObjectInfo": "entrepot._info",
    "Pin": "entrepot._store_memory",
    "Receipt": "entrepot._info",
    "SessionInfo": "entrepot._info",
    "Store": "entrepot._store",
    "connect": "entrepot._connect",
    **dict.fromkeys(_ERRORS, "entrepot.errors"),
}
__all__ = [
    "AccessDenied",
    "Blob",
    "BuildMismatch",
    "Collection",
    "CollectionBuilder",
    "CorruptData",
    "Durable",
    "EntrepotError",
    "InstanceLost",
    "InvalidArgument",
    "InvalidReference",
    "LocalitySet",
    "NotSealed",
    "ObjectDropped",
    "ObjectExists",
    "ObjectID",
    "ObjectInfo",
    "ObjectLost",
    "ObjectNotFound",
    "Pin",
    "Receipt",
    "SessionInfo",
    "Store",
    "StoreFull",
    "StoreUnavailable",
    "Timeout",
    "UnsupportedType",
    "VersionMismatch",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("entrepot")
    elif name == "_core":  # every module of this package first imports the extension through here
        from entrepot._extension import load

        value = load()
    elif name in _HOME:
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'entrepot' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, "__version__"})
