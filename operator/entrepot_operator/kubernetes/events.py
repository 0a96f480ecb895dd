"""Kubernetes Events, as shown by ``kubectl describe``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

MAX_MESSAGE_LENGTH = 1024  # limit of the API
_MAX_NAME_LENGTH = 200  # of the resource's name within the event's; a digest is appended


def event_manifest(
    involved_object: Mapping[str, Any],
    identity: str,
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
        involved_object: ``namespace`` and ``name`` of a resource, and ``apiVersion``, ``kind`` and ``uid`` if known.
        identity: identifies the Event among those of the resource: the same text always gives the same name.
        type: ``Normal`` or ``Warning``.
        reason: one word in CamelCase.
        message: human-readable; at most ``MAX_MESSAGE_LENGTH`` characters.
        component: that reports it.
        first, last: when it was seen, in UTC.
        count: how often.
    """
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{str(involved_object['name'])[:_MAX_NAME_LENGTH].rstrip('.-')}.{digest}",
            "namespace": involved_object["namespace"],
        },
        "involvedObject": dict(involved_object),
        "type": type,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "firstTimestamp": _timestamp(first),
        "lastTimestamp": _timestamp(last),
        "count": count,
    }


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
