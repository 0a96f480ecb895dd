"""Builds and parses pod annotations for the orchestrators: a task author's instructions about where its pods run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

from entrepot_operator.placement import names, pod_annotations
from entrepot_operator.placement.pod_annotations import Locality, StoreRequirement

NO_OBJECTS = "none"
_UNESCAPED = "/:[]@.~"  # characters of a name not escaped in an annotation: all but those that separate names


@dataclass(frozen=True)
class KeyedObjects:
    """Objects named by logical keys.

    Attributes:
        keys: within the session.
        scope: of the deployment that writes them.
        session: the one that contains them; None: the run's, which the orchestrator knows.
    """

    keys: tuple[str, ...]
    scope: str
    session: str | None

    def ids(self, run_session: str | None) -> list[str]:
        """Their IDs.

        Args:
            run_session: the session of the run; None: the orchestrator has none of that kind.

        Raises:
            InvalidArgument: neither the annotations nor the orchestrator determine the session.
        """
        session = run_session if self.session is None else self.session
        if session is None:
            raise InvalidArgument(
                f"annotation {names.KEYS} names {', '.join(self.keys)}, but no session is specified: add "
                f"{names.SESSION}"
            )
        return [str(ObjectID.derive(self.scope, session, key)) for key in self.keys]


def build_annotations(
    *,
    reads: Iterable[str] | None = None,
    requires: Iterable[str | bytes | ObjectID] | None = None,
    keys: Iterable[str] | None = None,
    scope: str | None = None,
    session: str | None = None,
    locality: Locality | None = None,
    store: StoreRequirement | None = None,
    mounts: bool | None = None,
    containers: Iterable[str] | None = None,
) -> dict[str, str]:
    """Build annotations; arguments that are None are omitted.

    Args:
        reads: tasks whose outputs the pod reads, by the orchestrator's names; default: according to the orchestrator's
            graph. ``[]``: none.
        requires: IDs of further objects that it reads.
        keys: logical keys of further objects, in ``session`` of ``scope``.
        scope: of ``keys``; required with them.
        session: of ``keys``; default: that of the run, if the orchestrator knows it.
        locality: ``"preferred"`` (default), ``"required"`` or ``"off"``.
        store: whether the pod needs a node with a store: ``"preferred"`` (default), ``"required"`` or ``"off"``.
        mounts: whether its containers get the socket, shared memory and environment; default: True.
        containers: which containers; default: all.

    Raises:
        InvalidArgument: an argument is out of range; the message names it and its value.
    """
    annotations: dict[str, str] = {}
    if reads is not None:
        annotations[names.READS] = _join_names(reads, "reads") or NO_OBJECTS
    if requires is not None:
        annotations[names.REQUIRES] = ",".join(pod_annotations.parse_ids(requires, "requires")) or NO_OBJECTS
    if keys is not None:
        annotations[names.KEYS] = _join_names(keys, "keys") or NO_OBJECTS
    annotations |= {
        key: value
        for key, value in (
            (names.SCOPE, scope),
            (names.SESSION, session),
            (names.LOCALITY, locality),
            (names.STORE, store),
            (names.MOUNTS, None if mounts is None else "on" if mounts else "off"),
            (names.CONTAINERS, None if containers is None else ",".join(containers)),
        )
        if value is not None
    }
    pod_annotations.parse_annotations(annotations)
    parse_keyed_objects(annotations)
    return annotations


def parse_reads(annotations: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Names of the tasks whose outputs a pod reads; None: not stated in its annotations.

    Raises:
        InvalidArgument: the annotation is not a string.
    """
    return _split_names(annotations, names.READS)


def parse_keyed_objects(annotations: Mapping[str, Any]) -> KeyedObjects | None:
    """The objects that a pod's annotations name by keys; None: none.

    Raises:
        InvalidArgument: an annotation is not a string, or the scope is missing.
    """
    keys = _split_names(annotations, names.KEYS)
    if not keys:
        return None
    scope = _text(annotations, names.SCOPE)
    if not scope:
        raise InvalidArgument(f"annotation {names.KEYS} requires {names.SCOPE}: keys are unique only within a scope")
    return KeyedObjects(keys, scope, _text(annotations, names.SESSION))


def has_placement_annotations(annotations: Mapping[str, Any]) -> bool:
    """Whether annotations contain anything about placement."""
    return any(key in annotations for key in names.USER_ANNOTATIONS)


def pod_annotations_of(pod: Any) -> Mapping[str, Any]:
    """The annotations of a pod (a dictionary or an object of the Kubernetes client)."""
    if isinstance(pod, Mapping):
        annotations = (pod.get("metadata") or {}).get("annotations")
    else:
        annotations = getattr(getattr(pod, "metadata", None), "annotations", None)
    return annotations or {}


def _join_names(values: Iterable[str], what: str) -> str:
    if isinstance(values, (str, bytes)):
        raise InvalidArgument(f"{what} must be a list of names, but got {type(values).__name__} {values!r}")
    unquoted = list(values)
    for name in unquoted:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"{what} must be a list of non-empty names, but one is {name!r}")
    return ",".join(quote(name, _UNESCAPED) for name in dict.fromkeys(unquoted))


def _split_names(annotations: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = _text(annotations, key)
    if value is None:
        return None
    return tuple(unquote(part) for part in value.replace(",", " ").split() if part != NO_OBJECTS)


def _text(annotations: Mapping[str, Any], key: str) -> str | None:
    value = annotations.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(
            f"annotation {key} must be a string, but got {type(value).__name__} {value!r}: put it in quotes"
        )
    return value
