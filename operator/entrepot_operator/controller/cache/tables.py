"""Tables of reduced resources of one kind, with change notifications."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from entrepot_operator.controller.cache.location_index import LocationIndex

T = TypeVar("T")
Resource = Mapping[str, Any]


def resource_key(resource: Resource) -> str:
    """The name of a resource, with its namespace if it has one."""
    metadata = resource["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class Table(Generic[T]):
    """Resources of one kind by name, each reduced to what matters. A sink of an informer.

    Args:
        reduce: reduces a resource; None: treated as if it did not exist.
        on_change: called with the reduced resource before and after, if they differ.
    """

    def __init__(self, reduce: Callable[[Resource], T | None], on_change: Callable[[T | None, T | None], None]) -> None:
        self._reduce = reduce
        self._on_change = on_change
        self._lock = threading.Lock()
        self._items: dict[str, T] = {}

    def get(self, key: str) -> T | None:
        """One reduced resource."""
        with self._lock:
            return self._items.get(key)

    def all(self) -> dict[str, T]:
        """All reduced resources."""
        with self._lock:
            return dict(self._items)

    def put(self, resources: Iterable[Resource]) -> None:
        """Replace everything."""
        items = {
            resource_key(resource): reduced for resource in resources if (reduced := self._reduce(resource)) is not None
        }
        with self._lock:
            before, self._items = self._items, items
        for key in before.keys() | items.keys():
            self._notify(before.get(key), items.get(key))

    def change(self, resource: Resource, *, gone: bool) -> None:
        """Apply an addition, change or removal."""
        key, after = resource_key(resource), None if gone else self._reduce(resource)
        with self._lock:
            before = self._items.pop(key, None)
            if after is not None:
                self._items[key] = after
        self._notify(before, after)

    def _notify(self, before: T | None, after: T | None) -> None:
        if before != after:
            self._on_change(before, after)


class CombinedTable(Generic[T]):
    """Tables with disjoint keys, such as one for each of several namespaces."""

    def __init__(self, tables: Iterable[Table[T]]) -> None:
        self._tables = tuple(tables)

    def get(self, key: str) -> T | None:
        """One reduced resource."""
        return next((item for table in self._tables if (item := table.get(key)) is not None), None)

    def all(self) -> dict[str, T]:
        """All reduced resources."""
        return {key: item for table in self._tables for key, item in table.all().items()}


class ChangeHandler(Protocol):
    """Applies a change of one resource; the return value is ignored."""

    def __call__(self, resource: Resource, *, gone: bool) -> object: ...


class FanOutSink:
    """Feeds both the index and a table from one informer, without keeping anything itself.

    Args:
        put, change: the index's methods for this kind.
        table: the table.
    """

    def __init__(self, put: Callable[[Iterable[Resource]], object], change: ChangeHandler, table: Table[Any]) -> None:
        self._put = put
        self._change = change
        self._table = table

    def put(self, resources: Iterable[Resource]) -> None:
        """Replace everything; there are few enough resources to hold them briefly."""
        items = list(resources)
        self._put(items)
        self._table.put(items)

    def change(self, resource: Resource, *, gone: bool) -> None:
        """Apply a change of one resource."""
        self._change(resource, gone=gone)
        self._table.change(resource, gone=gone)


class LocationIndexSink:
    """Feeds LocalObjects to the index.

    Args:
        index: the index.
        on_change: called with the ID of a changed object; None: any may have changed.
    """

    def __init__(self, index: LocationIndex, on_change: Callable[[str | None], None]) -> None:
        self._index = index
        self._on_change = on_change

    def put(self, resources: Iterable[Resource]) -> None:
        """Replace everything."""
        self._index.put_objects(resources)
        self._on_change(None)

    def change(self, resource: Resource, *, gone: bool) -> None:
        """Apply a change of one resource."""
        object_id = self._index.change_object(resource, gone=gone)
        if object_id is not None:
            self._on_change(object_id)
