"""The resources created for a Store, without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot_operator
import pytest
import yaml
from entrepot.errors import InvalidArgument
from entrepot_operator.controller.state import gateway_container, owned_resources, pod_account, quantities
from entrepot_operator.kubernetes.store_spec import StoreSpec, parse_store
from hypothesis import given
from hypothesis import strategies as st

MANIFESTS = Path(entrepot_operator.__file__).with_name("manifests")
MIB = 1 << 20


def pod_of(store: dict[str, Any]) -> dict[str, Any]:
    daemonset = owned_resources.daemonset(store, parse_store(store))
    spec: dict[str, Any] = daemonset.manifest["spec"]["template"]["spec"]
    return spec


def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    (match,) = [each for each in (*pod["initContainers"], *pod["containers"]) if each["name"] == name]
    return dict(match)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("8Gi", 8 << 30),
        ("1.5Gi", 3 << 29),
        ("1e9", 10**9),
        ("1E3", 1000),
        ("1E", 10**18),
        ("5k", 5000),
        ("100m", 1),
        (".5Ki", 512),
        ("1500m", 2),
        ("+2M", 2_000_000),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, count: int) -> None:
    assert quantities.parse(text, "capacity") == count


@pytest.mark.parametrize("text", ["", "much", "8 Gi", "8GiB", "1e", "Gi", "1,5Gi", "--1"])
def test_what_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(InvalidArgument, match="capacity must be a quantity"):
        quantities.parse(text, "capacity")


@given(st.integers(17 * MIB, 1 << 44), st.integers(1, 1 << 36), st.booleans())
def test_the_limit_leaves_room_for_what_the_daemon_leaves_alone(capacity: int, overhead: int, publishes: bool) -> None:
    spec = parse_store(
        {
            "apiVersion": "entrepot.dev/v1alpha1",
            "kind": "Store",
            "metadata": {"name": "main"},
            "spec": {
                "image": "i",
                "capacity": str(capacity),
                "overhead": str(overhead),
                "publish": {"enabled": publishes},
            },
        }
    )
    budget = owned_resources.divide_memory(spec)
    reserve = max(128 * MIB, budget.daemon // 32)  # as entrepotd computes it from its cgroup's memory limit
    assert budget.daemon - reserve >= capacity + overhead // 2 - 1
    assert budget.daemon - reserve <= capacity + overhead + 2 * MIB
    assert (budget.publisher > 0) == (publishes and overhead > 1)
    assert budget.daemon % MIB == budget.publisher % MIB == 0


def test_the_daemon_arguments_follow_the_store_spec(make_store: Callable[..., Any]) -> None:
    store = make_store(
        capacity="1Gi",
        spill={"folder": "/var/entrepot", "quota": "100Gi", "compression": "zstd:3"},
        defaultTTL=0,
        socketFolder="/run/ours",
        runAsUser=2000,
    )
    pod = pod_of(store)
    daemon = container(pod, "daemon")
    assert daemon["command"] == ["entrepotd"]
    assert daemon["args"] == [
        "--address=unix:///run/ours/store.sock",
        f"--size={1 << 30}",
        "--default-ttl=0",
        "--spill-path=/var/entrepot",
        f"--spill-quota={100 << 30}",
        "--spill-compression=zstd:3",
    ]
    assert {mount["mountPath"] for mount in daemon["volumeMounts"]} == {"/run/ours", "/var/entrepot", "/tmp"}
    assert container(pod, "prepare")["args"] == ["/run/ours", "/var/entrepot"]
    assert container(pod, "prepare")["command"][-1] == "2000:2000"
    assert pod["securityContext"]["runAsUser"] == 2000
    assert "--spill-path=none" in container(pod_of(make_store()), "daemon")["args"]


def test_the_spill_key_is_in_the_daemons_container_alone(make_store: Callable[..., Any]) -> None:
    secret = {"name": "ours", "key": "spill.hex"}
    pod = pod_of(make_store(spill={"folder": "/var/entrepot", "keySecret": secret}, runAsUser=2000))
    (volume,) = (item["secret"] for item in pod["volumes"] if "secret" in item)
    assert volume["secretName"] == "ours"
    assert volume["items"] == [{"key": "spill.hex", "path": "key"}]
    assert volume["defaultMode"] == 0o440
    assert pod["securityContext"]["fsGroup"] == 2000
    for item in (*pod["initContainers"], *pod["containers"]):
        mounted = [mount for mount in item["volumeMounts"] if mount["name"] == "spill-key"]
        assert len(mounted) == (1 if item["name"] == "daemon" else 0)
        assert all(mount["readOnly"] for mount in mounted)
    assert "--spill-key-command=cat /run/entrepot-spill-key/key" in container(pod, "daemon")["args"]
    plain = pod_of(make_store(spill={"folder": "/var/entrepot"}))
    assert "fsGroup" not in plain["securityContext"]
    assert not any("spill-key" in item for item in container(plain, "daemon")["args"])


def test_only_the_publisher_has_a_token(make_store: Callable[..., Any]) -> None:
    pod = pod_of(make_store())
    assert pod["automountServiceAccountToken"] is False
    tokens = [item["name"] for item in pod["volumes"] if "projected" in item]
    for item in (*pod["initContainers"], *pod["containers"]):
        has_token = any(mount["name"] in tokens for mount in item["volumeMounts"])
        assert has_token == (item["name"] == "publisher")
    silent = pod_of(make_store(publish={"enabled": False}))
    assert [item["name"] for item in silent["containers"]] == ["daemon"]
    assert "serviceAccountName" not in silent
    assert not any("projected" in item for item in silent["volumes"])


def test_no_container_can_do_more_than_it_must(make_store: Callable[..., Any]) -> None:
    pod = pod_of(make_store(spill={"folder": "/var/entrepot"}))
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each_container in (*pod["initContainers"], *pod["containers"]):
        context = each_container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"]["drop"] == ["ALL"]
        assert context["capabilities"].get("add", []) == (["CHOWN"] if each_container["name"] == "prepare" else [])
        assert each_container["resources"]["limits"]["memory"] == each_container["resources"]["requests"]["memory"]


def test_both_containers_know_store_and_node(make_store: Callable[..., Any]) -> None:
    for each_container in pod_of(make_store())["containers"]:
        variables = {each["name"]: each for each in each_container["env"]}
        assert variables["ENTREPOT_ADDRESS"]["value"] == "unix:///run/entrepot/store.sock"
        assert variables["ENTREPOT_NODE"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_the_commands_are_existing_subcommands(make_store: Callable[..., Any]) -> None:
    import argparse

    from entrepot._cli import daemon as daemon_command
    from entrepot_operator import commands

    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    daemon_command.add_subcommands(subparsers)
    commands.add_subcommands(subparsers)
    pod = pod_of(make_store())
    publisher, daemon = container(pod, "publisher"), container(pod, "daemon")
    parsed = parser.parse_args([*publisher["command"][1:], *publisher["args"]])
    assert (parsed.store, parsed.max_objects, parsed.lease_seconds) == ("main", 1000, 60)
    for place in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert parser.parse_args(daemon[place]["exec"]["command"][1:]).address
    assert parser.parse_args(daemon["lifecycle"]["preStop"]["exec"]["command"][1:]).address


def test_it_runs_where_the_store_says(make_store: Callable[..., Any]) -> None:
    tolerations = [{"key": "data", "operator": "Exists"}]
    store = make_store(
        nodeSelector={"pool": "data"},
        tolerations=tolerations,
        priorityClassName="high",
        imagePullSecrets=[{"name": "registry"}],
        imagePullPolicy="Always",
        maxUnavailable="10%",
    )
    pod = pod_of(store)
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "data"}
    assert pod["tolerations"] == tolerations
    assert pod["priorityClassName"] == "high"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert {each_container["imagePullPolicy"] for each_container in pod["containers"]} == {"Always"}
    manifest = owned_resources.daemonset(store, parse_store(store)).manifest
    assert manifest["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%"}
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Store", "uid-main", True)
    assert manifest["metadata"]["name"] == "entrepot-main"
    assert (
        manifest["spec"]["selector"]["matchLabels"].items()
        <= manifest["spec"]["template"]["metadata"]["labels"].items()
    )


def test_the_same_store_becomes_the_same_each_time(make_store: Callable[..., Any]) -> None:
    store = make_store(spill={"folder": "/var/entrepot"})
    assert owned_resources.daemonset(store, parse_store(store)) == owned_resources.daemonset(store, parse_store(store))


CLUSTER = {
    "directory": "kubernetes:///main",
    "directorySecret": {"name": "files"},
    "tokenSecret": {"name": "shared", "key": "secret"},
    "tlsSecret": {"name": "certificate"},
    "port": 7100,
    "memory": "256Mi",
    "options": ["--lease-seconds=20"],
}


def test_a_store_of_a_cluster_has_a_gateway(make_store: Callable[..., Any]) -> None:
    pod = pod_of(make_store(capacity="1Gi", cluster=CLUSTER, runAsUser=2000))
    gateway = container(pod, "gateway")
    assert gateway["command"] == ["entrepot", "gateway"]
    assert gateway["args"] == [
        "--keep-running",
        "--cluster=kubernetes:///main",
        "--listen=$(POD_IP):7100",
        "--host=$(ENTREPOT_NODE)",
        "--token-file=/run/entrepot-cluster/token/token",
        "--tls-cert=/run/entrepot-cluster/tls/tls.crt",
        "--tls-key=/run/entrepot-cluster/tls/tls.key",
        "--tls-ca=/run/entrepot-cluster/tls/ca.crt",
        "--lease-seconds=20",
    ]
    assert gateway["ports"] == [{"name": "gateway", "containerPort": 7100, "protocol": "TCP"}]
    variables = {each["name"]: each for each in gateway["env"]}
    assert variables["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert variables["ENTREPOT_ADDRESS"]["value"] == "unix:///run/entrepot/store.sock"
    assert "ENTREPOT_NODE" in variables
    # What it fetches is written into the store's memory by it.
    assert int(gateway["resources"]["limits"]["memory"]) == (1 << 30) + (256 << 20)
    assert int(gateway["resources"]["requests"]["memory"]) == 256 << 20
    assert gateway["securityContext"] == container(pod, "publisher")["securityContext"]
    assert pod["securityContext"]["fsGroup"] == 2000  # which may read the Secrets
    secrets = {item["name"]: item["secret"] for item in pod["volumes"] if "secret" in item}
    assert {name: secret["secretName"] for name, secret in secrets.items()} == {
        "cluster-directory": "files",
        "cluster-token": "shared",
        "cluster-tls": "certificate",
    }
    assert secrets["cluster-token"]["items"] == [{"key": "secret", "path": "token"}]
    for item in (*pod["initContainers"], *pod["containers"]):
        mounted = {mount["name"] for mount in item["volumeMounts"]} & secrets.keys()
        assert mounted == (secrets.keys() if item["name"] == "gateway" else set())


def test_a_gateway_has_a_token_of_the_api_only_for_a_directory_there(make_store: Callable[..., Any]) -> None:
    token = {"tokenSecret": {"name": "shared"}}
    for directory, publishes, has_token in (
        ("kubernetes:///main", False, {"gateway"}),
        ("kubernetes://elsewhere/main", True, {"gateway", "publisher"}),
        ("etcd://etcd:2379/main", True, {"publisher"}),
        ("etcd://etcd:2379/main", False, set[str]()),
    ):
        pod = pod_of(make_store(publish={"enabled": publishes}, cluster={"directory": directory, **token}))
        mounted = {
            item["name"]
            for item in pod["containers"]
            if any(mount["name"] == "account" for mount in item["volumeMounts"])
        }
        assert mounted == has_token
        assert ("serviceAccountName" in pod) == bool(has_token)
        assert any("projected" in item for item in pod["volumes"]) == bool(has_token)
    arguments = container(pod, "gateway")["args"]
    assert "--token-file=/run/entrepot-cluster/token/token" in arguments
    assert not any(argument.startswith("--tls") for argument in arguments)


def test_the_gateways_command_is_an_existing_subcommand(make_store: Callable[..., Any]) -> None:
    import argparse

    from entrepot_cluster import commands

    parser = argparse.ArgumentParser()
    commands.add_subcommands(parser.add_subparsers())
    gateway = container(pod_of(make_store(cluster=CLUSTER)), "gateway")
    parsed = parser.parse_args([*gateway["command"][1:], *gateway["args"]])
    assert (parsed.cluster, parsed.lease_seconds, parsed.keep_running) == ("kubernetes:///main", 20.0, True)


def test_gateways_have_rights_where_their_directory_is(make_store: Callable[..., Any]) -> None:
    def named(*stores: str) -> list[Any]:
        return [make_store(name) for name in stores]

    owned = pod_account.pod_account("stores", named("a", "b"), named("b", "c"))
    assert [(each.manifest["kind"], each.manifest["metadata"]["name"]) for each in owned] == [
        ("ServiceAccount", "entrepot-publisher"),
        ("Role", "entrepot-publisher"),
        ("RoleBinding", "entrepot-publisher"),
        ("Role", "entrepot-gateway"),
        ("RoleBinding", "entrepot-gateway"),
    ]
    owners = [[owner["uid"] for owner in each.manifest["metadata"]["ownerReferences"]] for each in owned]
    assert owners[0] == ["uid-a", "uid-b", "uid-c"]
    assert owners[2:4] == [["uid-a", "uid-b"], ["uid-b", "uid-c"]]
    assert owned[4].manifest["subjects"][0]["name"] == "entrepot-publisher"
    silent = pod_account.pod_account("stores", [], named("c"))
    assert [each.manifest["metadata"]["name"] for each in silent] == ["entrepot-publisher", *["entrepot-gateway"] * 2]
    for directory, here in (
        ("kubernetes:///main", True),
        ("kubernetes://stores/main", True),
        ("kubernetes://others/main", False),
        ("etcd://etcd:2379/main", False),
    ):
        spec = parse_store(make_store(cluster={"directory": directory}))
        assert gateway_container.uses_directory_in(spec.cluster, "stores") == here
    assert not gateway_container.uses_directory_in(None, "stores")


def test_the_account_belongs_to_all_stores_together(make_store: Callable[..., Any]) -> None:
    owned = pod_account.pod_account("stores", [make_store("b"), make_store("a")])
    assert [each.manifest["kind"] for each in owned] == ["ServiceAccount", "Role", "RoleBinding"]
    for each in owned:
        assert [owner["uid"] for owner in each.manifest["metadata"]["ownerReferences"]] == ["uid-a", "uid-b"]
        assert not any(owner.get("controller") for owner in each.manifest["metadata"]["ownerReferences"])
    assert pod_account.pod_account("stores", []) == []


def test_a_publisher_may_do_what_the_shipped_role_says() -> None:
    documents = list(yaml.safe_load_all((MANIFESTS / "publisher" / "rbac.yaml").read_text()))
    (role,) = [document for document in documents if document["kind"] == "Role"]
    assert role["rules"] == pod_account.publisher_rules()
    assert role["metadata"]["name"] == owned_resources.PUBLISHER_ACCOUNT


def test_a_gateway_may_do_what_the_shipped_role_says() -> None:
    (role,) = yaml.safe_load_all((MANIFESTS / "gateway" / "rbac.yaml").read_text())
    assert role["rules"] == gateway_container.directory_rules()
    assert role["metadata"]["name"] == gateway_container.ROLE


def test_the_operator_has_all_that_it_gives_its_pods() -> None:
    """Otherwise the API server would not allow it to create their Role."""
    documents = list(yaml.safe_load_all((MANIFESTS / "operator" / "rbac.yaml").read_text()))
    (role,) = [document for document in documents if document["kind"] == "Role"]
    has = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    for rule in (*pod_account.publisher_rules(), *gateway_container.directory_rules()):
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                assert (rule["apiGroups"][0], resource, verb) in has


def test_a_socket_path_that_is_too_long_is_reported() -> None:
    store = {"metadata": {"name": "main", "namespace": "stores", "uid": "u"}}
    with pytest.raises(InvalidArgument, match="too long for the path of a socket"):
        owned_resources.daemonset(store, StoreSpec("i", "1Gi", socket_folder="/" + "x" * 100))
