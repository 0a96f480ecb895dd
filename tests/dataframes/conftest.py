"""A store, and programs whose ranks are threads of the test's process: everything but the processes is real."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import entrepot
import pytest
from entrepot_frames.communicators.store_communicator import StoreCommunicator
from entrepot_frames.env import Env

RunRanks = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def store(module_daemon: Any) -> Iterator[entrepot.Store]:
    """Connection to a store of the module."""
    with entrepot.connect(module_daemon.address, scope="frames") as connected:
        yield connected


@pytest.fixture(scope="module")
def run_ranks(store: entrepot.Store) -> RunRanks:
    """Runs ``function(env)`` on ``size`` ranks, each in a thread, and returns what they return."""

    def run(size: int, function: Callable[[Env], Any], timeout: float = 60.0) -> list[Any]:
        group = uuid.uuid4().hex

        ranks = [StoreCommunicator(store, group, rank, size, timeout=timeout) for rank in range(size)]

        def run_rank(communicator: StoreCommunicator) -> Any:
            try:
                return function(Env(store, communicator))
            except Exception as error:
                communicator.fail(communicator.rank, f"{type(error).__name__}: {error}")
                raise

        with ThreadPoolExecutor(size) as pool:
            futures = [pool.submit(run_rank, communicator) for communicator in ranks]
        for communicator in ranks:
            communicator.settle()
        return [future.result() for future in futures]

    return run
