"""Builds and parses pod annotations for the orchestrators: a task author's instructions about where its pods run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

from entrepot_io.placement import asked, names
from entrepot_io.placement.asked import Locality, StoreWish

NOTHING = "none"
_KEPT = "/:[]@.~"  # characters of a name not escaped in an annotation: all but those that separate names


@dataclass(frozen=True)
class Keyed:
    """Objects named by logical keys.

    Attributes:
        keys: within the session.
        scope: of the deployment that writes them.
        session: the one that contains them; None: the run's, which the orchestrator knows.
    """

    keys: tuple[str, ...]
    scope: str
    session: str | None

    def ids(self, run: str | None) -> list[str]:
        """Their IDs.

        Args:
            run: the session of the run; None: the orchestrator has none of that kind.

        Raises:
            InvalidArgument: neither the annotations nor the orchestrator determine the session.
        """
        session = run if self.session is None else self.session
        if session is None:
            raise InvalidArgument(
                f"annotation {names.KEYS} names {', '.join(self.keys)}, and nothing says in which session: add "
                f"{names.SESSION}"
            )
        return [str(ObjectID.derive(self.scope, session, key)) for key in self.keys]


def annotate(
    *,
    reads: Iterable[str] | None = None,
    requires: Iterable[str | bytes | ObjectID] | None = None,
    keys: Iterable[str] | None = None,
    scope: str | None = None,
    session: str | None = None,
    locality: Locality | None = None,
    store: StoreWish | None = None,
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
    made: dict[str, str] = {}
    if reads is not None:
        made[names.READS] = _names(reads, "reads") or NOTHING
    if requires is not None:
        made[names.REQUIRES] = ",".join(asked.ids(requires, "requires")) or NOTHING
    if keys is not None:
        made[names.KEYS] = _names(keys, "keys") or NOTHING
    made |= {
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
    asked.read(made)
    keyed(made)
    return made


def reads(said: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Names of the tasks whose outputs a pod reads; None: not stated in its annotations.

    Raises:
        InvalidArgument: the annotation is not a string.
    """
    return _listed(said, names.READS)


def keyed(said: Mapping[str, Any]) -> Keyed | None:
    """The objects that a pod's annotations name by keys; None: none.

    Raises:
        InvalidArgument: an annotation is not a string, or the scope is missing.
    """
    keys = _listed(said, names.KEYS)
    if not keys:
        return None
    scope = _text(said, names.SCOPE)
    if not scope:
        raise InvalidArgument(f"annotation {names.KEYS} needs {names.SCOPE}: the same key is another object there")
    return Keyed(keys, scope, _text(said, names.SESSION))


def asks(said: Mapping[str, Any]) -> bool:
    """Whether annotations contain anything about placement."""
    return any(key in said for key in names.ASKED)


def of_pod(pod: Any) -> Mapping[str, Any]:
    """The annotations of a pod (a dictionary or an object of the Kubernetes client)."""
    if isinstance(pod, Mapping):
        found = (pod.get("metadata") or {}).get("annotations")
    else:
        found = getattr(getattr(pod, "metadata", None), "annotations", None)
    return found or {}


def _names(values: Iterable[str], what: str) -> str:
    if isinstance(values, (str, bytes)):
        raise InvalidArgument(f"{what} is a list of names, but got {type(values).__name__} {values!r}")
    listed = list(values)
    for one in listed:
        if not isinstance(one, str) or not one:
            raise InvalidArgument(f"{what} is a list of names that are not empty, but one is {one!r}")
    return ",".join(quote(one, _KEPT) for one in dict.fromkeys(listed))


def _listed(said: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = _text(said, key)
    if value is None:
        return None
    return tuple(unquote(part) for part in value.replace(",", " ").split() if part != NOTHING)


def _text(said: Mapping[str, Any], key: str) -> str | None:
    value = said.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(
            f"annotation {key}: Kubernetes takes text only, but got {type(value).__name__} {value!r}: put it in quotes"
        )
    return value
