"""The process of a rank: ``python -m entrepot_frames.executors.process_main FD``; started by ``ProcessWorkers``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from entrepot_frames.executors.messages import RankSetup, Task
from entrepot_frames.executors.rank_runtime import RankRuntime


def main() -> None:
    """Run tasks until the executor closes the connection or dies; then end at once, whatever the program does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the executor's process decides
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    runtime = RankRuntime(RankSetup(**connection.recv()))
    tasks: SimpleQueue[Task] = SimpleQueue()

    def read() -> None:
        try:
            while True:
                tasks.put(connection.recv())
        except (EOFError, OSError):
            try:
                runtime.leave()
            finally:
                os._exit(0)

    threading.Thread(target=read, name="frames-messages", daemon=True).start()
    while True:
        connection.send(runtime.run(tasks.get()))


if __name__ == "__main__":
    main()
