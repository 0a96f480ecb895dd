"""A held pod is drawn to where its objects are by the time that it goes. Pure."""

from __future__ import annotations

from typing import Any

from entrepot_io.placement.names import Site

from entrepot_operator.admission.knowing import Knowledge
from entrepot_operator.admission.patching import Operation
from entrepot_operator.admission.reviewing import decide

# All that the API server lets anybody change in the spec of a pod that a gate holds, and our record of it. What was
# mounted when it was made stays.
_AFFINITY, _ANNOTATIONS = "/spec/affinity", "/metadata/annotations"


def drawing(pod: dict[str, Any], known: Knowledge, site: Site) -> list[Operation]:
    """The JSON patch that draws a held pod to its objects, by its affinity alone; empty: it cannot be, or need not.

    When it was made its objects may not have been there, so that nothing drew it anywhere.

    Args:
        pod: as it is stored.
        known: where objects are now.
        site: how stores are set up, as the webhook had it.
    """
    # As it was made, with the store mounted or without: only what makes no difference to that may be written.
    for mounts in (True, False):
        patch = decide(pod, known, site, mounts=mounts).patch
        if all(_is_allowed(step["path"]) for step in patch):
            return patch
    return []


def _is_allowed(path: str) -> bool:
    return path in (_AFFINITY, _ANNOTATIONS) or path.startswith(f"{_ANNOTATIONS}/")
