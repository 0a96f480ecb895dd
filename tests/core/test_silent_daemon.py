"""A stopped daemon or keeper: timeouts are still kept, and the error names the stopped process."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.errors import StoreUnavailable, Timeout

sys.path.insert(0, str(Path(__file__).parent))

from process_suspension import stopped

# A call without a timeout waits for 30 s or more; one that ends earlier has kept the caller's timeout.
PATIENCE_SECONDS = 20.0


def _failure(work: Callable[[], Any]) -> BaseException:
    """Return the error that it raises, before a call without a timeout would."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), f"it still waits after {PATIENCE_SECONDS:g} s"
    assert errors, "nothing was raised"
    return errors[0]


@pytest.mark.parametrize("ask", ["get", "get_many", "resolve"])
def test_a_time_out_is_kept_while_the_daemon_is_stopped(
    store: entrepot.Store, wait_until: Callable[..., None], ask: str
) -> None:
    missing = entrepot.ObjectID.random()
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: store.get(missing, timeout=1),
        "get_many": lambda: store.get_many([missing, entrepot.ObjectID.random()], timeout=1),
        "resolve": lambda: store.resolve("nothing", timeout=1),
    }
    pid = store.status()["pid"]
    with stopped(pid, wait_until):
        error = _failure(calls[ask])
    assert isinstance(error, Timeout)
    assert f"process {pid} of this store is stopped" in str(error)
    assert f"kill -CONT {pid}" in str(error)
    assert store.get(store.put(b"x" * 100_000)) == b"x" * 100_000


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "dead"])
def test_a_time_out_is_kept_by_a_get_from_memory_that_is_not_mapped_yet(
    store: entrepot.Store, python: Callable[..., Any], wait_until: Callable[..., None], dies: bool
) -> None:
    """The segment's descriptor comes from the daemon. What was mapped is read without it."""
    read_before = store.put(b"x" * 100_000)
    assert len(store.get(read_before)) == 100_000
    made = python("print(store.put(b'y' * 200_000))")
    assert made.returncode == 0, made.stderr
    status = store.status()
    held_up = status["keeper_pid"] if dies else status["pid"]
    with stopped(held_up, wait_until):
        if dies:
            os.kill(status["pid"], signal.SIGKILL)
        error = _failure(lambda: store.get(made.stdout.strip(), timeout=1))
        assert isinstance(error, Timeout)
        assert f"kill -CONT {held_up}" in str(error)
        assert store.get(read_before) == b"x" * 100_000
    assert store.get(made.stdout.strip()) == b"y" * 200_000


def test_a_time_out_is_kept_while_nobody_takes_the_connection_back(
    store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    status = store.status()
    with stopped(status["keeper_pid"], wait_until):
        os.kill(status["pid"], signal.SIGKILL)
        error = _failure(lambda: store.get(entrepot.ObjectID.random(), timeout=1))
        assert isinstance(error, Timeout)
        assert f"kill -CONT {status['keeper_pid']}" in str(error)


def test_what_does_not_exist_in_time_is_still_said_by_the_daemon(store: entrepot.Store) -> None:
    with pytest.raises(Timeout, match="was not sealed within 50 ms"):
        store.get(entrepot.ObjectID.random(), timeout=0.05)


def _appended(store: entrepot.Store) -> int:
    return int(store.status()["streams"][0]["appended"])


def test_a_put_that_waits_for_room_is_not_served_after_it_was_given_up(
    store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    stream = store.stream("full", capacity=1)
    writer = stream.writer()
    reader = stream.reader("all")
    writer.put(b"fills it")
    assert reader.get() == b"fills it"
    errors: list[BaseException] = []

    def put() -> None:
        errors.append(_failure(lambda: writer.put(b"waits for room", timeout=1)))

    thread = threading.Thread(target=put, daemon=True)
    pid = store.status()["pid"]
    thread.start()
    wait_until(lambda: store.status()["streams"][0]["writers_waiting"] == 1, "the put to wait for room")
    with stopped(pid, wait_until):
        thread.join(PATIENCE_SECONDS)
        assert isinstance(errors[0], Timeout)
        assert f"kill -CONT {pid}" in str(errors[0])
        assert "whether the chunk was appended is not known: it will not be from now on" in str(errors[0])
    reader.ack()  # makes room
    with pytest.raises(Timeout):
        reader.get(timeout=0)
    assert (_appended(store), store.status()["objects"]) == (1, 0)
    writer.put(b"next")
    assert reader.get() == b"next"
    with pytest.raises(Timeout) as refused:  # of a daemon that responds, it is known
        writer.put(b"no room", timeout=0.01)
    assert "not known" not in str(refused.value)
    stream.remove()


def test_a_put_into_a_stream_with_room_keeps_its_time_out(
    store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    stream = store.stream("wide", capacity=8)
    writer = stream.writer()
    writer.put(b"first")
    pid = store.status()["pid"]
    with stopped(pid, wait_until):
        error = _failure(lambda: writer.put(b"second", timeout=1))
        assert isinstance(error, Timeout)
        assert f"kill -CONT {pid}" in str(error)
    assert _appended(store) == 1
    writer.put(b"third")
    reader = stream.reader("all")
    assert [reader.get(), reader.get()] == [b"first", b"third"]
    stream.remove()


def test_a_put_into_a_stream_that_got_no_memory_in_time_was_certainly_not_appended(
    store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    stream = store.stream("wide", capacity=8)
    writer = stream.writer()
    with stopped(store.status()["pid"], wait_until):
        error = _failure(lambda: writer.put(bytes(20_000_000), timeout=1))
    assert isinstance(error, Timeout)
    assert "not known" not in str(error)
    assert (_appended(store), store.status()["objects"]) == (0, 0)
    stream.remove()


def test_a_new_connection_to_a_stopped_daemon_does_not_advise_to_start_another(
    store: entrepot.Store, wait_until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrepot._store.connection.CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("entrepot._store.connection._clients", {})
    pid = store.status()["pid"]
    with stopped(pid, wait_until):
        error = _failure(lambda: entrepot.connect(store.address))
    assert isinstance(error, StoreUnavailable)
    assert f"kill -CONT {pid}" in str(error)
    assert re.search(r"did not respond within [1-9][\d.]* s", str(error)), error  # measured: more on a busy machine
    assert "entrepot start" not in str(error)
