"""Plugins that turn a collection into one value, found by the entry-point group ``entrepot.collections``.

The core knows nothing about tables and tensors. A package that does offers a module with the functions of
:class:`Views`; the first one installed is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, cast

from entrepot._collection_tree import TABLE as TABLE
from entrepot._collection_tree import TENSOR as TENSOR
from entrepot._collection_tree import VALUE as VALUE
from entrepot._collection_tree import Traits as Traits
from entrepot.errors import UnsupportedType

if TYPE_CHECKING:
    from entrepot._collection import Collection

ENTRY_POINT_GROUP = "entrepot.collections"
_found: Views | None = None


class Views(Protocol):
    """Interface of the plugin module. Functions that take a collection implement its methods of the same names."""

    def describe(self, value: Any) -> Traits: ...
    def schema(self, collection: Collection) -> Any: ...
    def to_reader(self, collection: Collection, columns: Sequence[str] | None = None) -> Any: ...
    def to_arrow(self, collection: Collection) -> Any: ...
    def to_polars(self, collection: Collection) -> Any: ...
    def scan_polars(self, collection: Collection) -> Any: ...
    def to_duckdb(self, collection: Collection, connection: Any = None) -> Any: ...
    def iter_batches(self, collection: Collection, rows: int) -> Iterator[Any]: ...
    def torch_dataset(self, collection: Collection, over: str, transform: Callable[[Any], Any] | None) -> Any: ...


def views() -> Views:
    """Return the plugin module.

    Raises:
        UnsupportedType: no installed package offers one.
    """
    global _found
    if _found is None:
        for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
            _found = cast("Views", entry.load())
            break
        else:
            raise UnsupportedType(
                "no installed package reads collections of tables and tensors: install entrepot with entrepot_io"
            )
    return _found
