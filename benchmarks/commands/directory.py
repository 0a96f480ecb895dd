"""``python -m benchmarks directory``: a cluster's directory with many instances and objects, on servers of its own.

Loads objects that are spread over instances, and reports how much space an object takes, how fast they are published,
how long a look-up takes beside a round trip of the same server that does nothing, and how long a listing takes. etcd
has its default settings, so its default quota of 2 GiB as well; Redis keeps everything in memory. With ``--kinds
kubernetes``, the server is a Kubernetes control plane (tests/kubecp), meant for ``--instances 100``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.machine import ROOT
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from collections.abc import Iterator

    from entrepot_cluster.directory import Directory

SERVERS = ROOT / "tests" / "cluster" / "directory" / "servers"
CONTROL_PLANE = ROOT / "tests" / "kubecp"
KINDS = ("etcd", "redis", "embedded")
KUBERNETES = "kubernetes"
QUOTA = 2 << 30  # etcd's default
GOAL_OBJECTS = 10_000_000
GOAL_LOOKUP_SECONDS = 5e-3
GOAL_LISTING_SECONDS = 10.0
LISTED = 100_000
_BATCH = 100
_LEASE_SECONDS = 3600.0


@dataclass(frozen=True)
class Figures:
    """What was measured on one kind of server. Times are in seconds.

    Attributes:
        bytes_each: space on disk, with Redis in memory, for each object.
        memory_each: resident memory of the server for each object; 0: there is no server.
        published_per_second: objects, by one publisher after the other.
        raw: round trips in which the server does nothing.
        lookups: look-ups of one object each.
        batches: look-ups of 100 objects each.
        listing: seconds for LISTED objects.
    """

    kind: str
    objects: int
    bytes_each: float
    memory_each: float
    published_per_second: float
    raw: list[float]
    lookups: list[float]
    batches: list[float]
    listing: float


def add_directory(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``directory``."""
    parser = commands.add_parser("directory", help="a cluster's directory with many instances and objects")
    parser.add_argument("--objects", type=int, default=100_000, help="default 100000")
    parser.add_argument("--instances", type=int, default=1000, help="default 1000")
    parser.add_argument("--lookups", type=int, default=5000, help="default 5000")
    parser.add_argument(
        "--kinds", nargs="+", choices=[*KINDS, KUBERNETES], default=list(KINDS), help="default: all but kubernetes"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    figures = []
    for kind in arguments.kinds:
        figures.append(measure(kind, arguments.objects, arguments.instances, arguments.lookups))
        print(f"{kind}: measured", file=sys.stderr, flush=True)
    print(f"{arguments.objects:,} objects of {arguments.instances:,} instances")
    rows = [
        [
            measured.kind,
            f"{measured.bytes_each:.0f} B",
            f"{measured.memory_each:.0f} B" if measured.memory_each else "-",
            f"{measured.published_per_second:,.0f}",
            f"{_percentiles(measured.raw)} ms",
            f"{_percentiles(measured.lookups)} ms",
            f"{_percentiles(measured.batches)} ms",
            f"{measured.listing:.1f} s",
        ]
        for measured in figures
    ]
    header = ["directory", "each", "in memory", "published/s", "round trip", "look-up", f"of {_BATCH}"]
    print(grid([*header, f"{min(LISTED, arguments.objects):,} listed"], rows))
    print("round trips and look-ups: median / 99th percentile")
    for measured in figures:
        print("\n".join(verdicts(measured)))
    return 0


def verdicts(figures: Figures) -> list[str]:
    """One line per goal: reached or missed."""
    p99 = _quantile(figures.lookups, 0.99)
    lines = [
        f"{figures.kind}: look-ups under {1e3 * GOAL_LOOKUP_SECONDS:g} ms at p99: "
        f"{_verdict(p99 < GOAL_LOOKUP_SECONDS)} ({1e3 * p99:.2f} ms)",
        f"{figures.kind}: {min(LISTED, figures.objects):,} objects listed within {GOAL_LISTING_SECONDS:g} s: "
        f"{_verdict(figures.listing < GOAL_LISTING_SECONDS)} ({figures.listing:.1f} s)",
    ]
    if figures.kind == "etcd":
        expected = figures.bytes_each * GOAL_OBJECTS
        how = "measured" if figures.objects >= GOAL_OBJECTS else "extrapolated"
        lines.append(
            f"etcd: {GOAL_OBJECTS:,} objects within {QUOTA / 2**30:g} GiB: {_verdict(expected < QUOTA)} "
            f"({expected / 2**30:.2f} GiB, {how})"
        )
    return lines


def measure(kind: str, objects: int, instances: int, lookups: int) -> Figures:
    """Load a directory, and measure."""
    from entrepot_cluster.directory import PlaceEntry, open_directory, session_reference

    session = session_reference("benchmark", "run")
    with _servers(kind) as (url, server), open_directory(url, timeout=30.0) as directory:
        registrations = [
            directory.register(
                f"{number:032x}",
                f"host-{number}.example.com",
                [f"10.{number >> 8}.{number & 255}.1:7411"],
                protocol=1,
                started_at=time.time(),
                lease_seconds=_LEASE_SECONDS,
            )
            for number in range(instances)
        ]
        space, memory = _space(kind, url, server), _memory(server)
        oids: list[bytes] = []
        begin = time.monotonic()
        spent_making = 0.0
        for number, registration in enumerate(registrations):
            making = time.monotonic()
            count = objects * (number + 1) // instances - objects * number // instances
            made = [os.urandom(20) for _ in range(count)]
            entries = [PlaceEntry(oid, 100_000 + index, 1 << 20, session) for index, oid in enumerate(made)]
            oids += made
            spent_making += time.monotonic() - making
            registration.publish(entries)
        seconds = time.monotonic() - begin - spent_making
        space, memory = _space(kind, url, server) - space, _memory(server) - memory
        with _watched(directory):
            sample = random.Random(1).sample(oids, min(lookups, objects))
            directory.places(sample[:_BATCH])
            ask = _raw(kind, server, directory)
            raw, single = [], []
            for oid in sample:  # alternately, so that both have the same conditions
                raw.append(_timed(ask))
                single.append(_timed(partial(_look_up, directory, [oid])))
            batches = [
                _timed(partial(_look_up, directory, sample[at : at + _BATCH]))
                for at in range(0, len(sample) - _BATCH + 1, _BATCH)
            ]
            listing = _timed(lambda: _list(directory, min(LISTED, objects)))
    return Figures(
        kind, objects, space / objects, memory / objects, objects / seconds, raw, single, batches or single, listing
    )


@contextmanager
def _servers(kind: str) -> Iterator[tuple[str, Any]]:
    """URL of an empty directory, and the server that has it; None for a file."""
    if kind == "embedded":
        with tempfile.TemporaryDirectory(prefix="dir-") as folder:
            yield f"embedded://{folder}/benchmark", None
        return
    if kind == KUBERNETES:
        sys.path.insert(0, str(CONTROL_PLANE))
        from control_plane import create_control_plane
        from entrepot_operator import crds

        with create_control_plane() as plane:
            plane.install(crds.definitions())
            yield f"kubernetes://{plane.namespace('stores')}/benchmark?kubeconfig={plane.kubeconfig}", plane
        return
    sys.path.insert(0, str(SERVERS))
    from directory_servers import running

    with running(kind, test=False) as server:
        yield server.url("benchmark"), server


@contextmanager
def _watched(directory: Directory) -> Iterator[None]:
    """A thread watches the instances, as in a gateway."""
    watch = directory.watch()
    first = threading.Event()

    def follow() -> None:
        while not watch.closed:
            watch.wait(1.0)
            first.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    first.wait(60.0)
    try:
        yield
    finally:
        watch.close()
        thread.join(60.0)


def _raw(kind: str, server: Any, directory: Directory) -> Callable[[], object]:
    """A round trip in which the server does nothing."""
    if kind == "etcd":
        import urllib3

        pool = urllib3.HTTPConnectionPool("127.0.0.1", server.port)
        return lambda: pool.urlopen("GET", "/version", retries=False).data
    if kind == "redis":
        import redis

        return redis.Redis("127.0.0.1", server.port).ping
    if kind == KUBERNETES:
        return partial(server.request, "GET", "/version")
    return lambda: directory._backend.read([b"none"])


def _space(kind: str, url: str, server: Any) -> int:
    if kind == "embedded":
        path = Path(url.removeprefix("embedded://"))
        return sum(file.stat().st_size for file in path.parent.iterdir())
    if kind == "redis":
        import redis

        info: Any = redis.Redis("127.0.0.1", server.port).info("memory")
        return int(info["used_memory"])
    if kind == KUBERNETES:  # the resources as the API server stores them: as JSON
        return sum(len(json.dumps(item)) for item in server.listed("/apis/entrepot.dev/v1alpha1/directoryshards"))
    import urllib3

    # etcd writes to its file ten times a second, or every 10,000 operations.
    address = f"http://127.0.0.1:{server.port}/v3/maintenance/status"
    end = time.monotonic() + 1.0
    size = 0
    while time.monotonic() < end:
        size = int(urllib3.request("POST", address, body=b"{}").json()["dbSizeInUse"])
        time.sleep(0.2)
    return size


def _memory(server: Any) -> int:
    if server is None:
        return 0
    pid = server.pids["apiserver"] if hasattr(server, "pids") else server.pid
    text = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
    return int(text.split()[1]) * os.sysconf("SC_PAGESIZE")


def _look_up(directory: Directory, oids: Sequence[bytes]) -> None:
    assert all(len(places.entries) == 1 for places in directory.places(oids))


def _list(directory: Directory, count: int) -> None:
    seen = 0
    after: bytes | None = b""
    while after is not None and seen < count:
        page = directory.list_objects(after=after, limit=10_000)
        seen, after = seen + len(page.entries), page.next
    assert seen >= count


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _percentiles(values: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(values):.2f} / {1e3 * _quantile(values, 0.99):.2f}"


def _verdict(reached: bool) -> str:
    return "reached" if reached else "missed"
