"""Reports pods' problems as Events on their controllers: controllers ignore warnings, people read Events."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from entrepot.errors import AccessDenied, EntrepotError

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.events import event_manifest
from entrepot_operator.placement.warnings import PlacementWarning
from entrepot_operator.webhook.admission_review import Review

log = logging.getLogger(__name__)

COMPONENT = "entrepot-webhook"
_QUEUE_SIZE = 1000
_MAX_HISTORIES = 1000  # each with its first time and count
_REPEAT_SECONDS = 60.0  # a set of pods with the same problem is one Event with a count
_MAX_MESSAGE = 1000
_LOG_INTERVAL_SECONDS = 600.0  # between log lines saying that Events cannot be written


@dataclass(frozen=True)
class EventTarget:
    """The target of an Event: the pod's controller, which exists already, or the pod itself."""

    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str


@dataclass
class _EventHistory:
    first: datetime
    count: int = 0
    written_at: float = float("-inf")


class EventReporter:
    """Writes Events in a thread of its own; reporting never blocks.

    Args:
        api: the cluster's, for this thread only.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._queue: queue.Queue[tuple[EventTarget, PlacementWarning] | None] = queue.Queue(_QUEUE_SIZE)
        self._histories: OrderedDict[tuple[EventTarget, str], _EventHistory] = OrderedDict()
        self._logged_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="entrepot-events", daemon=True)
        self._thread.start()

    def report(self, review: Review, warnings: list[PlacementWarning]) -> None:
        """Report the problems of a pod about to be created; drops what exceeds the queue."""
        target = event_target(review)
        if target is None:
            return
        for warning in warnings:
            try:
                self._queue.put_nowait((target, warning))
            except queue.Full:
                return

    def close(self) -> None:
        """Write what is queued, and stop."""
        try:
            self._queue.put(None, timeout=5)
        except queue.Full:
            return  # the thread hangs; it ends with the process
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                self._api.close()
                return
            self._write(*item)

    def _write(self, target: EventTarget, warning: PlacementWarning) -> None:
        key = (target, warning.code)
        now = self._api.now()
        history = self._histories.setdefault(key, _EventHistory(now))
        self._histories.move_to_end(key)
        if len(self._histories) > _MAX_HISTORIES:
            self._histories.popitem(last=False)
        history.count += 1
        if time.monotonic() - history.written_at < _REPEAT_SECONDS:
            return
        history.written_at = time.monotonic()
        manifest = _manifest(target, warning, history.first, now, history.count)
        path = f"/api/v1/namespaces/{target.namespace}/events/{manifest['metadata']['name']}"
        try:
            self._api.apply(path, manifest, COMPONENT)
        except EntrepotError as error:
            if time.monotonic() - self._logged_at > _LOG_INTERVAL_SECONDS:
                self._logged_at = time.monotonic()
                level = logging.ERROR if isinstance(error, AccessDenied) else logging.WARNING
                log.log(level, "cannot write Event: %s", error)


def event_target(review: Review) -> EventTarget | None:
    """The target of an Event about a new pod; None: neither the pod nor its controller has a name yet."""
    metadata: Mapping[str, Any] = review.pod["metadata"]
    for owner in metadata.get("ownerReferences") or []:
        if isinstance(owner, Mapping) and owner.get("controller") and owner.get("name"):
            owner_fields = (str(owner.get(key) or "") for key in ("apiVersion", "kind", "name", "uid"))
            return EventTarget(review.namespace, *owner_fields)
    name = metadata.get("name")
    return EventTarget(review.namespace, "v1", "Pod", str(name), "") if name and review.namespace else None


def _manifest(
    target: EventTarget, warning: PlacementWarning, first: datetime, last: datetime, count: int
) -> dict[str, Any]:
    """The manifest; the same problem of the same target is the same Event."""
    optional_fields = {"apiVersion": target.api_version, "kind": target.kind, "uid": target.uid}
    return event_manifest(
        {"namespace": target.namespace, "name": target.name}
        | {key: value for key, value in optional_fields.items() if value},
        f"{target.api_version}/{target.kind}/{target.name}/{target.uid}/{warning.code}",
        type="Warning",
        reason="".join(part.capitalize() for part in warning.code.split("-")),
        message=warning.text[:_MAX_MESSAGE],
        component=COMPONENT,
        first=first,
        last=last,
        count=count,
    )
