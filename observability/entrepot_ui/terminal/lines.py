"""A store's state as lines of text, for a terminal."""

from __future__ import annotations

import time
from typing import Any

from entrepot._cli.common import age, human_bytes, printable
from entrepot.phrases import count_of

from entrepot_ui.watch.events import Event
from entrepot_ui.watch.memory import memory_parts
from entrepot_ui.watch.rows import ObjectRow
from entrepot_ui.watch.watcher import View

HEADER = ("name", "bytes", "type", "age", "state", "set", "session")
SORTS = ("names", "nbytes", "type", "created", "state", "locality_set", "session")  # the key of each column
_SYMBOLS = {"pinned": "#", "values": "=", "leased": "w", "tables": "t", "warm": "+", "kept": "-", "free": "."}
_SHORT = {
    "pinned": "pinned",
    "values": "values",
    "leased": "leased",
    "tables": "tables",
    "warm": "warm",
    "kept": "free segments",
    "free": "not taken",
}


def state_line(view: View) -> str:
    """Which store it is, and whether it answers."""
    if view.status is None or view.state != "live":
        since = f"; what is shown is from {age(view.answered_at)} ago" if view.answered_at else ""
        return f"{view.state.upper()}: {printable(view.reason)}{since}"
    status = view.status
    counts = ", ".join(
        (
            count_of(status["objects"], "object"),
            count_of(status["sessions"], "session"),
            count_of(sum(client["connected"] for client in status["clients"]), "client"),
        )
    )
    waiting = f", {count_of(status['waiting'], 'request')} waiting" if status["waiting"] else ""
    where = f"{status['instance'][:12]} on {printable(status['host'])}"
    return f"{where}, daemon {status['pid']}, up {age(time.time() - status['uptime_seconds'])}: {counts}{waiting}"


def memory_bar(view: View, width: int) -> str:
    """The capacity as a bar of letters; it needs neither colour nor UTF-8."""
    if view.status is None:
        return ""
    width = max(10, width - 2)
    capacity = max(1, view.status["capacity_bytes"])
    bar, end = "", 0.0
    for part in memory_parts(view.status):
        end += part["nbytes"] * width / capacity
        cells = round(end) - len(bar)
        bar += _SYMBOLS[part["key"]] * max(0, cells)
    return f"[{bar[:width].ljust(width, '.')}]"


def memory_line(view: View) -> str:
    """The parts of the capacity, and the disk."""
    if view.status is None:
        return ""
    parts = [
        f"{_SYMBOLS[part['key']]} {_SHORT[part['key']]} {human_bytes(part['nbytes'])}"
        for part in memory_parts(view.status)
        if part["nbytes"]
    ]
    return f"{human_bytes(view.status['capacity_bytes'])}: {'  '.join(parts)}  spilled {_disk(view)}"


def _disk(view: View) -> str:
    assert view.status is not None
    rates = [f"{human_bytes(int(rate))}/s {name}" for name, rate in view.rates.items() if rate >= 1]
    return ", ".join([human_bytes(view.status["spilled_bytes"]), *rates])


def event_line(events: list[Event]) -> str:
    """The latest event."""
    return f"{age(events[-1].at)} ago, {events[-1].kind}: {printable(events[-1].text)}" if events else ""


def cells_of(row: ObjectRow) -> tuple[str, ...]:
    """An object's cells, in the order of ``HEADER``."""
    name = printable(row.names) if row.names else row.id
    return (
        name,
        human_bytes(row.nbytes),
        printable(row.type),
        _age_cell(row.created),
        f"{row.state}, kept" if row.kept else row.state,
        printable(row.locality_set),
        printable(row.place),
    )


def detail_lines(details: dict[str, Any] | None, row: ObjectRow, pins: list[dict[str, Any]]) -> list[str]:
    """What is known of one object.

    Args:
        details: its entry among the details; None: it is not one of the largest objects.
        row: its row.
        pins: who pins it.
    """
    lines = [
        f"ID          {row.id}",
        f"names       {printable(row.names) or '(none)'}",
        f"type        {printable(row.type)}",
        f"bytes       {human_bytes(row.nbytes)} ({row.nbytes})",
        f"state       {row.state}{', kept in memory' if row.kept else ''}",
        f"session     {printable(row.place)}",
        f"set         {printable(row.locality_set) or '(default)'}",
        f"age         {age(row.created)}",
    ]
    if details is not None:
        lines.append(
            f"memory      own {human_bytes(details['own_bytes'])}, of these shared "
            f"{human_bytes(details['shared_bytes'])}; from older objects {human_bytes(details['referenced_bytes'])}"
        )
    for pin in pins:
        since = f"{age(pin['since'])}{' or longer' if pin['or_earlier'] else ''}"
        lines.append(f"pinned by   {printable(pin['label'])} ({pin['pid']}), for {since}")
    return lines


def _age_cell(created: float) -> str:
    """The age in steps of ten seconds: each change of a cell is drawn."""
    seconds = time.time() - created
    return f"{int(seconds // 10) * 10} s" if 10 <= seconds < 60 else age(created)
