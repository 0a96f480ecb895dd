"""The publisher between a real store and an API server: what it publishes, what it omits, what it survives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.errors import AccessDenied, StoreUnavailable
from entrepot_operator.kubernetes.errors import ClusterUnavailable
from entrepot_operator.kubernetes.locations import read_cluster_locations
from entrepot_operator.kubernetes.objects import lease_name
from entrepot_operator.publisher.limits import Limits
from entrepot_operator.publisher.main import Publisher
from entrepot_operator.publisher.snapshot import PublisherIdentity

IDENTITY = PublisherIdentity("node-a", "main")
FAST = Limits(burst=1000, writes_per_second=1000)
Make = Callable[..., Publisher]


@pytest.fixture
def lines() -> list[str]:
    """Messages of the publisher."""
    return []


@pytest.fixture
def publisher(daemon: Any, server: Any, lines: list[str]) -> Iterator[Make]:
    """``publisher(limits, identity=)``: a publisher for the test's store."""
    publishers: list[Publisher] = []

    def make(limits: Limits = FAST, identity: PublisherIdentity = IDENTITY, **options: Any) -> Publisher:
        api = server.api(patience=0.5)
        publishers.append(
            Publisher(
                api,
                lambda: entrepot.connect(daemon.address),
                identity,
                "stores",
                limits,
                print_message=lines.append,
                **options,
            )
        )
        return publishers[-1]

    yield make
    for each in publishers:
        each.close()


def kilobytes(count: int) -> Any:
    """A value with a payload of this many kilobytes; small payloads are part of the metadata and do not count."""
    return np.zeros(1000 * count, np.uint8)


def specs(server: Any, plural: str = "localobjects") -> dict[str, dict[str, Any]]:
    return {resource["spec"]["objectID"]: resource["spec"] for resource in server.of(plural).values()}


def writes(server: Any) -> list[tuple[str, str]]:
    return [request for request in server.requests if request[0] != "GET" and "/leases/" not in request[1]]


def test_named_objects_are_published_and_nothing_else(daemon: Any, server: Any, publisher: Make) -> None:
    with entrepot.connect(daemon.address, scope="airflow", session="run 1") as store:
        orders = store.put(b"x" * 5000, name="orders")
        store.put(b"nameless")
        store.put(b"lineage", name="entrepot.lineage/1")
        publisher().publish_all(20)
        published = specs(server)
        assert set(published) == {str(orders)}
        spec = published[str(orders)]
        assert spec == {
            "objectID": str(orders),
            "node": "node-a",
            "store": "main",
            "lease": lease_name("main", "node-a"),
            "instance": store.instance_id,
            "generation": store.generation_of(orders),
            "bytes": 5000,
            "scope": "airflow",
            "session": "run 1",
            "type": "python.bytes",
            "names": ["orders"],
        }
    (resource,) = server.of("localobjects").values()
    assert resource["status"]["state"] == "InMemory"
    assert resource["status"]["conditions"][0]["status"] == "True"
    assert resource["status"]["conditions"][0]["lastTransitionTime"] == "2030-01-01T12:00:00Z"
    (lease,) = server.of("leases").values()
    assert resource["metadata"]["ownerReferences"][0]["uid"] == lease["metadata"]["uid"]
    assert lease["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert lease["spec"]["leaseDurationSeconds"] == 60


def test_objects_of_durable_sessions_need_no_name(daemon: Any, server: Any, publisher: Make, tmp_path: Any) -> None:
    pytest.importorskip("fsspec")
    with entrepot.connect(daemon.address, session="kept", durable=f"file://{tmp_path}") as store:
        oid = store.put(b"x" * 100)
        publisher().publish_all(20)
        assert specs(server)[str(oid)]["persisted"] is True


def test_a_collection_is_published_with_its_members(daemon: Any, server: Any, publisher: Make) -> None:
    with entrepot.connect(daemon.address) as store:
        builder = store.collection("shards")
        for index in range(5):
            builder.append(np.full(1000, index))
        collection = builder.seal()
        publisher().publish_all(20)
        (shared,) = server.of("globalobjects").values()
        assert shared["metadata"]["name"] == str(collection.id)
        assert shared["spec"]["members"] == [str(object_id) for object_id in collection.ids]
        assert shared["spec"]["memberCount"] == 5
        assert shared["status"]["conditions"][0]["reason"] == "AllMembers"
        published = specs(server)
        assert set(published) == {str(collection.id), *map(str, collection.ids)}
        assert published[str(collection.id)]["bytes"] == sum(
            published[str(object_id)]["bytes"] for object_id in collection.ids
        )
        assert published[str(collection.ids[3])]["memberOf"] == {"objectID": str(collection.id), "index": 3}


def test_the_second_step_writes_nothing_and_changes_are_followed(daemon: Any, server: Any, publisher: Make) -> None:
    running = publisher()
    with entrepot.connect(daemon.address) as store:
        first, second = store.put(b"1" * 100, name="one"), store.put(b"2" * 50, name="two")
        running.publish_all(20)
        server.requests.clear()
        assert running.step().written == 0
        assert writes(server) == []
        store.delete(first)
        store.set_name("deux", second)
        third = store.put(b"3" * 10, name="three")
        running.publish_all(20)
        published = specs(server)
        assert set(published) == {str(second), str(third)}
        assert published[str(second)]["names"] == ["deux", "two"]
        # One request per change, plus one for the new object's status.
        assert len(writes(server)) == 4


def test_the_largest_are_published_where_there_are_too_many(
    daemon: Any, server: Any, publisher: Make, lines: list[str]
) -> None:
    with entrepot.connect(daemon.address) as store:
        ids = [store.put(kilobytes(size), name=f"n{size}") for size in range(100, 120)]
        report = publisher(Limits(burst=1000, max_objects=5, min_bytes=118_000)).publish_all(20)
        assert set(specs(server)) == {str(object_id) for object_id in ids[-2:]}
        assert report.left_out == 18
        running = publisher(Limits(burst=1000, max_objects=5))
        running.publish_all(20)
        assert set(specs(server)) == {str(object_id) for object_id in ids[-5:]}
    assert any("the limit is 5 per node" in line for line in lines)


def test_too_many_members_are_left_out_with_a_warning(daemon: Any, server: Any, publisher: Make) -> None:
    with entrepot.connect(daemon.address) as store:
        builder = store.collection("shards")
        for index in range(6):
            builder.append(index)
        builder.seal()
        publisher(Limits(burst=1000, max_members=5)).publish_all(20)
    (shared,) = server.of("globalobjects").values()
    assert "members" not in shared["spec"]
    assert shared["spec"]["memberCount"] == 6
    assert shared["status"]["conditions"][0] | {"message": ""} == {
        "type": "Complete",
        "status": "False",
        "reason": "TooManyMembers",
        "message": "",
        "lastTransitionTime": "2030-01-01T12:00:00Z",
        "observedGeneration": 1,
    }


def test_writes_are_paced_and_the_largest_come_first(daemon: Any, server: Any, publisher: Make) -> None:
    now = [0.0]
    running = publisher(Limits(burst=3, writes_per_second=2), clock=lambda: now[0])
    with entrepot.connect(daemon.address) as store:
        ids = [store.put(kilobytes(size), name=f"n{size}") for size in range(100, 110)]
        report = running.step()
        assert (report.written, report.waiting) == (3, 7)
        assert set(specs(server)) == {str(object_id) for object_id in ids[-3:]}
        assert running.step().written == 0
        now[0] += 1.0
        assert running.step().written == 2
        now[0] += 3600.0
        assert running.step().written == 3  # a long pause saves up no more than one burst


def test_a_restarted_publisher_adopts_what_is_published(daemon: Any, server: Any, publisher: Make) -> None:
    with entrepot.connect(daemon.address) as store:
        kept, deleted = store.put(b"1", name="one"), store.put(b"2", name="two")
        publisher().publish_all(20)
        store.delete(deleted)
        server.requests.clear()
        publisher().publish_all(20)
        assert set(specs(server)) == {str(kept)}
        assert [method for method, _ in writes(server)] == ["DELETE"]


def test_another_nodes_objects_are_left_alone(daemon: Any, server: Any, publisher: Make) -> None:
    with entrepot.connect(daemon.address) as store:
        builder = store.collection("c")
        builder.append(1)
        collection = builder.seal()
        mine, theirs = publisher(), publisher(identity=PublisherIdentity("node-b", "main"))
        mine.publish_all(20)
        theirs.publish_all(20)
        assert len(server.of("localobjects")) == 4
        (shared,) = server.of("globalobjects").values()
        assert len(shared["metadata"]["ownerReferences"]) == 2
        store.delete(collection.id)
        mine.publish_all(20)
        assert {resource["spec"]["node"] for resource in server.of("localobjects").values()} == {"node-b"}
        (shared,) = server.of("globalobjects").values()
        assert [resource["name"] for resource in shared["metadata"]["ownerReferences"]] == [
            lease_name("main", "node-b")
        ]
        theirs.publish_all(20)
        assert not server.of("globalobjects")


def test_a_refused_object_is_reported_once_and_does_not_stop_the_others(
    daemon: Any, server: Any, publisher: Make, lines: list[str]
) -> None:
    running = publisher()
    with entrepot.connect(daemon.address) as store:
        bad, good = store.put(b"1" * 10, name="bad"), store.put(b"2", name="good")
        server.refuse = lambda method, path, _: (
            (422, "no such type") if method == "PATCH" and str(bad) in path else None
        )
        report = running.publish_all(20)
        assert report.refused == 1
        assert set(specs(server)) == {str(good)}
        server.requests.clear()
        running.step()
        assert writes(server) == []
        assert len([line for line in lines if "no such type" in line]) == 1
        server.refuse = lambda *_: None
        store.set_name("worse", bad)  # so that its resource differs from the refused one
        running.publish_all(20)
        assert set(specs(server)) == {str(good), str(bad)}


def test_no_permission_is_an_error_that_names_the_request(daemon: Any, server: Any, publisher: Make) -> None:
    server.refuse = lambda method, path, _: (403, "leases is forbidden") if "leases" in path else None
    with entrepot.connect(daemon.address) as store:
        store.put(b"1", name="one")
        with pytest.raises(AccessDenied, match=r"PATCH .*leases.*is forbidden.*Role"):
            publisher().step()


def test_without_permission_to_see_its_node_it_publishes_all_the_same(
    daemon: Any, server: Any, publisher: Make
) -> None:
    server.refuse = lambda method, path, _: (403, "nodes is forbidden") if "/nodes/" in path else None
    with entrepot.connect(daemon.address) as store:
        store.put(b"1", name="one")
        publisher().publish_all(20)
    assert len(specs(server)) == 1
    (lease,) = server.of("leases").values()
    assert not lease["metadata"].get("ownerReferences")


def test_an_object_that_somebody_removed_comes_back(daemon: Any, server: Any, publisher: Make) -> None:
    running = publisher(Limits(burst=1000, resync_seconds=1), clock=iter(range(0, 100_000, 2)).__next__)
    with entrepot.connect(daemon.address) as store:
        store.put(b"1", name="one")
        running.publish_all(1000)
        for path in [path for path in server.resources if "localobjects" in path]:
            del server.resources[path]
        running.publish_all(1000)
        assert len(specs(server)) == 1


def test_a_lost_store_expires_and_its_return_is_published(
    daemon: Any, server: Any, publisher: Make, wait_until: Callable[..., None]
) -> None:
    running = publisher()
    with entrepot.connect(daemon.address) as store:
        oid = store.put(kilobytes(10), name="one")
        before = store.instance_id
        running.publish_all(20)
    assert read_cluster_locations(server.api()).objects == {str(oid): {"node-a": 10_000}}
    running.close()
    daemon.stop()
    renewals = len([request for request in server.requests if "/leases/" in request[1]])
    with pytest.raises(StoreUnavailable):
        running.step()
    assert len([request for request in server.requests if "/leases/" in request[1]]) == renewals
    server.pass_time(61)
    locations = read_cluster_locations(server.api())
    assert locations.objects == {str(oid): {}}
    assert locations.expired_nodes == ["node-a"]
    daemon.start()
    with entrepot.connect(daemon.address) as store:
        assert store.instance_id != before
        again = store.put(kilobytes(20), name="two")
        publisher().publish_all(20)
    assert read_cluster_locations(server.api()).objects == {str(again): {"node-a": 20_000}}


def test_between_far_looks_the_lease_is_renewed_while_the_store_answers(
    daemon: Any, server: Any, publisher: Make
) -> None:
    now = [0.0]
    running = publisher(clock=lambda: now[0])
    with entrepot.connect(daemon.address) as store:
        store.put(b"1", name="one")
    running.publish_all(20)
    server.requests.clear()
    running.keep_alive()
    assert server.requests == []
    now[0] += 21
    running.keep_alive()
    assert [path.split("/")[-2] for _, path in server.requests] == ["leases"]
    now[0] += 21
    daemon.stop()
    with pytest.raises(StoreUnavailable):
        running.keep_alive()
    assert len(server.requests) == 1


def test_a_lease_that_was_removed_takes_its_objects_and_they_are_published_again(
    daemon: Any, server: Any, publisher: Make
) -> None:
    now = [0.0]
    running = publisher(clock=lambda: now[0])
    with entrepot.connect(daemon.address) as store:
        store.put(b"1", name="one")
        running.publish_all(20)
        for path in [path for path in server.resources if "/leases/" in path]:
            del server.resources[path]
        server.collect_garbage()
        assert not server.of("localobjects")
        now[0] += 30
        running.publish_all(20)
        server.collect_garbage()
        assert len(server.of("localobjects")) == 1


def test_it_runs_on_while_the_api_server_is_away(
    daemon: Any, server: Any, publisher: Make, lines: list[str], wait_until: Callable[..., None]
) -> None:
    running = publisher(Limits(scan_seconds=0.1))
    stop = threading.Event()
    server.refuse = lambda *_: (503, "the server is currently unable to handle the request")
    thread = threading.Thread(target=running.run, args=(stop,))
    thread.start()
    try:
        with entrepot.connect(daemon.address) as store:
            store.put(b"1", name="one")
            wait_until(lambda: any("503" in line for line in lines), "the failure to be reported")
            server.refuse = lambda *_: None
            wait_until(lambda: len(specs(server)) == 1, "the object to be published")
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


def test_publishing_once_gives_up_in_time(daemon: Any, publisher: Make) -> None:
    ticks = iter(range(0, 10_000, 5))
    running = publisher(Limits(burst=1, writes_per_second=0.1), clock=lambda: float(next(ticks)))
    with entrepot.connect(daemon.address) as store:
        for index in range(20):
            store.put(b"1", name=f"n{index}")
        with pytest.raises(ClusterUnavailable, match="changes still pending"):
            running.publish_all(20)
