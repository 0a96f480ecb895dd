"""What ``Store.browse`` and a notebook show of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from entrepot.html_tables import html_table
from entrepot.phrases import age, count_of, human_bytes, printable, session_phrase

if TYPE_CHECKING:
    from entrepot._client.info import ObjectInfo

SHOWN = 100
HEADER = ("name", "type", "bytes", "age", "state", "pins")


class ObjectTable(Sequence["ObjectInfo"]):
    """Objects, largest first; a notebook shows the first 100 as a table, and a terminal as lines.

    Args:
        objects: in any order.
        place: where they are, for the caption.
    """

    def __init__(self, objects: Sequence[ObjectInfo], place: str) -> None:
        self._objects = sorted(objects, key=lambda info: info.nbytes, reverse=True)
        self._place = place

    @overload
    def __getitem__(self, index: int) -> ObjectInfo: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ObjectInfo]: ...
    def __getitem__(self, index: int | slice) -> ObjectInfo | Sequence[ObjectInfo]:
        return self._objects[index]

    def __len__(self) -> int:
        return len(self._objects)

    def __repr__(self) -> str:
        lines = ["  ".join(map(printable, _cells(info))) for info in self._objects[:SHOWN]]
        return "\n".join([self._caption(), *lines])

    def _repr_html_(self) -> str:
        return html_table(self._caption(), map(_cells, self._objects[:SHOWN]), HEADER)

    def _caption(self) -> str:
        total = human_bytes(sum(info.nbytes for info in self._objects))
        shown = f", of which the largest {SHOWN} are shown" if len(self._objects) > SHOWN else ""
        return f"{count_of(len(self._objects), 'object')}, {total}, in {self._place}{shown}"


def browse(objects: Sequence[ObjectInfo], scope: str, session: str) -> ObjectTable:
    """Return the objects of a session as a table."""
    return ObjectTable(objects, session_phrase(scope, session))


def store_table(address: str, scope: str, session: str, status: dict[str, Any]) -> str:
    """Return what a notebook shows of a store, as HTML.

    Args:
        address, scope, session: what the ``Store`` is connected to.
        status: of the store.
    """
    rows = [
        ("address", address),
        ("session", session_phrase(scope, session)),
        ("host", f"{status['host']}, daemon {status['pid']}"),
        ("memory", f"{human_bytes(status['used_bytes'])} of {human_bytes(status['capacity_bytes'])}"),
        ("pinned by readers", human_bytes(status["pinned_bytes"])),
        ("spilled", human_bytes(status["spilled_bytes"])),
        ("objects", f"{status['objects']} in {count_of(status['sessions'], 'session')}"),
    ]
    return html_table("Entrepot store", rows)


def _cells(info: ObjectInfo) -> tuple[str, ...]:
    """An object's cells, in the order of ``HEADER``."""
    return (
        ", ".join(info.names) or str(info.id),
        info.type,
        human_bytes(info.nbytes),
        age(info.created),
        info.state,
        str(info.pins),
    )
