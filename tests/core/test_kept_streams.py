"""Streams that keep their chunks, with a daemon that is stopped: a put ends in time, and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import StoreFull, Timeout, _core
from entrepot._collections.builder import CollectionBuilder
from suspension import standing_still

TIMEOUT = 1.0
PATIENCE_SECONDS = 15.0  # a request without a limit of its own takes 30 s to give up
MIB = 1 << 20


def ends_in_time(call: Callable[[], Any]) -> str:
    """Check that a call raises Timeout, and soon; return the message."""
    begin = time.monotonic()
    with pytest.raises(Timeout) as caught:
        call()
    assert time.monotonic() - begin < PATIENCE_SECONDS
    return str(caught.value)


def check_members(store: entrepot.Store, expected: list[bytes]) -> None:
    """The collection has exactly what the stream had."""
    with store.stream("kept").reader() as reader:
        assert list(reader) == expected
    assert list(store.collection("kept").seal(len(expected))) == expected


def test_a_put_ends_in_time_while_the_daemon_is_stopped(store: entrepot.Store) -> None:
    pid = store.status()["pid"]
    with store.stream("kept", keep=True).writer() as writer:
        writer.put(b"first")
        with standing_still(pid):
            message = ends_in_time(lambda: writer.put(b"late", timeout=TIMEOUT))
        assert f"process {pid} of this store is stopped" in message
        writer.put(b"second", timeout=60)
    check_members(store, [b"first", b"second"])


@pytest.mark.parametrize("goes_on", ["put", "close"])
def test_a_member_that_is_stored_after_its_put_gave_up_is_deleted(
    store: entrepot.Store, wait_until: Callable[..., None], monkeypatch: pytest.MonkeyPatch, goes_on: str
) -> None:
    """The daemon is stopped when it has answered all but the last request, which it carries out later."""
    pid = store.status()["pid"]
    late = store.collection("kept").member_id(1)
    put_member = CollectionBuilder._put_member  # pyright: ignore[reportPrivateUsage]
    with store.stream("kept", keep=True).writer() as writer:
        writer.put(b"first")

        def stop_first(*arguments: Any) -> bool:
            with standing_still(pid):
                return put_member(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(CollectionBuilder, "_put_member", stop_first)
            ends_in_time(lambda: writer.put(b"late", timeout=TIMEOUT))
        wait_until(lambda: store.exists(late), "the late member to be stored")
        if goes_on == "put":
            writer.put(b"second")
    check_members(store, [b"first", b"second"] if goes_on == "put" else [b"first"])
    assert store.exists(late) is (goes_on == "put")


def test_the_time_out_also_bounds_the_wait_for_memory(new_daemon: Callable[..., Any]) -> None:
    daemon = new_daemon("64MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        filling = store.put(np.zeros(50 * MIB, np.uint8))
        with store.stream("kept", keep=True).writer() as writer:
            begin = time.monotonic()
            with pytest.raises(StoreFull):
                writer.put(np.ones(20 * MIB, np.uint8), timeout=TIMEOUT)
            assert time.monotonic() - begin < PATIENCE_SECONDS
            assert store.delete(filling)
            writer.put(np.ones(20 * MIB, np.uint8), timeout=60)
        assert len(store.collection("kept").seal()) == 1


def test_the_shorter_of_two_deadlines_counts(store: entrepot.Store) -> None:
    def ask() -> None:
        with _core.RequestDeadline(TIMEOUT), _core.RequestDeadline(600), _core.RequestDeadline(0):
            store.status()

    with standing_still(store.status()["pid"]):
        ends_in_time(ask)
    ask()
