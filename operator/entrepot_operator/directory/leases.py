"""Leases of instances: resources of ``coordination.k8s.io/v1``, valid by the API server's clock.

none ──grant──▶ valid ──release──▶ none
                │  ▲ └──not kept──▶ ended ──grant──▶ valid
                └──┘ keep, or grant to another holder
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from entrepot_operator.directory.server_clock import timestamp
from entrepot_operator.directory.shards import labels
from entrepot_operator.kubernetes.objects import lease_path, parse_time

Manifest = dict[str, Any]
MIN_SECONDS = 1


@dataclass(frozen=True)
class HeldLease:
    """A lease as it was read.

    Attributes:
        number: of the instance.
        token: of its holder.
        renewed: when, in seconds since 1970 by the server's clock.
        seconds: how long it lasts from then on.
        version: its resourceVersion.
    """

    number: int
    token: str
    renewed: float
    seconds: int
    version: int

    def valid(self, now: float) -> bool:
        """Whether it has not ended."""
        return now < self.renewed + self.seconds


def lease_of(namespace: str, cluster: str, number: int | None = None) -> str:
    """The API path of an instance's lease; without a number, of all leases."""
    return lease_path(namespace, "" if number is None else lease_name(cluster, number))


def lease_name(cluster: str, number: int) -> str:
    """The name of an instance's lease."""
    return f"entrepot-directory.{cluster}.{number:08x}"


def lease_manifest(
    cluster: str, number: int, token: str, seconds: float, now: float, version: int | None = None
) -> Manifest:
    """A lease that is granted or kept now; ``version``: that of the one that it replaces."""
    metadata: Manifest = {"name": lease_name(cluster, number), "labels": labels(cluster)}
    if version is not None:
        metadata["resourceVersion"] = str(version)
    spec = {
        "holderIdentity": token,
        "leaseDurationSeconds": max(MIN_SECONDS, math.ceil(seconds)),
        "renewTime": timestamp(now),
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def parse_lease(cluster: str, resource: Mapping[str, Any]) -> HeldLease | None:
    """Parse a lease with the directory's label; None: it is none of an instance, or something else wrote it."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    match = re.fullmatch(rf"entrepot-directory\.{re.escape(cluster)}\.([0-9a-f]{{8}})", str(metadata["name"]))
    renewed = parse_time(spec.get("renewTime"))
    if match is None or renewed is None:
        return None
    return HeldLease(
        number=int(match[1], 16),
        token=str(spec.get("holderIdentity") or ""),
        renewed=renewed.timestamp(),
        seconds=int(spec.get("leaseDurationSeconds") or 0),
        version=int(metadata["resourceVersion"]),
    )
