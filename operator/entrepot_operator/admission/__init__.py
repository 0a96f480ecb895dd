"""The mutating webhook: a pod that says what it reads is drawn there at the moment when it is made.

It changes affinity, mounts, environment and its own annotation, nothing else, and it never refuses a pod: what it
cannot know leaves the pod as it is. ``serve`` starts it beside whoever keeps the index of where objects are.
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
