"""A session is open for a client until the client closes it or ends, whatever becomes of the daemon meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import pytest
from entrepot.garbage import unused_sessions
from suspension import standing_still

WaitUntil = Callable[..., None]
HOLD_RUN = """
run = store.session("run", ttl=1)
print(run.put(b"kept"), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def observer(daemon: Any) -> Iterator[entrepot.Store]:
    """Another client: stores of one process at one address share theirs."""
    with entrepot.connect(daemon.address, scope="tests") as store:
        yield store


def named_sessions(observer: entrepot.Store) -> list[str]:
    return [each.session for each in observer.sessions() if each.session]


def test_it_stays_open_for_a_client_that_has_no_reason_to_reconnect(
    observer: entrepot.Store, spawn: Callable[..., Any], wait_until: WaitUntil
) -> None:
    client = spawn(HOLD_RUN)
    assert client.stdout.readline()
    killed = observer.status()["pid"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: observer.status()["pid"] != killed, "another daemon", 60)
    observer.session("began after it", ttl=1).close()
    wait_until(lambda: named_sessions(observer) == ["run"], "its expiry")
    assert not unused_sessions(observer, "tests")
    client.kill()
    wait_until(lambda: not named_sessions(observer), "the other's expiry")


def test_it_ends_with_a_client_that_dies_while_there_is_no_daemon(
    observer: entrepot.Store, spawn: Callable[..., Any], wait_until: WaitUntil
) -> None:
    client = spawn(HOLD_RUN)
    assert client.stdout.readline()
    assert not unused_sessions(observer, "tests")
    status = observer.status()
    with standing_still(status["keeper_pid"]):
        os.kill(status["pid"], signal.SIGKILL)
        client.kill()
        client.wait(30)
    wait_until(lambda: not named_sessions(observer), "the session's expiry", 60)


def test_closing_it_while_there_is_no_daemon_is_made_up_for(
    observer: entrepot.Store, spawn: Callable[..., Any], wait_until: WaitUntil
) -> None:
    client = spawn(
        """
        run = store.session("run")
        run.put(b"left")
        for line in sys.stdin:
            exec(line)
            print("done", flush=True)
        """
    )

    def execute(line: str) -> None:
        client.stdin.write(line + "\n")
        client.stdin.flush()
        assert client.stdout.readline() == "done\n"

    execute("pass")
    status = observer.status()
    with standing_still(status["keeper_pid"]):
        os.kill(status["pid"], signal.SIGKILL)
        execute("run.close()")
    wait_until(lambda: observer.status()["pid"] != status["pid"], "another daemon", 60)
    assert not unused_sessions(observer, "tests"), "its client could tell no daemon"
    execute("store.put(b'reconnects')")
    assert list(unused_sessions(observer, "tests")) == ["run"]


def test_a_value_that_is_still_in_use_does_not_keep_it_open(
    observer: entrepot.Store, spawn: Callable[..., Any]
) -> None:
    client = spawn(
        """
        run = store.session("run")
        value = run.get(run.put(b"v" * 1_000_000))
        store.close()
        run.close()  # the last of this client's
        print("closed", flush=True)
        sys.stdin.readline()
        """
    )
    assert client.stdout.readline() == "closed\n"
    assert list(unused_sessions(observer, "tests")) == ["run"]
    assert len(observer.status()["clients"]) == 2, "the value's process"
