"""A real API server accepts the CRDs, enforces their rules, stores what publishers write, and garbage-collects it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.ids import ObjectID
from entrepot_operator.controller.garbage_collection import collect_garbage
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from entrepot_operator.kubernetes.errors import ClusterRefused
from entrepot_operator.kubernetes.locations import read_cluster_locations
from entrepot_operator.kubernetes.objects import API_VERSION, lease_name, lease_path, resource_path
from entrepot_operator.publisher.limits import Limits
from entrepot_operator.publisher.main import Publisher
from entrepot_operator.publisher.snapshot import PublisherIdentity

A = ObjectID("aa" * 20)
ME = "entrepot-tests"


@pytest.fixture(scope="module")
def api(entrepot_cluster: Any) -> Iterator[Api]:
    """The project's own client, connected to the cluster with the CRDs."""
    running = Api(find(str(entrepot_cluster.kubeconfig)))
    yield running
    running.close()


@pytest.fixture
def namespace(entrepot_cluster: Any) -> str:
    """A namespace for this test."""
    return str(entrepot_cluster.namespace())


def local(**changes: Any) -> dict[str, Any]:
    spec = {
        "objectID": str(A),
        "node": "node-a",
        "store": "main",
        "lease": "l",
        "instance": "0f" * 16,
        "generation": 1,
        "bytes": 5,
        "scope": "s",
        "session": "",
        **changes,
    }
    name = f"{spec['objectID']}-0123456789"
    return {"apiVersion": API_VERSION, "kind": "LocalObject", "metadata": {"name": name}, "spec": spec}


def store(**changes: Any) -> dict[str, Any]:
    spec = {"image": "entrepot:1", "capacity": "8Gi", **changes}
    return {"apiVersion": API_VERSION, "kind": "Store", "metadata": {"name": "main"}, "spec": spec}


def collection(**changes: Any) -> dict[str, Any]:
    spec = {
        "objectID": str(A),
        "memberCount": 1,
        "bytes": 5,
        "scope": "s",
        "session": "",
        "members": [str(A)],
        **changes,
    }
    return {"apiVersion": API_VERSION, "kind": "GlobalObject", "metadata": {"name": str(A)}, "spec": spec}


def apply(api: Api, namespace: str, manifest: dict[str, Any]) -> dict[str, Any]:
    plural = {"LocalObject": "localobjects", "GlobalObject": "globalobjects", "Store": "stores"}[manifest["kind"]]
    return api.apply(resource_path(plural, namespace, manifest["metadata"]["name"]), manifest, ME)


@pytest.mark.parametrize(
    ("first", "second", "match"),
    [
        (None, local(bytes=-1), "bytes"),
        (None, local(objectID="AA" * 20), "objectID"),
        (None, local(collection={"members": 1}, memberOf={"objectID": str(A), "index": 0}), "cannot be a member of"),
        (None, {**local(), "metadata": {"name": "another"}}, "the name must begin with"),
        (local(), local(node="node-b"), "node is immutable"),
        (local(), local(store="other"), "store is immutable"),
        (None, collection(memberCount=2), "members must list all members"),
        (collection(), collection(scope="t"), "the same session and scope"),
        (None, store(capacity="much"), "capacity must be a quantity"),
        (None, store(capacity="1Mi"), "above 16Mi"),
        (None, store(capacity=5), "above 16Mi"),
        (store(), store(runAsUser=5), "runAsUser is immutable"),
        (None, store(spill={"folder": "/run/entrepot"}), "must differ from the socket folder"),
        (None, store(tolerations=[{"value": "x"}]), "operator Exists"),
    ],
)
def test_the_rules_are_enforced(
    api: Api, namespace: str, first: dict[str, Any] | None, second: dict[str, Any], match: str
) -> None:
    if first is not None:
        apply(api, namespace, first)
    with pytest.raises(ClusterRefused, match=match) as refusal:
        apply(api, namespace, second)
    assert refusal.value.status == 422


def test_a_store_gets_its_defaults(api: Api, namespace: str) -> None:
    created = apply(api, namespace, store(capacity=1 << 33))
    assert created["spec"]["publish"]["maxObjects"] == 1000
    assert created["spec"]["socketFolder"] == "/run/entrepot"


def test_objects_are_selected_by_their_fields(api: Api, namespace: str) -> None:
    apply(api, namespace, local())
    apply(api, namespace, local(objectID="bb" * 20, node="node-b"))
    path = resource_path("localobjects", namespace)
    assert len(api.read_all(path, fields="spec.node=node-b")) == 1
    assert len(api.read_all(path, fields=f"spec.objectID={A}")) == 1


def test_what_a_store_holds_is_published_followed_and_collected(
    api: Api, namespace: str, daemon: Any, wait_until: Callable[..., None]
) -> None:
    identity = PublisherIdentity("node-a", "main")
    publisher = Publisher(api, lambda: entrepot.connect(daemon.address), identity, namespace, Limits(burst=1000))
    path = resource_path("localobjects", namespace)
    with entrepot.connect(daemon.address) as kept:
        oid = kept.put(np.zeros(100_000, np.uint8), name="orders")
        builder = kept.collection("shards")
        for index in range(3):
            builder.append(np.full(10_000, index))
        shards = builder.seal()
        publisher.publish_all(60)
        locations = read_cluster_locations(api, namespace)
        assert locations.objects[str(oid)] == {"node-a": 100_000}
        assert locations.members(shards.id) == list(shards.ids)
        assert locations.find_by_name("orders") == oid
        kept.delete(oid)
        kept.set_name("a first name", shards.id)
        kept.set_name("splinters", shards.id)
        publisher.publish_all(60)
        again = Publisher(api, lambda: entrepot.connect(daemon.address), identity, namespace, Limits(burst=1000))
        assert again.publish_all(60).written == 0  # the API's content, including the order, equals the desired state
        again.close()
        locations = read_cluster_locations(api, namespace)
        assert str(oid) not in locations.objects
        assert locations.find_by_name("splinters") == shards.id
    publisher.close()
    assert api.delete(lease_path(namespace, lease_name("main", "node-a")))
    wait_until(lambda: not api.read_all(path), "the garbage collector to remove the objects")


def test_a_lost_store_is_marked_and_its_return_takes_the_mark_off(
    api: Api, namespace: str, daemon: Any, wait_until: Callable[..., None]
) -> None:
    limits = Limits(burst=1000, lease_seconds=10)
    publisher = Publisher(
        api, lambda: entrepot.connect(daemon.address), PublisherIdentity("node-a", "main"), namespace, limits
    )
    with entrepot.connect(daemon.address) as kept:
        oid = kept.put(np.zeros(1000), name="orders")
        publisher.publish_all(60)
        wait_until(lambda: read_cluster_locations(api, namespace).objects == {str(oid): {}}, "the lease to run out")
        assert len(collect_garbage(api, namespace).to_mark) == 1
        (resource,) = api.read_all(resource_path("localobjects", namespace))
        assert resource["status"]["conditions"][0]["reason"] == "StoreLost"
        publisher.publish_all(60)
        assert read_cluster_locations(api, namespace).objects == {str(oid): {"node-a": 8000}}
    publisher.close()
