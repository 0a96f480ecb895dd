"""Plugins that turn a collection into one value, found by the entry-point group ``entrepot.collections``.

The core knows nothing about tables and tensors. A package that does offers a module with the functions of
:class:`CollectionPlugin`; the first one installed is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from entrepot._collections import plugins
from entrepot._collections.metadata import TABLE as TABLE
from entrepot._collections.metadata import TENSOR as TENSOR
from entrepot._collections.metadata import VALUE as VALUE
from entrepot._collections.metadata import ValueTraits as ValueTraits
from entrepot._collections.plugins import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP

if TYPE_CHECKING:
    from entrepot._collections.collection import Collection


class CollectionPlugin(Protocol):
    """Interface of the plugin module. Functions that take a collection implement its methods of the same names."""

    def describe(self, value: Any) -> ValueTraits: ...
    def schema(self, collection: Collection) -> Any: ...
    def to_reader(self, collection: Collection, columns: Sequence[str] | None = None) -> Any: ...
    def to_arrow(self, collection: Collection) -> Any: ...
    def to_polars(self, collection: Collection) -> Any: ...
    def scan_polars(self, collection: Collection) -> Any: ...
    def to_duckdb(self, collection: Collection, connection: Any = None) -> Any: ...
    def iter_batches(self, collection: Collection, rows: int) -> Iterator[Any]: ...
    def torch_dataset(self, collection: Collection, over: str, transform: Callable[[Any], Any] | None) -> Any: ...


def collection_plugin() -> CollectionPlugin:
    """Return the plugin module.

    Raises:
        UnsupportedType: no installed package offers one.
    """
    return cast("CollectionPlugin", plugins.collection_plugin())
