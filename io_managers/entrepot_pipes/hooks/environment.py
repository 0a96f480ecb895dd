"""The environment in which Python processes, and their children, load the hooks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

LOADER = Path(__file__).with_name("loader")


def hooked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` with the hooks' folder first in PYTHONPATH.

    Programs that run with ``python -I`` or ``-E`` ignore it, and have no hooks.
    """
    path = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry) != LOADER]
    return {**environment, "PYTHONPATH": os.pathsep.join([str(LOADER), *path])}
