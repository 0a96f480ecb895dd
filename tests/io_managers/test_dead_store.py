"""The store dies between two values handed over by a process: behaviour of the adapters' cached connections."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from entrepot.errors import ObjectLost
from entrepot_io.connections import close_all, scope_store, session_store
from entrepot_io.values import get_by_key, get_value, put_value
from suspension import suspend

WRITER = """
import sys
import numpy as np
from entrepot_io.connections import scope_store
from entrepot_io.values import put_value

put_value(scope_store(sys.argv[1], "tests"), "key", np.full(100_000, 2))
"""


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


def replace(daemon: Any) -> None:
    status = scope_store(daemon.address, "tests").status()
    for pid in (status["keeper_pid"], status["pid"]):
        suspend(pid)
    for pid in (status["keeper_pid"], status["pid"]):
        os.kill(pid, signal.SIGKILL)
    daemon.was_killed(status["pid"])
    daemon.start()


def test_a_key_means_what_is_in_the_store_that_is_there_now(daemon: Any) -> None:
    put_value(scope_store(daemon.address, "tests"), "key", np.full(100_000, 1))
    value = get_by_key(scope_store(daemon.address, "tests"), "key")
    replace(daemon)
    subprocess.run([sys.executable, "-c", WRITER, daemon.address], check=True, timeout=60)
    # The dead store's value is still mapped in this process, but the key no longer refers to it.
    assert (get_by_key(scope_store(daemon.address, "tests"), "key") == 2).all()
    assert (value == 1).all()


@pytest.mark.parametrize("session", ["", "run"])
def test_a_reference_into_the_dead_store_is_lost(daemon: Any, session: str) -> None:
    store = session_store(daemon.address, "tests", session, None)
    reference = put_value(store, "key", np.full(100_000, 1))
    replace(daemon)
    with pytest.raises(ObjectLost):
        get_value(reference, address=daemon.address)
    # Through the connection that the orchestrator has kept all the time.
    again = put_value(store, "key", np.full(100_000, 3))
    assert again.instance != reference.instance
    assert (get_value(again, address=daemon.address) == 3).all()
    assert scope_store(daemon.address, "tests").instance_id == again.instance
