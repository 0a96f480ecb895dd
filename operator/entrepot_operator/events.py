"""Kubernetes Events, as shown by ``kubectl describe``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

LONGEST_MESSAGE = 1024  # limit of the API
_LONGEST_NAME = 200  # of the resource's name within the event's; a digest is appended


def event(
    about: Mapping[str, Any],
    what: str,
    *,
    type: str,
    reason: str,
    message: str,
    component: str,
    first: datetime,
    last: datetime,
    count: int = 1,
) -> dict[str, Any]:
    """The manifest of an Event.

    Args:
        about: ``namespace`` and ``name`` of a resource, and ``apiVersion``, ``kind`` and ``uid`` if known.
        what: identifies the Event among those of the resource: the same text always gives the same name.
        type: ``Normal`` or ``Warning``.
        reason: one word in CamelCase.
        message: human-readable; at most ``LONGEST_MESSAGE`` characters.
        component: that reports it.
        first, last: when it was seen, in UTC.
        count: how often.
    """
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{str(about['name'])[:_LONGEST_NAME].rstrip('.-')}.{digest}",
            "namespace": about["namespace"],
        },
        "involvedObject": dict(about),
        "type": type,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "firstTimestamp": _time(first),
        "lastTimestamp": _time(last),
        "count": count,
    }


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
