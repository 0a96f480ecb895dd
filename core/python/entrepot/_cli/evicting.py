"""Subcommand ``entrepot evict``."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from entrepot._cli.common import add_connection_options, connect, duration_option
from entrepot._cli.objects import resolve_object
from entrepot._cli.progress_display import ProgressDisplay
from entrepot.errors import ObjectNotFound, Timeout
from entrepot.phrases import count_of

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers
    from entrepot._client.info import ObjectInfo
    from entrepot._store.store import Store
    from entrepot.ids import ObjectID

_POLL_SECONDS = 0.05
_SHOWN = 5  # objects that an error names


def add_subcommands(subparsers: SubParsers) -> None:
    """Add the command."""
    evict = subparsers.add_parser("evict", help="move objects from memory to disk; a get reloads them")
    add_connection_options(evict)
    evict.add_argument("objects", nargs="+", help="IDs or names")
    evict.add_argument(
        "--wait", type=duration_option, metavar="TIME", help="until they are on disk, at most so long, such as 5min"
    )
    evict.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="with --wait: show progress on standard error (default: if it is a terminal)",
    )
    evict.set_defaults(run=run_evict)


def run_evict(arguments: argparse.Namespace) -> int:
    """``entrepot evict``."""
    with connect(arguments) as store:
        oids = [resolve_object(store, text) for text in arguments.objects]
        store.evict(*oids)
        if arguments.wait is not None:
            with ProgressDisplay(arguments.progress) as display:
                _wait(store, oids, arguments.wait, display)
    return 0


def _wait(store: Store, oids: list[ObjectID], seconds: float, display: ProgressDisplay) -> None:
    """Wait until the objects are on disk only, or in the store's records, which they do not leave.

    Raises:
        Timeout: some are still in memory; it names them, and who pins them.
    """
    end = time.monotonic() + seconds
    infos = [store.info(oid) for oid in dict.fromkeys(oids)]
    payload = [info for info in infos if info.blobs]
    left = {info.id: info for info in payload if info.state != "spilled"}
    total, to_move = (sum(info.nbytes for info in each) for each in (payload, left.values()))
    while True:
        remaining = sum(info.nbytes for info in left.values())
        display.show(total - remaining, total, len(payload) - len(left), len(payload), to_move - remaining)
        if not left:
            return
        if time.monotonic() > end:
            raise Timeout(_complaint(left, seconds))
        time.sleep(_POLL_SECONDS)
        for oid in list(left):
            try:
                left[oid] = store.info(oid)
            except ObjectNotFound:  # deleted in the meantime
                del left[oid]
            else:
                if left[oid].state == "spilled":
                    del left[oid]


def _complaint(left: dict[ObjectID, ObjectInfo], seconds: float) -> str:
    named = "; ".join(f"{oid}: {_reason(info)}" for oid, info in list(left.items())[:_SHOWN])
    more = f"; and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    return f"not on disk after {seconds:g} s: {count_of(len(left), 'object')}: {named}{more}"


def _reason(info: ObjectInfo) -> str:
    holders = ", ".join(f"{holder['label']} (process {holder['pid']})" for holder in info.pinned_by)
    return f"pinned by {holders}" if holders else info.why
