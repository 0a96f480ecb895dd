"""The end of a runner's worker process whose run was killed.

Python's pools leave their workers waiting for ever when the process that has the pool is killed. What such a worker
has in memory, above all the inputs of a node that failed, the store could not give to anybody else.

    computes nodes of its run --the process of the run exits--> computes its current node --done, or failed--> ends

A thread of the worker looks for both. It ends no worker that is computing, or is saving what it has computed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from entrepot_kedro.compat.worker_frames import is_computing
from entrepot_kedro.log import logger

if TYPE_CHECKING:
    from entrepot_kedro.run_owner import RunOwner

EXIT_CODE = 1
_INTERVAL_SECONDS = 1.0

_owner: RunOwner | None = None  # the process of the run whose values were used last; set as a whole, by any thread
_watched_in = 0  # the process that has the thread; set by the main thread, which computes the nodes


def note_owner(owner: RunOwner) -> None:
    """Note which process the run of a value belongs to that is used here."""
    global _owner
    _owner = owner


def note_node() -> None:
    """Note that this process computes a node; if it is a worker, a thread begins to look after its run."""
    global _watched_in
    if multiprocessing.parent_process() is None or _watched_in == os.getpid():
        return
    _watched_in = os.getpid()
    threading.Thread(target=_watch, name="entrepot-run", daemon=True).start()


def _watch() -> None:
    while not _is_left_behind():
        time.sleep(_INTERVAL_SECONDS)
    logger.warning("Entrepot: the run of this worker process was killed, so it ends")
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(EXIT_CODE)  # the main thread waits for the next node, and could not be woken


def _is_left_behind() -> bool:
    owner = _owner
    return owner is not None and not owner.is_this_process and owner.has_exited() and not is_computing()
