"""Objects of a lost node: they no longer count, are then marked, and finally removed."""

from __future__ import annotations

from typing import Any

import pytest
from entrepot.errors import VersionMismatch
from entrepot.ids import ObjectID
from entrepot_operator.controller.garbage_collection import collect_garbage
from entrepot_operator.kubernetes.locations import read_cluster_locations
from entrepot_operator.kubernetes.objects import Condition, LocalObject, lease_name, lease_path, resource_path
from entrepot_operator.publisher.limits import Limits
from entrepot_operator.publisher.published_set import PublishedSet
from entrepot_operator.publisher.snapshot import PublisherIdentity

A, B = ObjectID("aa" * 20), ObjectID("bb" * 20)


def publish(server: Any, node: str, oid: ObjectID = A, count: int = 100) -> tuple[PublishedSet, LocalObject]:
    """Publish one object of one node, as a publisher does."""
    published_set = PublishedSet(server.api(), "stores", PublisherIdentity(node, "main"), Limits())
    published_set.renew("0f" * 16)
    published = LocalObject(
        object_id=oid,
        node=node,
        store="main",
        lease=lease_name("main", node),
        instance="0f" * 16,
        generation=1,
        bytes=count,
        scope="default",
        session="",
        names=("orders",),
        state="InMemory",
        available=Condition("Available", True, "InMemory", "it is there"),
    )
    published_set.apply(published)
    published_set.write_status(published, published)
    return published_set, published


def test_only_nodes_count_that_were_heard_of(server: Any) -> None:
    publish(server, "node-a")
    server.pass_time(40)
    publish(server, "node-b", count=50)
    assert read_cluster_locations(server.api()).objects == {str(A): {"node-a": 100, "node-b": 50}}
    server.pass_time(30)
    locations = read_cluster_locations(server.api())
    assert locations.objects == {str(A): {"node-b": 50}}
    assert locations.expired_nodes == ["node-a"]
    assert locations.find_by_name("orders") == A


def test_an_object_without_its_lease_does_not_count(server: Any) -> None:
    publish(server, "node-a")
    del server.resources[lease_path("stores", lease_name("main", "node-a"))]
    assert read_cluster_locations(server.api()).objects == {str(A): {}}


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"state": "Lost"}},
        {"status": {"conditions": [{"type": "Available", "status": "False", "reason": "x", "message": ""}]}},
        {"metadata": {"deletionTimestamp": "2030-01-01T12:00:00Z"}},
    ],
)
def test_an_object_that_is_lost_or_going_does_not_count(server: Any, change: dict[str, Any]) -> None:
    _, published = publish(server, "node-a")
    resource = server.resources[resource_path("localobjects", "stores", published.name)]
    for part, content in change.items():
        resource[part] = {**resource[part], **content}
    assert read_cluster_locations(server.api()).objects == {str(A): {}}


def test_a_sweep_marks_first_and_removes_after_the_grace(server: Any) -> None:
    publish(server, "node-a")
    publish(server, "node-b", B)
    assert not collect_garbage(server.api()).to_mark
    server.pass_time(61)
    publish(server, "node-b", B)  # its lease is renewed
    assert [item.node for _, item in collect_garbage(server.api(), grace=100).to_mark] == ["node-a"]
    (marked,) = [item for item in server.of("localobjects").values() if item["spec"]["node"] == "node-a"]
    (condition,) = marked["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "StoreLost")
    assert condition["lastTransitionTime"] == "2030-01-01T12:01:01Z"
    assert not collect_garbage(server.api(), grace=100).to_mark  # marking happens only once
    server.pass_time(100)
    publish(server, "node-b", B)
    assert [name for _, name, _ in collect_garbage(server.api(), grace=100).leases] == [lease_name("main", "node-a")]
    server.collect_garbage()
    assert [item["spec"]["node"] for item in server.of("localobjects").values()] == ["node-b"]


def test_a_store_that_is_back_in_the_last_moment_keeps_its_objects(server: Any) -> None:
    publish(server, "node-a")
    server.pass_time(10_000)
    path = lease_path("stores", lease_name("main", "node-a"))

    def renewed_meanwhile(method: str, requested_path: str, _: Any) -> None:
        if method == "DELETE" and requested_path == path:
            server.resources[path]["metadata"]["resourceVersion"] = "renewed"

    server.refuse = renewed_meanwhile
    collect_garbage(server.api())
    assert path in server.resources


def test_what_has_no_lease_is_removed_after_the_grace(server: Any) -> None:
    publish(server, "node-a")
    del server.resources[lease_path("stores", lease_name("main", "node-a"))]
    assert not collect_garbage(server.api()).orphans
    assert len(server.of("localobjects")) == 1
    server.pass_time(601)
    assert len(collect_garbage(server.api()).orphans) == 1
    assert not server.of("localobjects")


def test_a_returning_publisher_takes_the_mark_off(server: Any) -> None:
    published_set, published = publish(server, "node-a")
    server.pass_time(61)
    collect_garbage(server.api())
    published_set.read()  # learns the server's time, which has jumped
    assert not published_set.renew("0f" * 16)
    (entry,) = published_set.read().values()
    assert isinstance(entry, LocalObject)
    assert entry.available is not None
    assert entry.available.reason == "StoreLost"
    published_set.write_status(published, entry)
    assert read_cluster_locations(server.api()).objects == {str(A): {"node-a": 100}}


@pytest.mark.parametrize(
    ("group", "match"),
    [
        (None, "no resources of entrepot.dev: install them with 'entrepot crds"),
        ({"versions": [{"version": "v2"}]}, "serves entrepot.dev in v2, but this installation uses v1alpha1"),
    ],
)
def test_crds_that_are_missing_or_of_another_version_are_named(server: Any, group: Any, match: str) -> None:
    if group is not None:
        server.put("/apis/entrepot.dev", group)
    server.refuse = lambda method, path, _: (404, "no such resource") if "localobjects" in path else None
    with pytest.raises(VersionMismatch, match=match):
        read_cluster_locations(server.api())


def test_a_sweep_writes_so_much_and_the_next_ones_the_rest(server: Any) -> None:
    for index, node in enumerate(("node-a", "node-b", "node-c", "node-d")):
        publish(server, node, ObjectID(f"{index:040x}"))
    for node in ("node-a", "node-b"):  # their objects are orphans
        del server.resources[lease_path("stores", lease_name("main", node))]
    server.pass_time(700)

    def sweep() -> int:
        server.requests.clear()
        collect_garbage(server.api(), max_writes=3)
        return sum(method != "GET" for method, _ in server.requests)

    assert sweep() == 3  # both expired leases, and one of the two orphans
    assert server.of("leases") == {}
    assert len(server.of("localobjects")) == 3
    assert sweep() == 3
    assert server.of("localobjects") == {}
