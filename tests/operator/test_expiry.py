"""Objects of a lost node: they no longer count, are then marked, and finally removed."""

from __future__ import annotations

from typing import Any

import pytest
from entrepot.errors import VersionMismatch
from entrepot.ids import ObjectID
from entrepot_io.cluster.objects import Condition, LocalObject, lease_name, lease_path, resource_path
from entrepot_io.cluster.places import read_cluster
from entrepot_operator.publishing.bounds import Bounds
from entrepot_operator.publishing.cluster import Shelf
from entrepot_operator.publishing.expiry import sweep
from entrepot_operator.publishing.observing import Origin

A, B = ObjectID("aa" * 20), ObjectID("bb" * 20)


def publish(server: Any, node: str, oid: ObjectID = A, count: int = 100) -> tuple[Shelf, LocalObject]:
    """Publish one object of one node, as a publisher does."""
    shelf = Shelf(server.api(), "stores", Origin(node, "main"), Bounds())
    shelf.renew("0f" * 16)
    one = LocalObject(
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
    shelf.apply(one)
    shelf.tell(one, one)
    return shelf, one


def test_only_nodes_count_that_were_heard_of(server: Any) -> None:
    publish(server, "node-a")
    server.pass_time(40)
    publish(server, "node-b", count=50)
    assert read_cluster(server.api()).objects == {str(A): {"node-a": 100, "node-b": 50}}
    server.pass_time(30)
    places = read_cluster(server.api())
    assert places.objects == {str(A): {"node-b": 50}}
    assert places.expired == ["node-a"]
    assert places.named("orders") == A


def test_an_object_without_its_lease_does_not_count(server: Any) -> None:
    publish(server, "node-a")
    del server.resources[lease_path("stores", lease_name("main", "node-a"))]
    assert read_cluster(server.api()).objects == {str(A): {}}


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"state": "Lost"}},
        {"status": {"conditions": [{"type": "Available", "status": "False", "reason": "x", "message": ""}]}},
        {"metadata": {"deletionTimestamp": "2030-01-01T12:00:00Z"}},
    ],
)
def test_an_object_that_is_lost_or_going_does_not_count(server: Any, change: dict[str, Any]) -> None:
    _, one = publish(server, "node-a")
    resource = server.resources[resource_path("localobjects", "stores", one.name)]
    for part, said in change.items():
        resource[part] = {**resource[part], **said}
    assert read_cluster(server.api()).objects == {str(A): {}}


def test_a_sweep_marks_first_and_removes_after_the_grace(server: Any) -> None:
    publish(server, "node-a")
    publish(server, "node-b", B)
    assert not sweep(server.api()).mark
    server.pass_time(61)
    publish(server, "node-b", B)  # its lease is renewed
    assert [one.node for _, one in sweep(server.api(), grace=100).mark] == ["node-a"]
    (marked,) = [one for one in server.of("localobjects").values() if one["spec"]["node"] == "node-a"]
    (condition,) = marked["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "StoreLost")
    assert condition["lastTransitionTime"] == "2030-01-01T12:01:01Z"
    assert not sweep(server.api(), grace=100).mark  # marking happens only once
    server.pass_time(100)
    publish(server, "node-b", B)
    assert [name for _, name, _ in sweep(server.api(), grace=100).leases] == [lease_name("main", "node-a")]
    server.collect_garbage()
    assert [one["spec"]["node"] for one in server.of("localobjects").values()] == ["node-b"]


def test_a_store_that_is_back_in_the_last_moment_keeps_its_objects(server: Any) -> None:
    publish(server, "node-a")
    server.pass_time(10_000)
    path = lease_path("stores", lease_name("main", "node-a"))

    def renewed_meanwhile(method: str, asked: str, _: Any) -> None:
        if method == "DELETE" and asked == path:
            server.resources[path]["metadata"]["resourceVersion"] = "renewed"

    server.refuse = renewed_meanwhile
    sweep(server.api())
    assert path in server.resources


def test_what_has_no_lease_is_removed_after_the_grace(server: Any) -> None:
    publish(server, "node-a")
    del server.resources[lease_path("stores", lease_name("main", "node-a"))]
    assert not sweep(server.api()).orphans
    assert len(server.of("localobjects")) == 1
    server.pass_time(601)
    assert len(sweep(server.api()).orphans) == 1
    assert not server.of("localobjects")


def test_a_returning_publisher_takes_the_mark_off(server: Any) -> None:
    shelf, one = publish(server, "node-a")
    server.pass_time(61)
    sweep(server.api())
    shelf.read()  # learns the server's time, which has jumped
    assert not shelf.renew("0f" * 16)
    (known,) = shelf.read().values()
    assert isinstance(known, LocalObject)
    assert known.available is not None
    assert known.available.reason == "StoreLost"
    shelf.tell(one, known)
    assert read_cluster(server.api()).objects == {str(A): {"node-a": 100}}


@pytest.mark.parametrize(
    ("group", "match"),
    [
        (None, "no resources of entrepot.dev: install them, 'entrepot crds"),
        ({"versions": [{"version": "v2"}]}, "serves entrepot.dev in v2, and this installation speaks v1alpha1"),
    ],
)
def test_crds_that_are_missing_or_of_another_version_are_named(server: Any, group: Any, match: str) -> None:
    if group is not None:
        server.put("/apis/entrepot.dev", group)
    server.refuse = lambda method, path, _: (404, "no such resource") if "localobjects" in path else None
    with pytest.raises(VersionMismatch, match=match):
        read_cluster(server.api())
