"""The cell magic ``%%entrepot``: what a cell put into the store, how much of it was copied, and what that moved.

    %load_ext entrepot

    %%entrepot
    oid = store.put(table.slice(0, 1000))

Usable without IPython's own classes: IPython calls a function with the rest of the line and the cell's text.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument, ObjectLost, ObjectNotFound
from entrepot.html_tables import html_table
from entrepot.phrases import count_of, human_bytes, printable

if TYPE_CHECKING:
    from entrepot._client.info import ObjectInfo
    from entrepot._store.store import Store

HEADER = ("name", "type", "bytes", "copied into the store", "shared with older objects")
SHOWN = 50
_COUNTERS = ("evictions", "loads")


class CellReport:
    """What happened in a store's session while a cell ran.

    Attributes:
        objects: what was put.
        copied_bytes: bytes of these that are new in the store.
        shared_bytes: bytes that they have in common with objects that were there, and that were not copied.
        evictions, loads: objects that the store evicted and reloaded meanwhile, for whomever.
    """

    def __init__(self, objects: list[ObjectInfo], counts: dict[str, int]) -> None:
        self.objects = sorted(objects, key=lambda info: info.nbytes, reverse=True)
        self.copied_bytes = sum(info.own_bytes for info in objects)
        self.shared_bytes = sum(info.referenced_bytes for info in objects)
        self.evictions = counts["evictions"]
        self.loads = counts["loads"]

    def __repr__(self) -> str:
        return "\n".join([self._caption(), *("  ".join(map(printable, cells)) for cells in self._cells())])

    def _repr_html_(self) -> str:
        return html_table(self._caption(), self._cells(), HEADER)

    def _caption(self) -> str:
        moved = f"; {self.evictions} evicted, {self.loads} reloaded" if self.evictions or self.loads else ""
        return (
            f"put {count_of(len(self.objects), 'object')}: {human_bytes(self.copied_bytes)} copied, "
            f"{human_bytes(self.shared_bytes)} shared{moved}"
        )

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                ", ".join(info.names) or str(info.id),
                info.type,
                human_bytes(info.nbytes),
                human_bytes(info.own_bytes),
                human_bytes(info.referenced_bytes),
            )
            for info in self.objects[:SHOWN]
        ]


def entrepot_magic(shell: Any, line: str, cell: str) -> None:
    """Run a cell, and display what it put.

    Args:
        shell: IPython's.
        line: the name of the variable that holds the store; empty: the only one that there is.
        cell: the code.

    Raises:
        InvalidArgument: there is no such store, or several.
    """
    store = _find_store(shell.user_ns, line.strip())
    generations = {info.id: info.generation for info in store.list()}
    before = _counts(store)
    shell.run_cell(cell)  # shows an error of the cell itself
    after = _counts(store)
    new = [info.id for info in store.list() if generations.get(info.id) != info.generation]
    notebook: Any = import_module("IPython.display")  # without types
    notebook.display(CellReport(_details(store, new), {name: max(0, after[name] - before[name]) for name in _COUNTERS}))


def _find_store(variables: dict[str, Any], name: str) -> Store:
    from entrepot._store.store import Store

    if name:
        value = variables.get(name)
        if not isinstance(value, Store):
            raise InvalidArgument(f"%%entrepot {name}: {name} is no entrepot.Store, but {type(value).__name__}")
        return value
    stores = {
        key: value
        for key, value in variables.items()
        if isinstance(value, Store) and not key.startswith("_") and not value.closed
    }
    if len({id(value) for value in stores.values()}) != 1:
        names = ", ".join(sorted(stores)) or "none"
        raise InvalidArgument(f"%%entrepot needs the name of one open entrepot.Store; in this notebook: {names}")
    return next(iter(stores.values()))


def _counts(store: Store) -> dict[str, int]:
    spill = store.status()["spill"]
    return {name: int(spill.get(name, 0)) for name in _COUNTERS}


def _details(store: Store, ids: list[Any]) -> list[ObjectInfo]:
    details: list[ObjectInfo] = []
    for oid in ids:
        try:
            details.append(store.info(oid))
        except (ObjectNotFound, ObjectLost):
            continue  # deleted meanwhile, by another process
    return details
