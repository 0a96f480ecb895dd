"""The mutating webhook: schedules a pod that declares its inputs near them, at the moment it is created.

It changes affinity, mounts, environment and its own annotation, nothing else, and never rejects a pod: without the
necessary knowledge it leaves the pod unchanged. ``serve`` starts it in the process that holds the location index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot_operator.webhook.cluster_view import ClusterView as ClusterView
    from entrepot_operator.webhook.main import Webhook as Webhook
    from entrepot_operator.webhook.main import serve as serve
    from entrepot_operator.webhook.metrics import Counters as Counters
    from entrepot_operator.webhook.settings import Settings as Settings

_HOME = {
    "ClusterView": "cluster_view",
    "Counters": "metrics",
    "Settings": "settings",
    "Webhook": "main",
    "serve": "main",
}
__all__ = ["ClusterView", "Counters", "Settings", "Webhook", "serve"]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
