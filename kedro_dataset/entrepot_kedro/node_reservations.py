"""Reservations for nodes: the option ``reserve``.

A node reserves before its function runs, and releases once its last output is saved.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from entrepot_io.task_reservations import TaskReservation, begin_task

from entrepot_kedro.values.sessions import default_scope

if TYPE_CHECKING:
    from entrepot_io.settings import Settings
    from kedro.pipeline.node import Node

_lock = threading.Lock()
# Guarded by _lock. By the node's name: its reservation, and the outputs that are not saved yet.
_running: dict[str, tuple[TaskReservation, set[str]]] = {}


def begin_node(node: Node, settings: Settings) -> None:
    """Reserve for a node whose inputs are loaded, and wait for it."""
    end_node(node, succeeded=False)  # of an attempt whose end was not seen
    reservation = begin_task(settings, settings.scope or default_scope(), "", node.name)
    if reservation is not None:
        with _lock:
            _running[node.name] = (reservation, set(node.outputs))


def output_saved(node: Node, dataset: str) -> None:
    """Release the node's reservation if this was its last output."""
    with _lock:
        running = _running.get(node.name)
        if running is None:
            return
        running[1].discard(dataset)
        if running[1]:
            return
    end_node(node, succeeded=True)


def end_node(node: Node, *, succeeded: bool) -> None:
    """Release a node's reservation, if it has one."""
    with _lock:
        running = _running.pop(node.name, None)
    if running is not None:
        running[0].end(succeeded=succeeded)


def end_all() -> None:
    """Release what the nodes of a failed run have reserved in this process."""
    with _lock:
        ended = list(_running.values())
        _running.clear()
    for reservation, _ in ended:
        reservation.end(succeeded=False)
