"""The Store resource: the fields of its schema, with the same defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_operator.kubernetes.objects import API_VERSION

READY = "Ready"
PROGRESSING = "Progressing"
DEGRADED = "Degraded"


@dataclass(frozen=True)
class SpillKeySecret:
    """The Secret with the key that encrypts spilled data; in the Store's namespace.

    Attributes:
        name: of the Secret.
        key: the entry in it: 32 bytes, or 64 hexadecimal digits.
    """

    name: str
    key: str = "key"


@dataclass(frozen=True)
class SpillSpec:
    """Spill settings of a store.

    Attributes:
        folder: directory on the node.
        quota: a Kubernetes quantity; None: the daemon's default.
        compression: as ``entrepotd --spill-compression``; None: its default.
        key_secret: None: spilled data is not encrypted.
    """

    folder: str
    quota: str | None = None
    compression: str | None = None
    key_secret: SpillKeySecret | None = None


@dataclass(frozen=True)
class PublishSpec:
    """Settings of each node's publisher; see ``publisher.limits.Limits``.

    Attributes:
        enabled: whether there is one.
        max_objects, min_bytes, writes_per_second, lease_seconds: its limits.
    """

    enabled: bool = True
    max_objects: int = 1000
    min_bytes: int = 0
    writes_per_second: int = 20
    lease_seconds: int = 60


@dataclass(frozen=True)
class TokenSecret:
    """The Secret with the token that all gateways of a cluster share; in the Store's namespace.

    Attributes:
        name: of the Secret.
        key: the entry in it.
    """

    name: str
    key: str = "token"


@dataclass(frozen=True)
class NamedSecret:
    """A Secret that is mounted as a whole; in the Store's namespace.

    Attributes:
        name: of the Secret.
    """

    name: str


@dataclass(frozen=True)
class ClusterSpec:
    """How the stores form a cluster: the settings of each node's gateway.

    Attributes:
        directory: URL of the directory.
        directory_secret: files that the URL's options name, such as ``password_file``.
        token_secret: None: gateways know each other by certificates alone.
        tls_secret: ``tls.crt``, ``tls.key`` and ``ca.crt``; None: connections are not encrypted.
        port: where gateways listen, on the pod's address.
        memory: of the gateway itself, as a Kubernetes quantity.
        options: further options of ``entrepot gateway``.
    """

    directory: str
    directory_secret: NamedSecret | None = None
    token_secret: TokenSecret | None = None
    tls_secret: NamedSecret | None = None
    port: int = 7077
    memory: str = "512Mi"
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricsSpec:
    """How each node's store is shown to Prometheus.

    Attributes:
        port: where ``/metrics`` is served, on the pod's address.
        memory: of the container, as a Kubernetes quantity.
    """

    port: int = 9817
    memory: str = "96Mi"


@dataclass(frozen=True)
class StoreSpec:
    """The spec of a Store.

    Attributes:
        image: containing entrepotd and the publisher.
        capacity: memory of the store on each node, as a Kubernetes quantity.
        overhead: memory of the daemon itself and the publisher.
        cpu: the container's CPU request.
        socket_folder: directory of the store's socket on the node.
        run_as_user: owner of the store.
        image_pull_policy: None: Kubernetes' default.
        image_pull_secrets: their names.
        spill: None: a full store rejects new objects.
        default_ttl: of named sessions, in seconds; None: the daemon's default.
        publish: what is published as LocalObjects.
        cluster: None: each node's store is on its own.
        metrics: None: nothing serves the stores' metrics.
        node_selector, tolerations: which nodes have a store.
        priority_class_name: None: the cluster's default.
        max_unavailable: nodes without their store while a change is rolled out; a number, or a share such as ``"10%"``.
    """

    image: str
    capacity: str
    overhead: str = "256Mi"
    cpu: str = "250m"
    socket_folder: str = "/run/entrepot"
    run_as_user: int = 1000
    image_pull_policy: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    spill: SpillSpec | None = None
    default_ttl: int | None = None
    publish: PublishSpec = field(default_factory=PublishSpec)
    cluster: ClusterSpec | None = None
    metrics: MetricsSpec | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class_name: str | None = None
    max_unavailable: int | str = 1


# Field names are in camelCase in the API; exceptions to the rule.
_API_FIELD_NAMES = {"default_ttl": "defaultTTL"}


def parse_store(resource: Mapping[str, Any]) -> StoreSpec:
    """Parse the spec of a Store.

    Raises:
        InvalidArgument: it does not conform to this version's schema.
    """
    name = (resource.get("metadata") or {}).get("name")
    if resource.get("apiVersion") != API_VERSION or resource.get("kind") != "Store":
        raise InvalidArgument(
            f"{name!r} is a {resource.get('kind')} of {resource.get('apiVersion')}, not a Store of {API_VERSION}"
        )
    try:
        values = _parse_fields(StoreSpec, resource["spec"], f"Store {name!r}")
        for size in ("capacity", "overhead", "cpu"):
            if size in values:
                values[size] = str(values[size])
        if "image_pull_secrets" in values:
            values["image_pull_secrets"] = tuple(secret["name"] for secret in values["image_pull_secrets"])
        if "tolerations" in values:
            values["tolerations"] = tuple(values["tolerations"])
        if values.get("spill") is not None:
            spill = _parse_fields(SpillSpec, values["spill"], f"Store {name!r}: spill")
            if spill.get("quota") is not None:
                spill["quota"] = str(spill["quota"])
            if spill.get("key_secret") is not None:
                where = f"Store {name!r}: spill.keySecret"
                spill["key_secret"] = SpillKeySecret(**_parse_fields(SpillKeySecret, spill["key_secret"], where))
            values["spill"] = SpillSpec(**spill)
        if "publish" in values:
            values["publish"] = PublishSpec(**_parse_fields(PublishSpec, values["publish"], f"Store {name!r}: publish"))
        if values.get("cluster") is not None:
            values["cluster"] = _parse_cluster(values["cluster"], f"Store {name!r}: cluster")
        if values.get("metrics") is not None:
            metrics = _parse_fields(MetricsSpec, values["metrics"], f"Store {name!r}: metrics")
            if "memory" in metrics:
                metrics["memory"] = str(metrics["memory"])
            values["metrics"] = MetricsSpec(**metrics)
        return StoreSpec(**values)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"cannot read Store {name!r} ({type(error).__name__}: {error}): the cluster's CRDs do not match "
            f"{API_VERSION}, or were modified"
        ) from error


def api_field_name(name: str) -> str:
    """Name of a field in the API.

    >>> api_field_name("socket_folder")
    'socketFolder'
    """
    first, *others = name.split("_")
    return _API_FIELD_NAMES.get(name) or first + "".join(part.capitalize() for part in others)


def _parse_cluster(data: Mapping[str, Any], where: str) -> ClusterSpec:
    values = _parse_fields(ClusterSpec, data, where)
    for field_name, cls in (
        ("directory_secret", NamedSecret),
        ("token_secret", TokenSecret),
        ("tls_secret", NamedSecret),
    ):
        if values.get(field_name) is not None:
            secret = _parse_fields(cls, values[field_name], f"{where}.{api_field_name(field_name)}")
            values[field_name] = cls(**secret)
    if "memory" in values:
        values["memory"] = str(values["memory"])
    if "options" in values:
        values["options"] = tuple(values["options"])
    return ClusterSpec(**values)


def _parse_fields(cls: type, data: Mapping[str, Any], where: str) -> dict[str, Any]:
    field_names = {api_field_name(spec_field.name): spec_field.name for spec_field in fields(cls)}
    unknown = sorted(set(data) - set(field_names))
    if unknown:
        raise InvalidArgument(f"{where} has {unknown[0]!r}, which this version of entrepot does not support")
    return {field_names[key]: value for key, value in data.items()}
