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
    from entrepot._builders.column_builder import ColumnBuilder as ColumnBuilder
    from entrepot._builders.table_builder import TableBuilder as TableBuilder
    from entrepot._client.allocating import Allocating as Allocating
    from entrepot._client.info import ObjectInfo as ObjectInfo
    from entrepot._client.info import PutResult as PutResult
    from entrepot._client.info import SessionInfo as SessionInfo
    from entrepot._client.locality import LocalitySet as LocalitySet
    from entrepot._client.pins import Pin as Pin
    from entrepot._client.reservation import Reservation as Reservation
    from entrepot._codecs.blob import Blob as Blob
    from entrepot._codecs.own_codecs import codec as codec
    from entrepot._collections.builder import CollectionBuilder as CollectionBuilder
    from entrepot._collections.collection import Collection as Collection
    from entrepot._services.aggregation import Aggregation as Aggregation
    from entrepot._services.aggregation import AggregationWriter as AggregationWriter
    from entrepot._services.broadcast import Broadcast as Broadcast
    from entrepot._services.join_map import JoinMap as JoinMap
    from entrepot._services.page import Page as Page
    from entrepot._services.page_iterators import PageIterator as PageIterator
    from entrepot._services.scratch import ScratchSet as ScratchSet
    from entrepot._services.shuffle import Shuffle as Shuffle
    from entrepot._services.shuffle_writer import ShuffleWriter as ShuffleWriter
    from entrepot._store.connection import connect as connect
    from entrepot._store.store import Store as Store
    from entrepot._streams.reader import StreamReader as StreamReader
    from entrepot._streams.stream import Stream as Stream
    from entrepot._streams.writer import StreamWriter as StreamWriter
    from entrepot.durable import Durable as Durable
    from entrepot.errors import AccessDenied as AccessDenied
    from entrepot.errors import BuildMismatch as BuildMismatch
    from entrepot.errors import CodecFailed as CodecFailed
    from entrepot.errors import CorruptData as CorruptData
    from entrepot.errors import DirectoryUnavailable as DirectoryUnavailable
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
    from entrepot.errors import StreamEnded as StreamEnded
    from entrepot.errors import StreamFailed as StreamFailed
    from entrepot.errors import StreamLost as StreamLost
    from entrepot.errors import Timeout as Timeout
    from entrepot.errors import UnsupportedPlatform as UnsupportedPlatform
    from entrepot.errors import UnsupportedType as UnsupportedType
    from entrepot.errors import VersionMismatch as VersionMismatch
    from entrepot.ids import ObjectID as ObjectID

    __version__: str

_ERRORS = (
    "AccessDenied",
    "BuildMismatch",
    "CodecFailed",
    "CorruptData",
    "DirectoryUnavailable",
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
    "StreamEnded",
    "StreamFailed",
    "StreamLost",
    "Timeout",
    "UnsupportedPlatform",
    "UnsupportedType",
    "VersionMismatch",
)
_MODULE_BY_NAME = {
    "Aggregation": "entrepot._services.aggregation",
    "AggregationWriter": "entrepot._services.aggregation",
    "Allocating": "entrepot._client.allocating",
    "Blob": "entrepot._codecs.blob",
    "Broadcast": "entrepot._services.broadcast",
    "Collection": "entrepot._collections.collection",
    "CollectionBuilder": "entrepot._collections.builder",
    "ColumnBuilder": "entrepot._builders.column_builder",
    "Durable": "entrepot.durable",
    "JoinMap": "entrepot._services.join_map",
    "LocalitySet": "entrepot._client.locality",
    "ObjectID": "entrepot.ids",
    "ObjectInfo": "entrepot._client.info",
    "Page": "entrepot._services.page",
    "PageIterator": "entrepot._services.page_iterators",
    "Pin": "entrepot._client.pins",
    "PutResult": "entrepot._client.info",
    "Reservation": "entrepot._client.reservation",
    "ScratchSet": "entrepot._services.scratch",
    "SessionInfo": "entrepot._client.info",
    "Shuffle": "entrepot._services.shuffle",
    "ShuffleWriter": "entrepot._services.shuffle_writer",
    "Store": "entrepot._store.store",
    "Stream": "entrepot._streams.stream",
    "StreamReader": "entrepot._streams.reader",
    "StreamWriter": "entrepot._streams.writer",
    "TableBuilder": "entrepot._builders.table_builder",
    "connect": "entrepot._store.connection",
    **dict.fromkeys(_ERRORS, "entrepot.errors"),
}
__all__ = [
    "AccessDenied",
    "Aggregation",
    "AggregationWriter",
    "Allocating",
    "Blob",
    "Broadcast",
    "BuildMismatch",
    "CodecFailed",
    "Collection",
    "CollectionBuilder",
    "ColumnBuilder",
    "CorruptData",
    "DirectoryUnavailable",
    "Durable",
    "EntrepotError",
    "InstanceLost",
    "InvalidArgument",
    "InvalidReference",
    "JoinMap",
    "LocalitySet",
    "NotSealed",
    "ObjectDropped",
    "ObjectExists",
    "ObjectID",
    "ObjectInfo",
    "ObjectLost",
    "ObjectNotFound",
    "Page",
    "PageIterator",
    "Pin",
    "PutResult",
    "Reservation",
    "ScratchSet",
    "SessionInfo",
    "Shuffle",
    "ShuffleWriter",
    "Store",
    "StoreFull",
    "StoreUnavailable",
    "Stream",
    "StreamEnded",
    "StreamFailed",
    "StreamLost",
    "StreamReader",
    "StreamWriter",
    "TableBuilder",
    "Timeout",
    "UnsupportedPlatform",
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
    elif name == "codec":  # the module, which is also the decorator
        from importlib import import_module

        value = import_module("entrepot.codec")
    elif name in _MODULE_BY_NAME:
        from importlib import import_module

        if _MODULE_BY_NAME[name].startswith("entrepot._"):  # these modules use what only Linux has
            from entrepot.platform_support import require_supported

            require_supported()
        value = getattr(import_module(_MODULE_BY_NAME[name]), name)
    elif name == "Receipt":
        from warnings import warn

        warn("entrepot.Receipt is deprecated: use entrepot.PutResult", DeprecationWarning, stacklevel=2)
        return __getattr__("PutResult")
    else:
        raise AttributeError(f"module 'entrepot' has no attribute {name!r}")
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%entrepot``; IPython calls this for ``%load_ext entrepot``."""
    from functools import partial
    from importlib import import_module

    magic = import_module("entrepot._notebook.magic").entrepot_magic
    shell.register_magic_function(partial(magic, shell), magic_kind="cell", magic_name="entrepot")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_BY_NAME, "__version__"})
