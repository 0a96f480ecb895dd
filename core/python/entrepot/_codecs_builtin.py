"""The one name of this path that pickled objects in stores and checkpoints contain; it must stay importable from here.

The codecs themselves are in :mod:`entrepot._codecs.builtin`.
"""

from __future__ import annotations

import pickle
from typing import Any


def _child_value(index: int) -> Any:
    """Placeholder in the pickle stream for child node ``index``; the unpickler substitutes the child's value."""
    raise pickle.UnpicklingError(f"child {index} of an Entrepot object: read it with entrepot, not with pickle")
