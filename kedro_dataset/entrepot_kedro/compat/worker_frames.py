"""Whether a worker process computes a node, of which nothing tells once the run was killed."""

from __future__ import annotations

import multiprocessing.process
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_RUNNERS = "kedro.runner"  # the package whose functions compute nodes
_BEGIN = multiprocessing.process.__name__  # the module whose function a worker process begins with


def is_computing() -> bool:
    """Return whether this process's main thread computes a node, or loads or saves what a node reads and makes."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == _BEGIN:
            return False  # below are the frames of the process that it was forked from
        if module.startswith(_RUNNERS):
            return True
        frame = frame.f_back
    return False
