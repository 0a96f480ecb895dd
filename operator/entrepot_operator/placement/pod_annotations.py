"""Parses and validates a pod's placement annotations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

from entrepot_operator.placement.names import (
    CONTAINERS,
    FIRST_ORDINAL,
    LOCALITY,
    MOUNTS,
    PARTITIONED,
    PARTITIONS,
    REQUIRES,
    STORE,
)

Locality = Literal["preferred", "required", "off"]
StoreRequirement = Literal["preferred", "required", "off"]
_LOCALITY_CHOICES = ("preferred", "required", "off")
_STORE_CHOICES = ("preferred", "required", "off")
_ID_PATTERN = re.compile(r"[0-9a-f]{40}")
_TEMPLATE_MARKER = "{{"  # filled in by a workflow engine when it creates the pod


@dataclass(frozen=True)
class PodAnnotations:
    """The annotations of one pod.

    Attributes:
        requires: objects that it reads.
        partitioned: objects of which each pod of an indexed set reads its own part.
        partitions: number of pods to distribute them over; None: one object for each pod.
        first_ordinal: the ordinal of the first of these pods.
        locality: ``"preferred"``: prefer nodes with the inputs; ``"required"``: only those; ``"off"``.
        store: whether the pod should run on a node with a store: ``"preferred"``, ``"required"`` or ``"off"``.
        mounts: whether its containers get the socket, shared memory and environment.
        containers: which containers; None: all.
        templated: annotations whose value is known only when the pod is created.
    """

    requires: tuple[str, ...] = ()
    partitioned: tuple[str, ...] = ()
    partitions: int | None = None
    first_ordinal: int = 0
    locality: Locality = "preferred"
    store: StoreRequirement = "preferred"
    mounts: bool = True
    containers: frozenset[str] | None = None
    templated: tuple[str, ...] = ()


def parse_annotations(annotations: Mapping[str, Any]) -> PodAnnotations:
    """Parse the annotations.

    Raises:
        InvalidArgument: one is invalid; the message names it and its value.
    """
    templated = [key for key in (REQUIRES, PARTITIONED) if _TEMPLATE_MARKER in str(annotations.get(key, ""))]
    container_names = None
    if CONTAINERS in annotations:
        container_names = frozenset(part.strip() for part in _text(annotations, CONTAINERS).split(",") if part.strip())
    return PodAnnotations(
        requires=() if REQUIRES in templated else parse_ids(_list(annotations, REQUIRES), f"annotation {REQUIRES}"),
        partitioned=()
        if PARTITIONED in templated
        else parse_ids(_list(annotations, PARTITIONED), f"annotation {PARTITIONED}"),
        partitions=_count(annotations, PARTITIONS, 1),
        first_ordinal=_count(annotations, FIRST_ORDINAL, 0) or 0,
        locality=cast("Locality", _choice(annotations, LOCALITY, _LOCALITY_CHOICES, "preferred")),
        store=cast("StoreRequirement", _choice(annotations, STORE, _STORE_CHOICES, "preferred")),
        mounts=_choice(annotations, MOUNTS, ("on", "off"), "on") == "on",
        containers=container_names,
        templated=tuple(templated),
    )


def parse_ids(values: Iterable[str | bytes | ObjectID], where: str) -> tuple[str, ...]:
    """Normalize object IDs to 40 hexadecimal digits, without duplicates, in order.

    Raises:
        InvalidArgument: one is not an object ID; the message says where it was.
    """
    if isinstance(values, (str, bytes, ObjectID)):
        raise InvalidArgument(f"{where} must be a list of object IDs, but got {type(values).__name__} {values!r}")
    unique_ids: dict[str, None] = {}
    for value in values:
        if isinstance(value, str) and _ID_PATTERN.fullmatch(value):  # the common case
            unique_ids[value] = None
            continue
        try:
            unique_ids[str(ObjectID(value))] = None
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {error}") from None
    return tuple(unique_ids)


def _list(annotations: Mapping[str, Any], key: str) -> list[str]:
    if key not in annotations:
        return []
    return [part for part in _text(annotations, key).replace(",", " ").split() if part != "none"]


def _text(annotations: Mapping[str, Any], key: str) -> str:
    value = annotations[key]
    if not isinstance(value, str):
        raise InvalidArgument(
            f"annotation {key} must be a string, but got {type(value).__name__} {value!r}: put it in quotes"
        )
    return value


def _choice(annotations: Mapping[str, Any], key: str, choices: tuple[str, ...], default: str) -> str:
    if key not in annotations:
        return default
    value = _text(annotations, key).strip()
    if value not in choices:
        raise InvalidArgument(f"annotation {key} must be one of {', '.join(choices)}, not {value!r}")
    return value


def _count(annotations: Mapping[str, Any], key: str, minimum: int) -> int | None:
    if key not in annotations:
        return None
    value = _text(annotations, key).strip()
    if not (value.isascii() and value.isdigit()) or len(value) > 9 or int(value) < minimum:
        raise InvalidArgument(f"annotation {key} must be an integer of {minimum} or more, not {value!r}")
    return int(value)
