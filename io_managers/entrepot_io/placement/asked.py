"""Parses and validates a pod's placement annotations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

from entrepot_io.placement.names import (
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
StoreWish = Literal["preferred", "required", "off"]
_LOCALITIES = ("preferred", "required", "off")
_STORES = ("preferred", "required", "off")
_ID = re.compile(r"[0-9a-f]{40}")
_TEMPLATED = "{{"  # filled in by a workflow engine when it creates the pod


@dataclass(frozen=True)
class Asked:
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
    store: StoreWish = "preferred"
    mounts: bool = True
    containers: frozenset[str] | None = None
    templated: tuple[str, ...] = ()


def read(annotations: Mapping[str, Any]) -> Asked:
    """Parse the annotations.

    Raises:
        InvalidArgument: one is invalid; the message names it and its value.
    """
    templated = [key for key in (REQUIRES, PARTITIONED) if _TEMPLATED in str(annotations.get(key, ""))]
    named = None
    if CONTAINERS in annotations:
        named = frozenset(part.strip() for part in _text(annotations, CONTAINERS).split(",") if part.strip())
    return Asked(
        requires=() if REQUIRES in templated else ids(_list(annotations, REQUIRES), f"annotation {REQUIRES}"),
        partitioned=()
        if PARTITIONED in templated
        else ids(_list(annotations, PARTITIONED), f"annotation {PARTITIONED}"),
        partitions=_count(annotations, PARTITIONS, 1),
        first_ordinal=_count(annotations, FIRST_ORDINAL, 0) or 0,
        locality=cast("Locality", _choice(annotations, LOCALITY, _LOCALITIES, "preferred")),
        store=cast("StoreWish", _choice(annotations, STORE, _STORES, "preferred")),
        mounts=_choice(annotations, MOUNTS, ("on", "off"), "on") == "on",
        containers=named,
        templated=tuple(templated),
    )


def ids(values: Iterable[str | bytes | ObjectID], where: str) -> tuple[str, ...]:
    """Normalize object IDs to 40 hexadecimal digits, without duplicates, in order.

    Raises:
        InvalidArgument: one is not an object ID; the message says where it was.
    """
    if isinstance(values, (str, bytes, ObjectID)):
        raise InvalidArgument(f"{where}: a list of object IDs is wanted, but got {type(values).__name__} {values!r}")
    found: dict[str, None] = {}
    for value in values:
        if isinstance(value, str) and _ID.fullmatch(value):  # the common case
            found[value] = None
            continue
        try:
            found[str(ObjectID(value))] = None
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {error}") from None
    return tuple(found)


def _list(annotations: Mapping[str, Any], key: str) -> list[str]:
    if key not in annotations:
        return []
    return [part for part in _text(annotations, key).replace(",", " ").split() if part != "none"]


def _text(annotations: Mapping[str, Any], key: str) -> str:
    value = annotations[key]
    if not isinstance(value, str):
        raise InvalidArgument(
            f"annotation {key}: Kubernetes takes text only, but got {type(value).__name__} {value!r}: put it in quotes"
        )
    return value


def _choice(annotations: Mapping[str, Any], key: str, choices: tuple[str, ...], default: str) -> str:
    if key not in annotations:
        return default
    value = _text(annotations, key).strip()
    if value not in choices:
        raise InvalidArgument(f"annotation {key} is one of {', '.join(choices)}, not {value!r}")
    return value


def _count(annotations: Mapping[str, Any], key: str, least: int) -> int | None:
    if key not in annotations:
        return None
    value = _text(annotations, key).strip()
    if not (value.isascii() and value.isdigit()) or len(value) > 9 or int(value) < least:
        raise InvalidArgument(f"annotation {key} is a whole number from {least} on, not {value!r}")
    return int(value)
