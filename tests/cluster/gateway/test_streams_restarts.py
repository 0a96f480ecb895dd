"""Streams over hosts when a daemon is killed and restarted: every end gets an error that says so, and never an end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest
from entrepot.errors import EntrepotError, StoreUnavailable, StreamEnded, StreamFailed
from in_thread import in_thread

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]
PATIENCE = 90.0


class Ends(NamedTuple):
    """A stream that a far host writes, and one that it reads."""

    far_writer: Any
    home_reader: Any
    home_writer: Any
    far_reader: Any


def connected(home: Any, far: Any, name: str) -> Ends:
    """Both, each with a chunk that has arrived."""
    written = home.store.stream(f"{name} written", cluster=True, capacity=2)
    read = home.store.stream(f"{name} read", cluster=True, capacity=2)
    ends = Ends(
        far.store.stream(f"{name} written", cluster=True).writer(),
        written.reader("group"),
        read.writer(),
        far.store.stream(f"{name} read", cluster=True).reader("group"),
    )
    for writer, reader in ((ends.far_writer, ends.home_reader), (ends.home_writer, ends.far_reader)):
        writer.put(bytes(100_000), timeout=PATIENCE)
        assert len(reader.get(timeout=PATIENCE)) == 100_000
    return ends


def use(ends: Ends) -> dict[str, Future[Any]]:
    """Wait for chunks that do not come, and put more than there is room for."""

    def fill(writer: Any) -> None:
        for _ in range(100):
            writer.put(bytes(100_000), timeout=PATIENCE)

    return {
        "far writer": in_thread(lambda: fill(ends.far_writer)),
        "far reader": in_thread(lambda: ends.far_reader.get(timeout=PATIENCE)),
    }


def restart_daemon(host: Any, wait_until: Callable[..., None]) -> None:
    pid = host.store.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: host.store.status()["pid"] != pid, "the daemon to be restarted")


def read_on(reader: Any) -> EntrepotError:
    """Read what is left, up to the error."""
    try:
        for _ in range(1000):
            reader.get(timeout=PATIENCE)
    except EntrepotError as error:
        return error
    raise AssertionError("there is no end of chunks")


@pytest.mark.parametrize("restarted", [pytest.param("home", marks=pytest.mark.exhaustive), "far"])
def test_all_ends_fail(cluster: Any, wait_until: Callable[..., None], restarted: str) -> None:
    home, far = cluster.host("home"), cluster.host("far")
    ends = connected(home, far, "restarted")
    uses = use(ends)
    restart_daemon(home if restarted == "home" else far, wait_until)
    for what, running in uses.items():
        error = running.exception(PATIENCE)
        assert isinstance(error, (StreamFailed, StoreUnavailable)), what
    error = read_on(ends.home_reader)
    assert isinstance(error, (StreamFailed, StoreUnavailable))
    assert not isinstance(error, StreamEnded)
    again = connected(home, far, "next")  # both hosts have streams again
    again.home_writer.close()
    with pytest.raises(StreamEnded):
        again.far_reader.get(timeout=PATIENCE)
