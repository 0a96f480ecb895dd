"""What the profiles that come with the package say of the engines that connect."""

from __future__ import annotations

import sys
import threading
from typing import Any

from entrepot_pipes.profiles.shipped import dialect_hints

_lock = threading.Lock()
_warned: set[str] = set()  # guarded by _lock


def known_dialect(engine: str, version: str) -> dict[str, Any]:
    """The fields of an engine's dialect that its user does not choose; of a version outside its profile, none."""
    return dialect_hints(engine, version, _warn_once) if engine else {}


def _warn_once(message: str) -> None:
    with _lock:
        first = message not in _warned
        _warned.add(message)
    if first:
        print(f"entrepot pipe run: {message}", file=sys.stderr)
