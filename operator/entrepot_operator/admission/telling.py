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
from entrepot_io.cluster.api import Api
from entrepot_io.placement.reasons import Reason

from entrepot_operator.admission.requests import Review
from entrepot_operator.events import event

log = logging.getLogger(__name__)

COMPONENT = "entrepot-webhook"
_WAITING = 1000
_REMEMBERED = 1000  # each with its first time and count
_AGAIN_SECONDS = 60.0  # a set of pods with the same problem is one Event with a count
_MAX_MESSAGE = 1000
_TOLD_AGAIN_SECONDS = 600.0  # between log lines saying that Events cannot be written


@dataclass(frozen=True)
class About:
    """The target of an Event: the pod's controller, which exists already, or the pod itself."""

    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str


@dataclass
class _Seen:
    first: datetime
    count: int = 0
    written: float = float("-inf")


class Teller:
    """Writes Events in a thread of its own; reporting never blocks.

    Args:
        api: the cluster's, for this thread only.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._waiting: queue.Queue[tuple[About, Reason] | None] = queue.Queue(_WAITING)
        self._seen: OrderedDict[tuple[About, str], _Seen] = OrderedDict()
        self._complained = float("-inf")
        self._thread = threading.Thread(target=self._run, name="entrepot-events", daemon=True)
        self._thread.start()

    def tell(self, review: Review, reasons: list[Reason]) -> None:
        """Report the problems of a pod about to be created; drops what exceeds the queue."""
        about = subject(review)
        if about is None:
            return
        for one in reasons:
            try:
                self._waiting.put_nowait((about, one))
            except queue.Full:
                return

    def close(self) -> None:
        """Write what is queued, and stop."""
        try:
            self._waiting.put(None, timeout=5)
        except queue.Full:
            return  # the thread hangs; it ends with the process
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            item = self._waiting.get()
            if item is None:
                self._api.close()
                return
            self._write(*item)

    def _write(self, about: About, reason: Reason) -> None:
        key = (about, reason.code)
        now = self._api.now()
        seen = self._seen.setdefault(key, _Seen(now))
        self._seen.move_to_end(key)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        seen.count += 1
        if time.monotonic() - seen.written < _AGAIN_SECONDS:
            return
        seen.written = time.monotonic()
        one = _manifest(about, reason, seen.first, now, seen.count)
        path = f"/api/v1/namespaces/{about.namespace}/events/{one['metadata']['name']}"
        try:
            self._api.apply(path, one, COMPONENT)
        except EntrepotError as error:
            if time.monotonic() - self._complained > _TOLD_AGAIN_SECONDS:
                self._complained = time.monotonic()
                level = logging.ERROR if isinstance(error, AccessDenied) else logging.WARNING
                log.log(level, "an Event cannot be written: %s", error)


def subject(review: Review) -> About | None:
    """The target of an Event about a new pod; None: neither the pod nor its controller has a name yet."""
    metadata: Mapping[str, Any] = review.pod["metadata"]
    for owner in metadata.get("ownerReferences") or []:
        if isinstance(owner, Mapping) and owner.get("controller") and owner.get("name"):
            named = (str(owner.get(key) or "") for key in ("apiVersion", "kind", "name", "uid"))
            return About(review.namespace, *named)
    name = metadata.get("name")
    return About(review.namespace, "v1", "Pod", str(name), "") if name and review.namespace else None


def _manifest(about: About, reason: Reason, first: datetime, last: datetime, count: int) -> dict[str, Any]:
    """The manifest; the same problem of the same target is the same Event."""
    known = {"apiVersion": about.api_version, "kind": about.kind, "uid": about.uid}
    return event(
        {"namespace": about.namespace, "name": about.name} | {key: value for key, value in known.items() if value},
        f"{about.api_version}/{about.kind}/{about.name}/{about.uid}/{reason.code}",
        type="Warning",
        reason="".join(part.capitalize() for part in reason.code.split("-")),
        message=reason.text[:_MAX_MESSAGE],
        component=COMPONENT,
        first=first,
        last=last,
        count=count,
    )
