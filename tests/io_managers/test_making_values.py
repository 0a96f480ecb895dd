"""Values made in the store by default: what the process of a task does that may need no store at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from daemon_of_another_version import DaemonOfAnotherVersion
from entrepot import _core
from entrepot.errors import InvalidArgument, StoreUnavailable, VersionMismatch
from entrepot_io.connections import ANSWER_SECONDS, close_all, make_values_in_store, scope_store
from suspension import suspend

VALUES = 1_000_000  # of eight bytes
# Connecting without a limit of its own takes 30 s to give up.
PATIENCE_SECONDS = 15.0
WITH_DURABLE_TIER = """
import sys
import numpy as np
from entrepot import _core
from entrepot_io.connections import make_values_in_store

make_values_in_store(sys.argv[1], "tests", required=False)
assert np.ones(1_000_000).sum() == 1_000_000
memory = _core.value_memory()
print(memory["allocated"] + memory["refused"], "fsspec" in sys.modules)
"""


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


def made_in_store() -> bool:
    """Whether a new array is made in the store. It may be refused while the store has no memory ready."""
    before = _core.value_memory()["allocated"]
    assert np.ones(VALUES).sum() == VALUES
    return bool(_core.value_memory()["allocated"] > before)


def test_a_stopped_store_delays_a_task_for_a_moment_only(daemon: Any, wait_until: Callable[..., None]) -> None:
    status = scope_store(daemon.address, "tests").status()
    close_all()
    pids = (status["keeper_pid"], status["pid"])
    for pid in pids:
        suspend(pid)
    try:
        begin = time.monotonic()
        make_values_in_store(daemon.address, "tests", required=False)
        assert time.monotonic() - begin < PATIENCE_SECONDS
        assert not made_in_store()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    make_values_in_store(daemon.address, "tests", required=False)
    wait_until(made_in_store, "a value made in the store that runs again")


@pytest.mark.parametrize("required", [False, True], ids=["default", "set"])
def test_a_store_that_stops_later_does_not_delay_the_next_task(
    daemon: Any, wait_until: Callable[..., None], required: bool
) -> None:
    """Values are made in the store already, so nobody asks it again."""
    make_values_in_store(daemon.address, "tests", required=required)
    wait_until(made_in_store, "a value made in the store")
    with entrepot.connect(daemon.address, scope="tests") as store:
        status = store.status()
    pids = (status["keeper_pid"], status["pid"])
    for pid in pids:
        suspend(pid)
    try:
        begin = time.monotonic()
        make_values_in_store(daemon.address, "tests", required=required)
        assert time.monotonic() - begin < ANSWER_SECONDS / 2
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    wait_until(made_in_store, "a value made in the store that runs again")


def test_values_are_made_in_the_store_that_replaced_another(daemon: Any, wait_until: Callable[..., None]) -> None:
    make_values_in_store(daemon.address, "tests", required=False)
    wait_until(made_in_store, "a value made in the store")
    with entrepot.connect(daemon.address, scope="tests") as store:
        daemon.kill(store)
    make_values_in_store(daemon.address, "tests", required=False)  # nothing listens
    daemon.start()
    make_values_in_store(daemon.address, "tests", required=False)
    wait_until(made_in_store, "a value made in the new store")


def test_the_durable_tier_is_not_loaded(daemon: Any, tmp_path: Path) -> None:
    environment = os.environ | {"ENTREPOT_DURABLE": str(tmp_path)}
    command = [sys.executable, "-c", WITH_DURABLE_TIER, daemon.address]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    requests, loaded = done.stdout.split()
    assert int(requests) > 0  # the store was asked for the array's memory
    assert loaded == "False"


def test_a_store_that_cannot_be_used_is_an_error_only_if_it_is_set(daemon: Any, socket_folder: Path) -> None:
    another = DaemonOfAnotherVersion(f"{socket_folder}/other.sock", daemon.address, (9, 0))
    unusable = {
        another.address: VersionMismatch,
        f"unix://{socket_folder}/nothing.sock": StoreUnavailable,
        "tcp://127.0.0.1:9": InvalidArgument,
    }
    try:
        for address, error in unusable.items():
            make_values_in_store(address, "tests", required=False)
            assert not made_in_store()
            with pytest.raises(error):
                make_values_in_store(address, "tests", required=True)
            assert not made_in_store()
    finally:
        another.close()
