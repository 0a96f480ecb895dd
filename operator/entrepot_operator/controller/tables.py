"""Tables of reduced resources of one kind, with change notifications."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from entrepot_operator.index import Index

T = TypeVar("T")
Resource = Mapping[str, Any]


def key_of(resource: Resource) -> str:
    """The name of a resource, with its namespace if it has one."""
    metadata = resource["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class Table(Generic[T]):
    """Resources of one kind by name, each reduced to what matters. A sink of a watcher.

    Args:
        reduce: reduces a resource; None: treated as if it did not exist.
        changed: called with the reduced resource before and after, if they differ.
    """

    def __init__(self, reduce: Callable[[Resource], T | None], changed: Callable[[T | None, T | None], None]) -> None:
        self._reduce = reduce
        self._changed = changed
        self._lock = threading.Lock()
        self._kept: dict[str, T] = {}

    def get(self, key: str) -> T | None:
        """One reduced resource."""
        with self._lock:
            return self._kept.get(key)

    def all(self) -> dict[str, T]:
        """All reduced resources."""
        with self._lock:
            return dict(self._kept)

    def put(self, resources: Iterable[Resource]) -> None:
        """Replace everything."""
        kept = {key_of(one): reduced for one in resources if (reduced := self._reduce(one)) is not None}
        with self._lock:
            before, self._kept = self._kept, kept
        for key in before.keys() | kept.keys():
            self._tell(before.get(key), kept.get(key))

    def change(self, resource: Resource, *, gone: bool) -> None:
        """Apply an addition, change or removal."""
        key, after = key_of(resource), None if gone else self._reduce(resource)
        with self._lock:
            before = self._kept.pop(key, None)
            if after is not None:
                self._kept[key] = after
        self._tell(before, after)

    def _tell(self, before: T | None, after: T | None) -> None:
        if before != after:
            self._changed(before, after)


class Several(Generic[T]):
    """Tables with disjoint keys, such as one for each of several namespaces."""

    def __init__(self, tables: Iterable[Table[T]]) -> None:
        self._tables = tuple(tables)

    def get(self, key: str) -> T | None:
        """One reduced resource."""
        return next((found for one in self._tables if (found := one.get(key)) is not None), None)

    def all(self) -> dict[str, T]:
        """All reduced resources."""
        return {key: one for table in self._tables for key, one in table.all().items()}


class Change(Protocol):
    """Applies a change of one resource; the return value is ignored."""

    def __call__(self, resource: Resource, *, gone: bool) -> object: ...


class Both:
    """Feeds both the index and a table from one watcher, without keeping anything itself.

    Args:
        put, change: the index's methods for this kind.
        table: the table.
    """

    def __init__(self, put: Callable[[Iterable[Resource]], object], change: Change, table: Table[Any]) -> None:
        self._put = put
        self._change = change
        self._table = table

    def put(self, resources: Iterable[Resource]) -> None:
        """Replace everything; there are few enough resources to hold them briefly."""
        held = list(resources)
        self._put(held)
        self._table.put(held)

    def change(self, resource: Resource, *, gone: bool) -> None:
        """Apply a change of one resource."""
        self._change(resource, gone=gone)
        self._table.change(resource, gone=gone)


class Objects:
    """Feeds LocalObjects to the index.

    Args:
        index: the index.
        changed: called with the ID of a changed object; None: any may have changed.
    """

    def __init__(self, index: Index, changed: Callable[[str | None], None]) -> None:
        self._index = index
        self._changed = changed

    def put(self, resources: Iterable[Resource]) -> None:
        """Replace everything."""
        self._index.put_objects(resources)
        self._changed(None)

    def change(self, resource: Resource, *, gone: bool) -> None:
        """Apply a change of one resource."""
        changed = self._index.change_object(resource, gone=gone)
        if changed is not None:
            self._changed(changed)
