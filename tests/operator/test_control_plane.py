"""A real API server accepts the CRDs, enforces their rules, stores what publishers write, and garbage-collects it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.ids import ObjectID
from entrepot_io.cluster.access import find
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import ClusterRefused
from entrepot_io.cluster.objects import API_VERSION, lease_name, lease_path, resource_path
from entrepot_io.cluster.places import read_cluster
from entrepot_operator.publishing.bounds import Bounds
from entrepot_operator.publishing.expiry import sweep
from entrepot_operator.publishing.observing import Origin
from entrepot_operator.publishing.publisher import Publisher

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
        (None, local(collection={"members": 1}, memberOf={"objectID": str(A), "index": 0}), "no member of another"),
        (None, {**local(), "metadata": {"name": "another"}}, "the name begins with"),
        (local(), local(node="node-b"), "node never changes"),
        (local(), local(store="other"), "store never changes"),
        (None, collection(memberCount=2), "members are all there"),
        (collection(), collection(scope="t"), "one session of one scope"),
        (None, store(capacity="much"), "capacity is a quantity"),
        (None, store(capacity="1Mi"), "above 16Mi"),
        (None, store(capacity=5), "above 16Mi"),
        (store(), store(runAsUser=5), "runAsUser never changes"),
        (None, store(spill={"folder": "/run/entrepot"}), "another one than the socket's"),
        (None, store(tolerations=[{"value": "x"}]), "operator Exists"),
    ],
)
def test_the_rules_are_enforced(
    api: Api, namespace: str, first: dict[str, Any] | None, second: dict[str, Any], match: str
) -> None:
    if first is not None:
        apply(api, namespace, first)
    with pytest.raises(ClusterRefused, match=match) as told:
        apply(api, namespace, second)
    assert told.value.status == 422


def test_a_store_gets_its_defaults(api: Api, namespace: str) -> None:
    made = apply(api, namespace, store(capacity=1 << 33))
    assert made["spec"]["publish"]["maxObjects"] == 1000
    assert made["spec"]["socketFolder"] == "/run/entrepot"


def test_objects_are_selected_by_their_fields(api: Api, namespace: str) -> None:
    apply(api, namespace, local())
    apply(api, namespace, local(objectID="bb" * 20, node="node-b"))
    path = resource_path("localobjects", namespace)
    assert len(api.read_all(path, fields="spec.node=node-b")) == 1
    assert len(api.read_all(path, fields=f"spec.objectID={A}")) == 1


def test_what_a_store_holds_is_published_followed_and_collected(
    api: Api, namespace: str, daemon: Any, wait_until: Callable[..., None]
) -> None:
    origin = Origin("node-a", "main")
    publisher = Publisher(api, lambda: entrepot.connect(daemon.address), origin, namespace, Bounds(burst=1000))
    path = resource_path("localobjects", namespace)
    with entrepot.connect(daemon.address) as kept:
        oid = kept.put(np.zeros(100_000, np.uint8), name="orders")
        builder = kept.collection("shards")
        for index in range(3):
            builder.append(np.full(10_000, index))
        shards = builder.seal()
        publisher.publish_all(60)
        places = read_cluster(api, namespace)
        assert places.objects[str(oid)] == {"node-a": 100_000}
        assert places.members(shards.id) == list(shards.ids)
        assert places.named("orders") == oid
        kept.delete(oid)
        kept.set_name("a first name", shards.id)
        kept.set_name("splinters", shards.id)
        publisher.publish_all(60)
        again = Publisher(api, lambda: entrepot.connect(daemon.address), origin, namespace, Bounds(burst=1000))
        assert again.publish_all(60).written == 0  # the API's content, including the order, equals the desired state
        again.close()
        places = read_cluster(api, namespace)
        assert str(oid) not in places.objects
        assert places.named("splinters") == shards.id
    publisher.close()
    assert api.delete(lease_path(namespace, lease_name("main", "node-a")))
    wait_until(lambda: not api.read_all(path), "the garbage collector to remove the objects")


def test_a_lost_store_is_marked_and_its_return_takes_the_mark_off(
    api: Api, namespace: str, daemon: Any, wait_until: Callable[..., None]
) -> None:
    bounds = Bounds(burst=1000, lease_seconds=10)
    publisher = Publisher(api, lambda: entrepot.connect(daemon.address), Origin("node-a", "main"), namespace, bounds)
    with entrepot.connect(daemon.address) as kept:
        oid = kept.put(np.zeros(1000), name="orders")
        publisher.publish_all(60)
        wait_until(lambda: read_cluster(api, namespace).objects == {str(oid): {}}, "the lease to run out")
        assert len(sweep(api, namespace).mark) == 1
        (one,) = api.read_all(resource_path("localobjects", namespace))
        assert one["status"]["conditions"][0]["reason"] == "StoreLost"
        publisher.publish_all(60)
        assert read_cluster(api, namespace).objects == {str(oid): {"node-a": 8000}}
    publisher.close()
