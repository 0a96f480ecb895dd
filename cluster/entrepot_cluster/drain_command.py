"""``entrepot drain``: moves what only this store has to other hosts, and takes the store out of its cluster.

listing ──objects to move──▶ moving, in batches ──▶ listing again ──nothing is left──▶ the gateway leaves: exit code 0
                                                       └──what is left does not move, or the time is over──▶ listed: 1
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from entrepot.errors import InvalidArgument, StoreUnavailable, Timeout

if TYPE_CHECKING:
    from entrepot import ObjectID, Store
    from entrepot._cli.common import SubParsers
    from entrepot.inventory import ObjectListing

BATCH_OBJECTS = 64
BATCH_BYTES = 256 << 20
PARALLEL = 4
FRUITLESS_PASSES = 3  # in which nothing moves, before it ends: a gateway may be about to come back
PASS_SECONDS = 1.0  # between those
PROGRESS_SECONDS = 1.0
LEAVE_SECONDS = 30.0
MAX_LISTED = 50
_MOVABLE = frozenset({"sealed", "spilled", "evicting", "loading"})


def add_subcommand(subparsers: SubParsers) -> None:
    """Add ``entrepot drain``."""
    from entrepot._cli.common import duration_option

    drain = subparsers.add_parser(
        "drain",
        help="move what only this store has to other hosts, and leave the cluster",
        epilog="What does not fit elsewhere stays, is listed, and makes the exit code 1; the store stays in the "
        "cluster then. Repeated after it was interrupted, it goes on. New objects are moved too: stop the tasks first.",
    )
    drain.add_argument("--address", help="address of the store, unix:///path (default: ENTREPOT_ADDRESS)")
    drain.add_argument("--to", metavar="HOST", default="", help="host or instance to move to (default: any other)")
    drain.add_argument(
        "--timeout", type=duration_option, metavar="TIME", help="stop moving after this time, such as 10min"
    )
    drain.add_argument(
        "--parallel", type=int, default=PARALLEL, metavar="N", help="batches moved at once (default: %(default)s)"
    )
    drain.set_defaults(run=run_drain)


@dataclass(slots=True)
class _Progress:
    """How far it is.

    Attributes:
        moved, nbytes: objects that were moved, and their bytes.
        settled: objects, with their generation, that need not be moved: other stores have the original.
        kept: why objects stay; replaced by each pass.
    """

    moved: int = 0
    nbytes: int = 0
    settled: set[tuple[ObjectID, int]] = field(default_factory=set)
    kept: dict[ObjectID, str] = field(default_factory=dict)
    shown_at: float = 0.0

    def show(self, total: int, done: int, *, now: bool = False) -> None:
        """Print it, at most once a second."""
        from entrepot._cli.common import human_bytes

        if not now and time.monotonic() - self.shown_at < PROGRESS_SECONDS:
            return
        self.shown_at = time.monotonic()
        print(f"{done} of {total} objects looked at, {self.moved} moved ({human_bytes(self.nbytes)})", flush=True)


def run_drain(arguments: argparse.Namespace) -> int:
    """``entrepot drain``."""
    from entrepot._cli.common import connect_for_inspection

    if arguments.parallel < 1:
        raise InvalidArgument(f"--parallel must be at least 1, but got {arguments.parallel}")
    end = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    with connect_for_inspection(arguments.address) as store:
        _check(store)
        progress = _Progress()
        fruitless = 0
        while fruitless < FRUITLESS_PASSES:
            remaining = [each for each in _movable(store) if (each.id, each.generation) not in progress.settled]
            if not remaining:
                break
            moved_before = progress.moved
            progress.kept.clear()
            _move(store, remaining, arguments.to, arguments.parallel, end, progress)
            if end is not None and time.monotonic() >= end:
                break
            is_fruitless = progress.moved == moved_before and bool(progress.kept)
            fruitless = fruitless + 1 if is_fruitless else 0
            if is_fruitless:
                time.sleep(PASS_SECONDS)
        else:
            remaining = [listing for listing in _movable(store) if listing.id in progress.kept]
        if remaining:
            _report(remaining, progress)
            return 1
        _leave(store)
    print(f"drained: {progress.moved} objects were moved, and the store has left the cluster")
    return 0


def _check(store: Store) -> None:
    status = store.status()
    if not status["gateway"]["serves"]:
        raise StoreUnavailable(
            "this store has no gateway, so nothing can be moved: run 'entrepot gateway', or 'entrepot start --cluster'"
        )
    streams = len(status["streams"])
    if streams:
        raise InvalidArgument(
            f"this store has {streams} streams, which connect the processes of one host and cannot be moved: let them "
            "end, or remove them ('entrepot streams')"
        )


def _movable(store: Store) -> Iterator[ObjectListing]:
    """What a drain moves: everything but Entrepot's own records about this store."""
    from entrepot import inventory
    from entrepot.origins import recorded_copy

    for listing in inventory.everything(store):
        if listing.state not in _MOVABLE or any(name.startswith("entrepot.") for name in listing.names):
            continue
        if listing.nbytes == 0 and recorded_copy(store, listing.id, (listing.scope, listing.session)) is not None:
            continue
        yield listing


def _batches(listings: list[ObjectListing]) -> Iterator[list[ObjectListing]]:
    batch: list[ObjectListing] = []
    nbytes = 0
    for listing in listings:
        if batch and (len(batch) == BATCH_OBJECTS or nbytes + listing.nbytes > BATCH_BYTES):
            yield batch
            batch, nbytes = [], 0
        batch.append(listing)
        nbytes += listing.nbytes
    if batch:
        yield batch


def _move(
    store: Store, listings: list[ObjectListing], to: str, parallel: int, end: float | None, progress: _Progress
) -> None:
    """Move the objects in batches, some at once; after the time is over, no further batch is begun."""
    from entrepot._client import gateway_calls

    def drain(batch: list[ObjectListing]) -> list[tuple[str, str]]:
        raw = store._raw()  # pyright: ignore[reportPrivateUsage]
        try:
            return gateway_calls.drain(raw, [listing.id.binary for listing in batch], to)
        except (StoreUnavailable, Timeout) as error:  # the gateway was restarted, say
            return [("kept", str(error))] * len(batch)

    def note(batch: list[ObjectListing], outcomes: list[tuple[str, str]]) -> None:
        for listing, (what, detail) in zip(batch, outcomes, strict=True):
            if what == "moved":
                progress.moved += 1
                progress.nbytes += listing.nbytes
            elif what == "left":
                progress.settled.add((listing.id, listing.generation))
            elif what == "kept":
                progress.kept[listing.id] = detail

    batches = _batches(listings)
    running: dict[Future[list[tuple[str, str]]], list[ObjectListing]] = {}
    done = 0
    with ThreadPoolExecutor(parallel, thread_name_prefix="drain") as pool:
        while True:
            while len(running) < parallel and (end is None or time.monotonic() < end):
                batch = next(batches, None)
                if batch is None:
                    break
                running[pool.submit(drain, batch)] = batch
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                batch = running.pop(future)
                note(batch, future.result())
                done += len(batch)
            progress.show(len(listings), done)
    progress.show(len(listings), done, now=True)


def _report(remaining: list[ObjectListing], progress: _Progress) -> None:
    from entrepot._cli.common import human_bytes, printable

    for listing in remaining[:MAX_LISTED]:
        names = f" ({', '.join(map(printable, listing.names))})" if listing.names else ""
        why = progress.kept.get(listing.id, "there was no time left to move it")
        print(f"{listing.id}{names}  {human_bytes(listing.nbytes)}  {printable(why)}")
    if len(remaining) > MAX_LISTED:
        print(f"... and {len(remaining) - MAX_LISTED} more")
    print(
        f"entrepot: {len(remaining)} objects stay here, so the store stays in the cluster; {progress.moved} were moved",
        file=sys.stderr,
    )


def _leave(store: Store) -> None:
    from entrepot._client import gateway_calls

    with suppress(StoreUnavailable):  # it left before the answer came, or it is gone: then its lease ends
        gateway_calls.leave(store._raw(), LEAVE_SECONDS)  # pyright: ignore[reportPrivateUsage]
    end = time.monotonic() + LEAVE_SECONDS
    while store.status()["gateway"]["serves"]:
        if time.monotonic() > end:
            raise Timeout(f"everything was moved, but the gateway has not left the cluster within {LEAVE_SECONDS:g} s")
        time.sleep(0.1)
