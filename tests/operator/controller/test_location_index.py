"""The index of object locations: correct after any changes, small, and usable from several threads."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from entrepot_operator.controller.cache.location_index import LocationIndex
from entrepot_operator.kubernetes.objects import lease_name
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NOW = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
IDS = [f"{place:02x}" * 20 for place in range(1, 5)]
NODES = ["node-a", "node-b"]
MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def index(clock: Clock, make_lease: Callable[..., Any]) -> LocationIndex:
    """An index with two nodes whose stores' leases last a minute."""
    instance = LocationIndex(clock)
    instance.put_leases([make_lease(node) for node in NODES])
    return instance


def test_an_object_is_where_live_stores_have_it(
    index: LocationIndex, clock: Clock, make_object: Callable[..., Any], make_lease: Callable[..., Any]
) -> None:
    index.put_objects([make_object(IDS[0], "node-a", 100), make_object(IDS[0], "node-b", 50), make_object(IDS[1])])
    assert index.locations(IDS[:3]) == {IDS[0]: {"node-a": 100, "node-b": 50}, IDS[1]: {"node-a": 100}}
    clock.now += timedelta(seconds=60)
    assert index.locations(IDS[:1]) == {IDS[0]: {}}  # known, but lost
    renewed = make_lease("node-b", "2030-01-01T12:01:00.000000Z")
    assert index.change_lease(renewed)
    assert not index.change_lease(renewed)
    assert index.locations(IDS[:1]) == {IDS[0]: {"node-b": 50}}
    assert index.change_lease(renewed, gone=True)
    assert index.locations(IDS[:1]) == {IDS[0]: {}}


@pytest.mark.parametrize(
    "status",
    [
        {"state": "Lost"},
        {"conditions": [{"type": "Available", "status": "False", "reason": "StoreLost", "message": "m"}]},
    ],
)
def test_an_object_that_cannot_be_had_is_lost(
    index: LocationIndex, make_object: Callable[..., Any], status: dict[str, Any]
) -> None:
    index.change_object(make_object(IDS[0], **status))
    assert index.locations(IDS) == {IDS[0]: {}}
    index.change_object(make_object(IDS[0]))
    assert index.locations(IDS) == {IDS[0]: {"node-a": 100}}


def test_what_is_no_id_is_nowhere(index: LocationIndex) -> None:
    assert index.locations(["orders", "", "aa"]) == {}


def test_resources_of_another_version_are_counted_and_left_out(
    index: LocationIndex, make_object: Callable[..., Any]
) -> None:
    broken = make_object(IDS[0])
    del broken["spec"]["bytes"]
    index.put_objects([broken, make_object(IDS[1])])
    assert index.change_object(broken) is None
    assert list(index.locations(IDS)) == [IDS[1]]
    assert index.unreadable == 2


def test_it_is_synced_after_everything_was_read(clock: Clock) -> None:
    index = LocationIndex(clock)
    assert index.nodes() is None
    index.put_objects([])
    index.put_leases([])
    assert not index.synced
    index.put_nodes([])
    assert index.synced
    assert index.nodes() == {}


def test_a_list_that_breaks_off_changes_nothing(index: LocationIndex, make_object: Callable[..., Any]) -> None:
    def broken() -> Iterator[Any]:
        yield make_object(IDS[0])
        raise ConnectionError("gone")

    index.put_objects([make_object(IDS[1])])
    with pytest.raises(ConnectionError):
        index.put_objects(broken())
    assert list(index.locations(IDS)) == [IDS[1]]


def test_nodes_are_followed(index: LocationIndex) -> None:
    def node(name: str, **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": [{"key": "gpu"}]}, "status": {"x": 1}}

    index.put_nodes([node("node-a", zone="east")])
    before = index.nodes()
    assert before is not None
    assert not index.change_node(node("node-a", zone="east"))
    assert index.change_node(node("node-a", zone="west"))
    assert index.change_node(node("node-b"))
    assert before["node-a"].labels == {"zone": "east"}  # a mapping that a caller holds does not change
    after = index.nodes()
    assert after is not None
    assert (sorted(after), after["node-a"].labels) == (["node-a", "node-b"], {"zone": "west"})
    assert index.change_node(node("node-b"), gone=True)
    assert not index.change_node(node("node-b"), gone=True)


changes = st.lists(
    st.tuples(
        st.sampled_from(["object", "gone", "lease", "no lease", "time"]),
        st.sampled_from(IDS),
        st.sampled_from(NODES),
        st.integers(0, 100),
    ),
    max_size=40,
)


@given(changes)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_it_says_what_the_api_has_after_any_changes(
    make_object: Callable[..., Any], make_lease: Callable[..., Any], steps: list[tuple[str, str, str, int]]
) -> None:
    clock = Clock()
    index = LocationIndex(clock)
    published: dict[tuple[str, str], int] = {}
    ends: dict[str, datetime] = {}
    for what, oid, node, number in steps:
        if what == "object":
            index.change_object(make_object(oid, node, number))
            published[(oid, node)] = number
        elif what == "gone":
            index.change_object(make_object(oid, node, number), gone=True)
            published.pop((oid, node), None)
        elif what == "lease":
            index.change_lease(make_lease(node, clock.now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), number))
            ends[node] = clock.now + timedelta(seconds=number)
        elif what == "no lease":
            index.change_lease(make_lease(node), gone=True)
            ends.pop(node, None)
        else:
            clock.now += timedelta(seconds=number)
    live = {node for node in NODES if node in ends and clock.now < ends[node]}
    expected: dict[str, dict[str, int]] = {}
    for (oid, node), number in published.items():
        expected.setdefault(oid, {})
        if node in live:
            expected[oid][node] = number
    assert index.locations(IDS) == expected
    assert len(index) == len(expected)
    for node in NODES:
        count = sum(1 for _, where in published if where == node)
        assert index.published_count([lease_name("main", node)]) == (count if node in live else 0)
    fresh = LocationIndex(clock)
    fresh.put_leases([make_lease(node, (end - timedelta(seconds=9)).isoformat(), 9) for node, end in ends.items()])
    fresh.put_objects([make_object(oid, node, number) for (oid, node), number in published.items()])
    assert fresh.locations(IDS) == expected


# In a process of its own, so that what else this one holds or has to collect does not count.
MEASURE = """
import gc, json, sys, tracemalloc
from entrepot_operator.controller.cache.location_index import LocationIndex

index = LocationIndex()
with open(sys.argv[1]) as resources:
    tracemalloc.start()
    index.put_objects(json.loads(line) for line in resources)
    gc.collect()
    kept, peak = tracemalloc.get_traced_memory()
print(len(index), kept, peak)
"""


def test_it_is_small(make_object: Callable[..., Any], tmp_path: Path) -> None:
    """10,000 objects, each on two of a hundred nodes."""
    with (tmp_path / "resources").open("w") as file:
        for place in range(10_000):
            oid = f"{place:040x}"
            for node in (place % 100, (place + 1) % 100):
                file.write(json.dumps(make_object(oid, f"node-{node}", place)) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, file.name], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    count, kept, peak = map(int, done.stdout.split())
    assert count == 10_000
    assert kept < 10 * MIB
    assert peak < 20 * MIB


def test_several_threads_use_it(index: LocationIndex, make_object: Callable[..., Any]) -> None:
    index.put_objects([make_object(oid) for oid in IDS])
    stop = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not stop.is_set():
            located = index.locations(IDS)
            if not located.keys() <= set(IDS) or any(set(item) - {"node-a"} for item in located.values()):
                wrong.append(located)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for item in readers:
        item.start()
    for _ in range(300):
        for oid in IDS:
            index.change_object(make_object(oid), gone=True)
            index.change_object(make_object(oid))
    stop.set()
    for item in readers:
        item.join()
    assert not wrong
    assert index.published_count([lease_name("main", "node-a")]) == len(IDS)
