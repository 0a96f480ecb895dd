"""A session is open for a client until the client closes it or ends, whatever becomes of the daemon meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import entrepot
from entrepot.garbage import unused_sessions
from suspension import standing_still

WaitUntil = Callable[..., None]


def kill_daemon(observer: entrepot.Store, wait_until: WaitUntil) -> None:
    """Kill the daemon and wait until its keeper has started another."""
    before = observer.status()
    os.kill(before["pid"], signal.SIGKILL)
    wait_until(lambda: observer.status()["pid"] != before["pid"], "another daemon", 60)


def test_it_stays_open_for_a_client_that_has_no_reason_to_reconnect(daemon: Any, wait_until: WaitUntil) -> None:
    idle = entrepot.connect(daemon.address, scope="tests", session="run")
    idle.session("run", ttl=1).close()
    oid = idle.put(b"kept")
    with entrepot.connect(daemon.address, scope="tests") as observer:
        kill_daemon(observer, wait_until)
        observer.session("began after it", ttl=1).close()
        wait_until(lambda: [each.session for each in observer.sessions() if each.session] == ["run"], "its expiry")
        assert not unused_sessions(observer, "tests")
        assert idle.get(oid) == b"kept"
        idle.close()
        wait_until(lambda: not [each for each in observer.sessions() if each.session], "the other's expiry")


def test_it_ends_with_a_client_that_dies_while_there_is_no_daemon(
    daemon: Any, spawn: Callable[..., Any], wait_until: WaitUntil
) -> None:
    client = spawn("store.session('run').put(b'left'); print('put', flush=True); sys.stdin.readline()")
    assert client.stdout.readline() == "put\n"
    with entrepot.connect(daemon.address) as observer:
        status = observer.status()
        scope = next(each.scope for each in observer.sessions() if each.session == "run")
        assert not unused_sessions(observer, scope)
        with standing_still(status["keeper_pid"]):
            os.kill(status["pid"], signal.SIGKILL)
            client.kill()
            client.wait(30)
        wait_until(lambda: list(unused_sessions(observer, scope)) == ["run"], "the session to be unused", 60)


def test_closing_it_while_there_is_no_daemon_is_made_up_for(daemon: Any, wait_until: WaitUntil) -> None:
    store = entrepot.connect(daemon.address, scope="tests")
    run = store.session("run")
    run.put(b"left")
    with entrepot.connect(daemon.address, scope="tests") as observer:
        status = observer.status()
        with standing_still(status["keeper_pid"]):
            os.kill(status["pid"], signal.SIGKILL)
            run.close()
        wait_until(lambda: observer.status()["pid"] != status["pid"], "another daemon", 60)
        assert not unused_sessions(observer, "tests")  # nobody could tell that daemon
        store.put(b"reconnects")
        assert list(unused_sessions(observer, "tests")) == ["run"]
    store.close()


def test_a_value_that_is_still_in_use_does_not_keep_it_open(daemon: Any) -> None:
    store = entrepot.connect(daemon.address, scope="tests", session="run")
    value = store.get(store.put(b"v" * 1_000_000))
    store.close()
    with entrepot.connect(daemon.address, scope="tests") as observer:
        assert list(unused_sessions(observer, "tests")) == ["run"]
        assert len(observer.status()["clients"]) == 2
        assert bytes(value[:1]) == b"v"
