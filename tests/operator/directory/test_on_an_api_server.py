"""What is particular to a directory in Kubernetes, on a real API server; tests/cluster/directory has what all share."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from entrepot.errors import AccessDenied, DirectoryUnavailable
from entrepot_cluster.directory import (
    Directory,
    InstanceForgotten,
    NameEntry,
    PlaceEntry,
    Registration,
    SessionEntry,
    open_directory,
)
from entrepot_cluster.directory.codec import encode_place, place_prefix
from entrepot_operator import install_manifests
from entrepot_operator.directory import leases, requests, shards
from entrepot_operator.directory.backend import KubernetesBackend
from entrepot_operator.kubernetes.api import Api

sys.path.insert(0, str(Path(__file__).parents[2] / "cluster" / "network"))
from tcp_relay import TO_CLIENT, TcpRelay

OID = bytes(range(20))
TIMEOUT_SECONDS = 60.0  # a watchdog
Join = Callable[..., Registration]
Open = Callable[..., Directory]


def generations(directory: Directory, oid: bytes = OID) -> list[int]:
    return [place.generation for place in directory.places([oid])[0].raise_damage()]


def backend_of(directory: Directory) -> KubernetesBackend:
    backend = directory._backend
    assert isinstance(backend, KubernetesBackend)
    return backend


def shard_resources(cluster: Any, namespace: str, name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.listed(shards.shard_path(namespace), labelSelector=shards.selector(name))
    return items


def end_lease(cluster: Any, namespace: str, name: str) -> None:
    """Make all leases of a directory end now, as if a minute had passed."""
    path = leases.lease_of(namespace, name)
    for lease in cluster.listed(path, labelSelector=shards.selector(name)):
        ended = {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}
        lease_path = f"{path}/{lease['metadata']['name']}"
        cluster.request("PATCH", lease_path, ended, kind="application/merge-patch+json")


def test_a_lost_instance_is_lost_for_everybody_since_the_same_time_until_it_is_pruned(
    entrepot_cluster: Any, namespace: str, name: str, open_it: Open, join: Join, wait_until: Callable[..., None]
) -> None:
    here, elsewhere = open_it(lost_seconds=0.0), open_it()
    registration = join(here, 1)
    registration.publish([PlaceEntry(OID, 1, 1)], [NameEntry("s", "r", "n", OID, 1)], [SessionEntry("s", "r")])
    with elsewhere.watch() as watch:
        assert [(change.kind, change.instance.host) for change in watch.wait(TIMEOUT_SECONDS)] == [("joined", "host-1")]
        end_lease(entrepot_cluster, namespace, name)
        (change,) = watch.wait(TIMEOUT_SECONDS)
        assert (change.kind, change.instance.host) == ("lost", "host-1")
        since = change.instance.lost_since
    assert since is not None
    assert abs(since - time.time()) < 600.0
    wait_until(lambda: not here.instances()[0].live, "the loss to be seen here")
    for either in (here, elsewhere, open_it()):
        (place,) = either.places([OID])[0].entries
        assert (place.instance.host, place.instance.lost_since) == ("host-1", since)
    with pytest.raises(InstanceForgotten, match="register it again"):
        registration.publish([PlaceEntry(OID, 2, 1)])
    with pytest.raises(InstanceForgotten, match="register it again"):
        registration.renew()

    def swept() -> bool:
        while not here.sweep():
            pass
        return not here.instances()

    wait_until(swept, "the instance to be pruned")
    while not here.sweep():
        pass
    assert here._backend.read_prefixes([b"p", b"n", b"s", b"i", b"x"]) == [[], [], [], [], []]
    assert {item["spec"]["kind"] for item in shard_resources(entrepot_cluster, namespace, name)} == {"Head", "Control"}


def test_an_instance_that_was_lost_comes_back_and_departs(
    entrepot_cluster: Any, namespace: str, name: str, open_it: Open, join: Join
) -> None:
    here, elsewhere = open_it(), open_it()
    join(here, 1).publish([PlaceEntry(OID, 1, 1)])
    with elsewhere.watch() as watch:
        assert len(watch.wait(TIMEOUT_SECONDS)) == 1
        end_lease(entrepot_cluster, namespace, name)
        assert [change.kind for change in watch.wait(TIMEOUT_SECONDS)] == ["lost"]
        again = join(here, 1)
        assert again.was_known
        assert [change.kind for change in watch.wait(TIMEOUT_SECONDS)] == ["joined"]
        assert generations(elsewhere) == [1]
        again.depart()
        assert [change.kind for change in watch.wait(TIMEOUT_SECONDS)] == ["departed"]
        assert watch.wait(0.0) == []
    assert generations(elsewhere) == []
    assert entrepot_cluster.listed(leases.lease_of(namespace, name), labelSelector=shards.selector(name)) == []


def test_thousands_of_objects_cost_few_resources(
    entrepot_cluster: Any, namespace: str, name: str, open_it: Open, join: Join
) -> None:
    directory = open_it()
    oids = [os.urandom(20) for _ in range(2000)]
    join(directory, 1).publish([PlaceEntry(oid, 1, 1 << 30) for oid in oids])
    resources = shard_resources(entrepot_cluster, namespace, name)
    entries = [item for item in resources if item["spec"]["kind"] == "Entries"]
    assert sum(item["spec"]["count"] for item in entries) == 2000
    assert len(resources) <= 2 + 6
    assert max(len(item["spec"]["entries"]) for item in entries) < 2 * shards.MAX_SHARD_BYTES


def test_an_emptied_directory_is_filled_again(
    entrepot_cluster: Any, namespace: str, name: str, open_it: Open, join: Join
) -> None:
    directory = open_it()
    registration = join(directory, 1)
    sequence = registration.publish([PlaceEntry(OID, 1, 1)])
    for item in shard_resources(entrepot_cluster, namespace, name):
        entrepot_cluster.request("DELETE", shards.shard_path(namespace, item["metadata"]["name"]))
    with pytest.raises(InstanceForgotten, match="publish everything again"):
        registration.renew()
    assert generations(directory) == []
    again = join(directory, 1, highest_sequence=sequence + 10**9)
    assert not again.was_known
    again.publish([PlaceEntry(OID, 1, 1, sequence=sequence)])
    assert again.publish([PlaceEntry(OID, 2, 1)]) > sequence + 10**9
    assert generations(directory) == [2]


def test_a_damaged_shard_is_replaced(
    entrepot_cluster: Any, namespace: str, name: str, open_it: Open, join: Join, wait_until: Callable[..., None]
) -> None:
    directory = open_it()
    registration = join(directory, 1)
    registration.publish([PlaceEntry(OID, 1, 1)])
    other = join(directory, 2)
    other.publish([PlaceEntry(OID, 5, 1)])
    (item,) = [
        item
        for item in shard_resources(entrepot_cluster, namespace, name)
        if item["spec"].get("number") == registration._lease.number
    ]
    damaged = {"spec": {"entries": "AgICAgIC"}}
    path = shards.shard_path(namespace, item["metadata"]["name"])
    entrepot_cluster.request("PATCH", path, damaged, kind="application/merge-patch+json")
    wait_until(lambda: generations(directory) == [5], "the damage to be seen")
    with pytest.raises(InstanceForgotten):
        registration.renew()
    other.renew()
    again = join(directory, 1)
    again.renew()
    again.publish([PlaceEntry(OID, 2, 1)])
    assert sorted(generations(directory)) == [2, 5]


def test_what_is_followed_goes_on_after_broken_connections_and_an_outage(
    entrepot_cluster: Any, namespace: str, name: str, open_it: Open, join: Join, tmp_path: Path
) -> None:
    server = urlsplit(entrepot_cluster.server).netloc
    writer = open_it()
    registration = join(writer, 1)
    with TcpRelay(server) as relay:
        kubeconfig = tmp_path / "relayed"
        kubeconfig.write_text(entrepot_cluster.kubeconfig.read_text().replace(server, relay.address))
        reader = open_it(kubeconfig, timeout=3.0)
        for generation in range(1, 4):
            registration.publish([PlaceEntry(OID, generation, 1)])
            assert until_it_responds(lambda: generations(reader)) == [generation]
            relay.drop_connections()
        informer = backend_of(reader)._copy._informers[0]
        restarts = informer.restarts
        informer.read_again()
        registration.publish([PlaceEntry(OID, 4, 1)])
        assert until_it_responds(lambda: generations(reader)) == [4]
        assert informer.restarts > restarts

        watch = reader.watch()
        assert [change.kind for change in until_it_responds(lambda: watch.wait(1.0))] == ["joined"]
        relay.cut(TO_CLIENT)
        with pytest.raises(DirectoryUnavailable, match="does not respond"):
            generations(reader)
        with pytest.raises(DirectoryUnavailable):
            watch.wait(TIMEOUT_SECONDS)
        registration.publish([PlaceEntry(OID, 5, 1)])
        relay.heal()
        relay.drop_connections()
        assert until_it_responds(lambda: generations(reader)) == [5]
        assert reader.instances()[0].live
        watch.close()
    with pytest.raises(DirectoryUnavailable, match="does not respond"):
        generations(reader)


def test_what_a_restored_backup_lacks_is_forgotten(open_it: Open, join: Join, name: str) -> None:
    """A copy that has seen what the server has no longer, as after a restore of its etcd, is read again."""
    directory = open_it()
    registration = join(directory, 1)
    registration.publish([PlaceEntry(OID, 1, 1)])
    assert generations(directory) == [1]  # the copy has seen all of that
    copy = backend_of(directory)._copy
    restarts = copy._informers[0].restarts
    (shard,) = copy.shards.shards_of(registration._lease.number)
    later = shard.version + 1_000_000
    lost_entry = {place_prefix(OID): encode_place(PlaceEntry(OID, 9, 1), 1, later)}
    lost_shard = shards.shard_manifest(name, shard.number, shard.index, shard.term, lost_entry, later)
    lost_head = shards.head_manifest(name, "later", version=later)
    seen = copy.shards.head()
    assert seen is not None
    for manifest, uid in ((lost_shard, shard.uid), (lost_head, seen.uid)):
        manifest["metadata"]["uid"] = uid
        copy.shards.change(manifest, gone=False)
    assert generations(directory) == [1]
    assert copy._informers[0].restarts > restarts


def until_it_responds(ask: Callable[[], Any]) -> Any:
    """What a call returns once the directory responds again."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return ask()
        except DirectoryUnavailable:
            if time.monotonic() > end:
                raise


def test_a_change_that_others_always_precede_is_given_up(
    open_it: Open, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_it()
    registration = join(directory, 1)
    registration.publish([PlaceEntry(OID, 1, 1)])
    monkeypatch.setattr(requests, "TRIES", 3)
    tried = []

    def changed(*_: Any) -> Any:
        tried.append(1)
        raise requests.Changed("409")

    with monkeypatch.context() as patched:
        patched.setattr(backend_of(directory)._requests, "replace", changed)
        with pytest.raises(DirectoryUnavailable, match="in each of 3 tries"):
            registration.publish([PlaceEntry(OID, 2, 1)])
        assert len(tried) == 3
        with pytest.raises(DirectoryUnavailable, match="in each of 3 tries"):
            registration.renew()
    registration.publish([PlaceEntry(OID, 3, 1)])
    assert generations(directory) == [3]


def test_a_missing_namespace_is_named(entrepot_cluster: Any) -> None:
    with pytest.raises(DirectoryUnavailable, match="the namespace has to exist"):
        open_directory(
            f"kubernetes://no-such-namespace/one?kubeconfig={entrepot_cluster.kubeconfig}", timeout=TIMEOUT_SECONDS
        )


def test_an_api_server_that_is_not_there_is_reported(entrepot_cluster: Any, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        kubeconfig = tmp_path / "nobody"
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        kubeconfig.write_text(
            entrepot_cluster.kubeconfig.read_text().replace(urlsplit(entrepot_cluster.server).netloc, server)
        )
        with pytest.raises(DirectoryUnavailable, match="does not respond"):
            open_directory(f"kubernetes:///one?kubeconfig={kubeconfig}", timeout=5.0)


def test_the_role_of_gateways_has_exactly_what_they_need(
    entrepot_cluster: Any, name: str, monkeypatch: pytest.MonkeyPatch, join: Join, wait_until: Callable[..., None]
) -> None:
    own = entrepot_cluster.namespace("gateway")
    for part in ("publisher", "gateway"):
        for manifest in install_manifests.objects(namespace=own, only=part):
            if manifest["kind"] in ("Role", "ServiceAccount"):
                entrepot_cluster.apply(entrepot_cluster.path_of(manifest), manifest)
    kubeconfig = entrepot_cluster.kubeconfig_of(own, "entrepot-publisher")
    url = f"kubernetes:///{name}?kubeconfig={kubeconfig}"  # in the namespace of the account
    with pytest.raises(AccessDenied, match="directoryshards"):
        open_directory(url, timeout=TIMEOUT_SECONDS)
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "entrepot-gateway", "namespace": own},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "entrepot-gateway"},
        "subjects": [{"kind": "ServiceAccount", "name": "entrepot-publisher", "namespace": own}],
    }
    entrepot_cluster.apply(entrepot_cluster.path_of(binding), binding)
    used: set[tuple[str, str]] = set()
    send = Api._send

    def recorded(api: Api, method: str, target: str, *arguments: Any) -> Any:
        used.add(_verb(method, target))
        return send(api, method, target, *arguments)

    monkeypatch.setattr(Api, "_send", recorded)

    directories: list[Directory] = []

    def opened() -> bool:
        """It takes a moment until the binding is in force."""
        try:
            directories.append(open_directory(url, timeout=TIMEOUT_SECONDS, lost_seconds=0.0))
        except AccessDenied:
            return False
        return True

    wait_until(opened, "the role to be in force")
    with directories[0] as directory:
        registration = join(directory, 1)
        registration.publish([PlaceEntry(OID, 1, 1)])
        assert generations(directory) == [1]
        registration.renew()
        registration.confirm()
        with directory.watch() as watch:
            assert len(watch.wait(TIMEOUT_SECONDS)) == 1
        registration.withdraw([OID])
        join(directory, 2, highest_sequence=10**12).publish([PlaceEntry(OID, 1, 1)])
        while not directory.sweep():
            pass
        registration.depart()
    (role,) = [item for item in install_manifests.objects(namespace=own, only="gateway") if item["kind"] == "Role"]
    allowed = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert used == allowed


def _verb(method: str, target: str) -> tuple[str, str]:
    """Resource and verb, as roles name them."""
    parts = urlsplit(target)
    words = parts.path.split("/")
    at = words.index("namespaces") + 2
    if method == "GET":
        single = len(words) > at + 1
        return words[at], "get" if single else "watch" if "watch=1" in parts.query else "list"
    return words[at], {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
