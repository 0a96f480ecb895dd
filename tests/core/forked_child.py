"""Runs a part of a test in a forked child."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def in_child(work: Callable[[], None]) -> Callable[[], None]:
    """Fork; the child runs ``work`` and exits. Call the result to wait for it; it fails with the child's traceback."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(code)
    os.close(write)

    def wait() -> None:
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read().decode()
        _, status = os.waitpid(pid, 0)
        assert status == 0, text or f"the child ended with status {status}"

    return wait
