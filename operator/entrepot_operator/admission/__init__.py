"""The mutating webhook: schedules a pod that declares its inputs near them, at the moment it is created.

It changes affinity, mounts, environment and its own annotation, nothing else, and never rejects a pod: without the
necessary knowledge it leaves the pod unchanged. ``serve`` starts it in the process that holds the location index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy import lazy_names

if TYPE_CHECKING:
    from entrepot_operator.admission.counting import Counters as Counters
    from entrepot_operator.admission.knowing import Knowledge as Knowledge
    from entrepot_operator.admission.running import Webhook as Webhook
    from entrepot_operator.admission.running import serve as serve
    from entrepot_operator.admission.settings import Settings as Settings

_HOME = {
    "Counters": "counting",
    "Knowledge": "knowing",
    "Settings": "settings",
    "Webhook": "running",
    "serve": "running",
}
__all__ = ["Counters", "Knowledge", "Settings", "Webhook", "serve"]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
