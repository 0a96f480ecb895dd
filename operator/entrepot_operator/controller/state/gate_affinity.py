"""Updates a held pod's affinity, when it is released, to where its objects now are. Pure."""

from __future__ import annotations

from typing import Any

from entrepot_operator.placement.names import ClusterConfig
from entrepot_operator.webhook.cluster_view import ClusterView
from entrepot_operator.webhook.handler import decide
from entrepot_operator.webhook.json_patch import Operation

# All that the API server allows to change in the spec of a gated pod, and our record of it. Mounts added at its
# creation stay.
_AFFINITY, _ANNOTATIONS = "/spec/affinity", "/metadata/annotations"


def affinity_patch(pod: dict[str, Any], view: ClusterView, cluster_config: ClusterConfig) -> list[Operation]:
    """The JSON patch that schedules a held pod near its objects, by affinity only; empty: impossible or unnecessary.

    When the pod was created, its objects may not have existed, so nothing attracted it.

    Args:
        pod: as stored.
        view: where objects are now.
        cluster_config: configuration of the stores, as the webhook had it.
    """
    # Repeat the decision made at its creation, with mounts or without: only a patch that leaves these alone is valid.
    for mounts in (True, False):
        patch = decide(pod, view, cluster_config, mounts=mounts).patch
        if all(_is_allowed(step["path"]) for step in patch):
            return patch
    return []


def _is_allowed(path: str) -> bool:
    return path in (_AFFINITY, _ANNOTATIONS) or path.startswith(f"{_ANNOTATIONS}/")
