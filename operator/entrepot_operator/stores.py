"""The Store resource: the fields of its schema, with the same defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from entrepot.errors import InvalidArgument
from entrepot_io.cluster.objects import API_VERSION

READY = "Ready"
PROGRESSING = "Progressing"
DEGRADED = "Degraded"


@dataclass(frozen=True)
class SpillKey:
    """The Secret with the key that encrypts spilled data; in the Store's namespace.

    Attributes:
        name: of the Secret.
        key: the entry in it: 32 bytes, or 64 hexadecimal digits.
    """

    name: str
    key: str = "key"


@dataclass(frozen=True)
class Spill:
    """Where objects are spilled.

    Attributes:
        folder: directory on the node.
        quota: a Kubernetes quantity; None: the daemon's default.
        compression: as ``entrepotd --spill-compression``; None: its default.
        key_secret: None: spilled data is not encrypted.
    """

    folder: str
    quota: str | None = None
    compression: str | None = None
    key_secret: SpillKey | None = None


@dataclass(frozen=True)
class Publishing:
    """Settings of each node's publisher; see ``Bounds``.

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
    spill: Spill | None = None
    default_ttl: int | None = None
    publish: Publishing = field(default_factory=Publishing)
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class_name: str | None = None
    max_unavailable: int | str = 1


# Field names are in camelCase in the API; exceptions to the rule.
_WORDS = {"default_ttl": "defaultTTL"}


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
        given = _given(StoreSpec, resource["spec"], f"Store {name!r}")
        for size in ("capacity", "overhead", "cpu"):
            if size in given:
                given[size] = str(given[size])
        if "image_pull_secrets" in given:
            given["image_pull_secrets"] = tuple(one["name"] for one in given["image_pull_secrets"])
        if "tolerations" in given:
            given["tolerations"] = tuple(given["tolerations"])
        if given.get("spill") is not None:
            spill = _given(Spill, given["spill"], f"Store {name!r}: spill")
            if spill.get("quota") is not None:
                spill["quota"] = str(spill["quota"])
            if spill.get("key_secret") is not None:
                where = f"Store {name!r}: spill.keySecret"
                spill["key_secret"] = SpillKey(**_given(SpillKey, spill["key_secret"], where))
            given["spill"] = Spill(**spill)
        if "publish" in given:
            given["publish"] = Publishing(**_given(Publishing, given["publish"], f"Store {name!r}: publish"))
        return StoreSpec(**given)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"the Store {name!r} cannot be read ({type(error).__name__}: {error}): the cluster's CRDs are of another "
            f"version than {API_VERSION}, or somebody changed them"
        ) from error


def word(name: str) -> str:
    """Name of a field in the API.

    >>> word("socket_folder")
    'socketFolder'
    """
    first, *others = name.split("_")
    return _WORDS.get(name) or first + "".join(part.capitalize() for part in others)


def _given(cls: type, said: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = {word(one.name): one.name for one in fields(cls)}
    unknown = sorted(set(said) - set(known))
    if unknown:
        raise InvalidArgument(f"{where} has {unknown[0]!r}, which this version of entrepot does not know")
    return {known[key]: value for key, value in said.items()}
