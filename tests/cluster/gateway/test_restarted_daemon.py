"""Just after a daemon was restarted, its gateway is not back yet, and what is elsewhere is waited for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from entrepot.errors import EntrepotError
from entrepot_io.values import get_value, put_value
from suspension import suspend

pytestmark = pytest.mark.timeout(120)


def restart_daemon(host: Any, wait_until: Callable[..., None]) -> None:
    pid = host.store.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: host.store.status()["pid"] != pid, "the daemon to be restarted")


def test_reads_of_what_is_elsewhere_wait_for_the_gateway(two_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = two_hosts
    reference = put_value(a.store, "by reference", "value")
    by_id = a.store.put("by ID", name="named")
    a.store.publish(by_id)
    suspend(b.gateway_pid)
    read: dict[str, Any] = {}

    def note(what: str, call: Callable[[], Any]) -> None:
        try:
            read[what] = call()
        except EntrepotError as error:
            read[what] = error

    reads = {
        "reference": lambda: get_value(reference, address=b.address),
        "ID": lambda: b.store.get(by_id),
        "name": lambda: b.store.get_by_name("named", timeout=60),
    }
    readers = [threading.Thread(target=note, args=each) for each in reads.items()]
    try:
        restart_daemon(b, wait_until)
        for reader in readers:
            reader.start()
        wait_until(lambda: b.store.status()["gateway"]["calls"] == len(readers), "all of them to wait for the gateway")
        assert not read
    finally:
        os.kill(b.gateway_pid, signal.SIGCONT)
    for reader in readers:
        reader.join(60)
    assert read == {"reference": "value", "ID": "by ID", "name": "by ID"}


@pytest.mark.exhaustive
def test_a_gateway_that_has_left_is_not_waited_for(two_hosts: Any, wait_until: Callable[..., None]) -> None:
    _, b = two_hosts
    b.signal_gateway(signal.SIGTERM)
    assert b.wait_gateway() == 0
    restart_daemon(b, wait_until)
    assert not b.store.status()["gateway"]["serves"]
