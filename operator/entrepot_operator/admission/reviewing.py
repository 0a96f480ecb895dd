"""Decides about one pod, as a pure function of the pod and the view of the cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrepot.errors import EntrepotError
from entrepot_io.placement import asked, record, shapes
from entrepot_io.placement.injecting import Injection, Surroundings, explain
from entrepot_io.placement.names import ANNOTATIONS_MAX_BYTES, INJECTED, Site
from entrepot_io.placement.reasons import Reason

from entrepot_operator.admission.counting import Result
from entrepot_operator.admission.knowing import Knowledge
from entrepot_operator.admission.patching import Operation, difference

NOT_SYNCED = "not-synced"
INVALID = "invalid"
TOO_LARGE = "too-large"


@dataclass(frozen=True)
class Verdict:
    """The decision about one pod.

    Attributes:
        result: how it is counted.
        patch: the changes to the pod.
        reasons: what to report: problems, and why the pod is unchanged.
    """

    result: Result
    patch: list[Operation] = field(default_factory=list[Operation])
    reasons: list[Reason] = field(default_factory=list[Reason])


def decide(pod: dict[str, Any], known: Knowledge, site: Site, *, mounts: bool = True) -> Verdict:
    """Decide about one pod, without modifying it.

    Args:
        pod: as it would be stored.
        known: where objects are.
        site: configuration of the stores.
        mounts: whether the store's socket may be mounted; where hostPath volumes are forbidden, a pod with it would be
            rejected.
    """
    if not known.synced:
        return _as_it_is("unknown", NOT_SYNCED, "where objects are is not known now: the pod stays as it is")
    try:
        shapes.check(pod)
        annotations: Mapping[str, Any] = (pod.get("metadata") or {}).get("annotations") or {}
        wish = asked.read(annotations)
        named = dict.fromkeys((*wish.requires, *wish.partitioned))
        if record.is_in(pod) and _knew_more(annotations[INJECTED], len(named)):
            return Verdict("unchanged")
        around = Surroundings(placed=not _of_daemon_set(pod), mounts=mounts)
        done = explain(pod, None, known.locations(named), nodes=known.nodes(), site=site, around=around)
    except EntrepotError as error:
        return _as_it_is("invalid", INVALID, f"{error}: the pod stays as it is")
    if record.is_in(pod) and done.found.unknown and not done.found.located:
        # It was injected from another source of locations, such as the store itself.
        return Verdict("unchanged", reasons=done.problems)
    after: Mapping[str, Any] = done.pod["metadata"].get("annotations") or {}
    size = sum(len(str(key).encode()) + len(str(value).encode()) for key, value in after.items())
    if size > ANNOTATIONS_MAX_BYTES and INJECTED in after:
        text = (
            f"with the record its annotations would have {size} bytes, and the API server takes {ANNOTATIONS_MAX_BYTES}"
        )
        return _as_it_is("invalid", TOO_LARGE, f"{text}: the pod stays as it is; require a collection instead")
    patch = difference(pod, done.pod)
    return Verdict("injected" if patch else "unchanged", patch, _told(done, wish, mounts))


def _told(done: Injection, wish: asked.Asked, mounts: bool) -> list[Reason]:
    told = done.problems
    if wish.mounts and not mounts:
        told.append(
            Reason("no-mounts", "hostPath volumes are forbidden here, so the store's socket is not mounted in the pod")
        )
    return told


def _knew_more(text: Any, named: int) -> bool:
    """Whether an earlier injection knew of more objects than the annotations name, as the orchestrators' plugins do."""
    try:
        return bool(json.loads(text)["objects"]["required"] > named)
    except (ValueError, TypeError, KeyError):
        return False  # parsing the record reports what is wrong with it


def _of_daemon_set(pod: Mapping[str, Any]) -> bool:
    owners = (pod.get("metadata") or {}).get("ownerReferences") or []
    return any(isinstance(one, Mapping) and one.get("kind") == "DaemonSet" for one in owners)


def _as_it_is(result: Result, code: str, text: str) -> Verdict:
    return Verdict(result, reasons=[Reason(code, text)])
