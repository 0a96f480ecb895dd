"""Entrepot's resources in a cluster's API: LocalObject, GlobalObject, and the Lease of a store's objects.

Small value classes: whether something has to be written is a comparison for equality. The schemas are in the package
``entrepot_operator``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

from entrepot_operator.placement.names import GROUP

VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
MAX_NAMES = 8
MAX_NAME_LENGTH = 253
MAX_TYPE_LENGTH = 128
MAX_MEMBERS = 2048

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "entrepot-publisher"
LEASE_LABEL = f"{GROUP}/lease"
NODE_ANNOTATION = f"{GROUP}/node"

AVAILABLE = "Available"
COMPLETE = "Complete"

State = Literal["InMemory", "OnDisk", "Lost"]
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Condition:
    """One condition of a resource.

    Attributes:
        type: such as ``"Available"``.
        status: whether it holds; None: unknown.
        reason: machine-readable, in CamelCase.
        message: human-readable.
        since: when ``status`` last changed; ignored in comparisons.
    """

    type: str
    status: bool | None
    reason: str
    message: str
    since: datetime = field(default=datetime.fromtimestamp(0, timezone.utc), compare=False)

    def with_transition_time(self, previous: Condition | None, now: datetime) -> Condition:
        """This condition with ``since`` carried over from the previous one if the status is unchanged."""
        since = previous.since if previous is not None and previous.status == self.status else now
        return Condition(self.type, self.status, self.reason, self.message, since)

    def to_dict(self, generation: int | None = None) -> dict[str, Any]:
        """As an item of ``status.conditions``."""
        condition: dict[str, Any] = {
            "type": self.type,
            "status": "Unknown" if self.status is None else str(self.status),
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": self.since.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if generation is not None:
            condition["observedGeneration"] = generation
        return condition

    @classmethod
    def find(cls, conditions: Any, type_name: str) -> Condition | None:
        """Find the condition of a type in a resource's list."""
        for condition in conditions or []:
            if isinstance(condition, Mapping) and condition.get("type") == type_name:
                status = {"True": True, "False": False}.get(str(condition.get("status")))
                return cls(
                    type_name,
                    status,
                    str(condition.get("reason") or ""),
                    str(condition.get("message") or ""),
                    parse_time(condition.get("lastTransitionTime")) or datetime.fromtimestamp(0, timezone.utc),
                )
        return None


@dataclass(frozen=True)
class LocalObject:
    """An object held by the store of one node.

    Attributes:
        object_id: its ID.
        node, store: the node, and the Store whose instance there holds it.
        lease: the Lease without which this resource is ignored.
        instance, generation: the store instance, and the generation of the ID.
        bytes: its payload; for a collection, that of its members on this node.
        scope, session: where it belongs.
        type: the codec that wrote it.
        names: bound to it.
        persisted: whether its session is durable.
        members: for a collection, the number of members; None: not a collection.
        member_of: the collection that it belongs to, and its position there.
        state: where its bytes are; None: not reported yet.
        available: the condition; None: not reported yet.
    """

    object_id: ObjectID
    node: str
    store: str
    lease: str
    instance: str
    generation: int
    bytes: int
    scope: str
    session: str
    type: str = ""
    names: tuple[str, ...] = ()
    persisted: bool = False
    members: int | None = None
    member_of: tuple[ObjectID, int] | None = None
    state: State | None = None
    available: Condition | None = None

    @property
    def name(self) -> str:
        """Its name in the API: the ID and a digest of store and node."""
        return f"{self.object_id}-{store_node_digest(self.store, self.node)}"

    def spec(self) -> dict[str, Any]:
        """The resource's spec."""
        spec: dict[str, Any] = {
            "objectID": str(self.object_id),
            "node": self.node,
            "store": self.store,
            "lease": self.lease,
            "instance": self.instance,
            "generation": self.generation,
            "bytes": self.bytes,
            "scope": self.scope,
            "session": self.session,
        }
        if self.type:
            spec["type"] = self.type
        if self.names:
            spec["names"] = list(self.names)
        if self.persisted:
            spec["persisted"] = True
        if self.members is not None:
            spec["collection"] = {"members": self.members}
        if self.member_of is not None:
            spec["memberOf"] = {"objectID": str(self.member_of[0]), "index": self.member_of[1]}
        return spec

    @classmethod
    def parse(cls, resource: Mapping[str, Any]) -> LocalObject:
        """Parse a resource.

        Raises:
            InvalidArgument: it does not conform to this version's schema.
        """
        try:
            spec, status = resource["spec"], resource.get("status") or {}
            member_of = spec.get("memberOf")
            return cls(
                object_id=ObjectID(spec["objectID"]),
                node=str(spec["node"]),
                store=str(spec["store"]),
                lease=str(spec["lease"]),
                instance=str(spec["instance"]),
                generation=int(spec["generation"]),
                bytes=int(spec["bytes"]),
                scope=str(spec["scope"]),
                session=str(spec["session"]),
                type=str(spec.get("type") or ""),
                names=tuple(spec.get("names") or ()),
                persisted=bool(spec.get("persisted")),
                members=None if spec.get("collection") is None else int(spec["collection"]["members"]),
                member_of=None if member_of is None else (ObjectID(member_of["objectID"]), int(member_of["index"])),
                state=status.get("state"),
                available=Condition.find(status.get("conditions"), AVAILABLE),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _parse_error("LocalObject", resource, error) from error


@dataclass(frozen=True)
class GlobalObject:
    """A collection.

    Attributes:
        object_id: its ID. Generations are local to each store, so there is none.
        member_count, bytes: of all members.
        scope, session: where it belongs.
        type: the codec of all members, if they share one.
        names: bound to it.
        members: in order; None: omitted, because they are too many.
        complete: the condition; None: not reported yet.
    """

    object_id: ObjectID
    member_count: int
    bytes: int
    scope: str
    session: str
    type: str = ""
    names: tuple[str, ...] = ()
    members: tuple[ObjectID, ...] | None = None
    complete: Condition | None = None

    @property
    def name(self) -> str:
        """Its name in the API."""
        return str(self.object_id)

    def spec(self) -> dict[str, Any]:
        """The resource's spec."""
        spec: dict[str, Any] = {
            "objectID": str(self.object_id),
            "memberCount": self.member_count,
            "bytes": self.bytes,
            "scope": self.scope,
            "session": self.session,
        }
        if self.type:
            spec["type"] = self.type
        if self.names:
            spec["names"] = list(self.names)
        if self.members is not None:
            spec["members"] = [str(member) for member in self.members]
        return spec

    @classmethod
    def parse(cls, resource: Mapping[str, Any]) -> GlobalObject:
        """Parse a resource.

        Raises:
            InvalidArgument: it does not conform to this version's schema.
        """
        try:
            spec, status = resource["spec"], resource.get("status") or {}
            members = spec.get("members")
            return cls(
                object_id=ObjectID(spec["objectID"]),
                member_count=int(spec["memberCount"]),
                bytes=int(spec["bytes"]),
                scope=str(spec["scope"]),
                session=str(spec["session"]),
                type=str(spec.get("type") or ""),
                names=tuple(spec.get("names") or ()),
                members=None if members is None else tuple(ObjectID(member) for member in members),
                complete=Condition.find(status.get("conditions"), COMPLETE),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _parse_error("GlobalObject", resource, error) from error


@dataclass(frozen=True)
class StoreLease:
    """Records when the store of a node was last alive, and for how long that counts.

    Attributes:
        name: in its namespace.
        renewed: when; None: never.
        seconds: duration.
    """

    name: str
    renewed: datetime | None
    seconds: int

    def is_live(self, now: datetime) -> bool:
        """Whether it has not expired."""
        return self.renewed is not None and now < self.renewed + timedelta(seconds=self.seconds)

    @classmethod
    def parse(cls, resource: Mapping[str, Any]) -> StoreLease:
        """Parse a Lease."""
        spec = resource.get("spec") or {}
        return cls(
            str(resource["metadata"]["name"]),
            parse_time(spec.get("renewTime")),
            int(spec.get("leaseDurationSeconds") or 0),
        )


def store_node_digest(store: str, node: str) -> str:
    """A digest that identifies a store and node within a namespace, short enough for names and labels."""
    return hashlib.sha256(f"{store}/{node}".encode()).hexdigest()[:10]


def lease_name(store: str, node: str) -> str:
    """The name of the Lease of a node's store."""
    return f"entrepot-{store[:40].rstrip('-')}-{store_node_digest(store, node)}"


def resource_path(plural: str, namespace: str | None, name: str = "") -> str:
    """The API path of Entrepot's resources.

    Args:
        plural: such as ``"localobjects"``.
        namespace: None: all namespaces.
        name: of one resource; empty: the collection.
    """
    namespace_path = "" if namespace is None else f"/namespaces/{namespace}"
    return f"/apis/{API_VERSION}{namespace_path}/{plural}" + (f"/{name}" if name else "")


def lease_path(namespace: str | None, name: str = "") -> str:
    """The API path of Leases; as :func:`resource_path`."""
    namespace_path = "" if namespace is None else f"/namespaces/{namespace}"
    return f"/apis/coordination.k8s.io/v1{namespace_path}/leases" + (f"/{name}" if name else "")


def parse_time(text: Any) -> datetime | None:
    """Parse a Kubernetes timestamp, with or without fractional seconds; None if missing or invalid."""
    if not isinstance(text, str):
        return None
    try:
        parsed = datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=timezone.utc)


def _parse_error(kind: str, resource: Mapping[str, Any], error: Exception) -> InvalidArgument:
    name = (resource.get("metadata") or {}).get("name") if isinstance(resource, Mapping) else None
    return InvalidArgument(
        f"cannot read {kind} {name!r} ({type(error).__name__}: {error}): the cluster's CRDs do not match "
        f"{API_VERSION}, or were modified"
    )
