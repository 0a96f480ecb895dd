"""What a store takes of the machine's memory, everything counted: within its size and a margin of 2 MiB."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest

MIB = 1 << 20


def memfds(pid: int) -> int:
    """Bytes that the memfds have which a process holds, as the kernel counts them."""
    seen: dict[int, int] = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(fd).startswith("/memfd:"):
                info = fd.stat()
                seen[info.st_ino] = info.st_blocks * 512
    return sum(seen.values())


def pin_tables(pid: int) -> int:
    """The same of pin tables alone."""
    seen: dict[int, int] = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(fd).startswith("/memfd:entrepot-pins"):
                info = fd.stat()
                seen[info.st_ino] = info.st_blocks * 512
    return sum(seen.values())


@pytest.fixture
def forked() -> Iterator[Callable[[int], None]]:
    """``forked(count)``: so many children of this process, alive until the test ends."""
    children: list[int] = []

    def fork(count: int) -> None:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            children.append(pid)

    yield fork
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_two_hundred_forked_clients_take_little(
    store: entrepot.Store, forked: Callable[[int], None], wait_until: Callable[..., None]
) -> None:
    store.put(b"before")
    pid = store.status()["pid"]
    before = pin_tables(pid)
    forked(200)
    wait_until(lambda: len(store.status()["clients"]) >= 201, "the children to be registered")
    assert pin_tables(pid) - before < 4 * MIB


def test_a_table_grows_with_what_is_held_and_outlives_daemon_and_fork(
    store: entrepot.Store, daemon: Any, wait_until: Callable[..., None]
) -> None:
    first = pin_tables(store.status()["pid"])
    oids = [store.put(np.full(1 << 13, number)) for number in range(2_000)]
    held = [store.get(oid) for oid in oids]
    status = store.status()
    assert next(client for client in status["clients"] if client["pid"] == os.getpid())["pins"] == 2_000
    assert first < pin_tables(status["pid"]) <= first + (16 << 10)

    pid = os.fork()
    if pid == 0:
        good = int(store.get(oids[1_999])[0]) == 1_999 and int(held[1_500][-1]) == 1_500
        os._exit(0 if good else 1)
    assert os.waitpid(pid, 0)[1] == 0

    os.kill(status["pid"], signal.SIGKILL)  # the next daemon finds the table as it has grown
    wait_until(lambda: store.status()["pid"] != status["pid"], "another daemon to take over")
    assert next(c for c in store.status()["clients"] if c["pid"] == os.getpid())["pins"] == 2_000
    store.delete(oids)
    assert all(int(value[0]) == number for number, value in enumerate(held))
    assert store.status()["deferred_frees"] == 2_000
    more = [store.get(store.put(np.full(1 << 13, 7))) for _ in range(1_500)]
    assert all(int(value[0]) == 7 for value in more)
