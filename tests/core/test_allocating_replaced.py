"""Values made in the store by a program whose store is killed and started again: the next store takes over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest
from entrepot import _core

ROWS = 1_000_000  # of eight bytes


def made_in_store(number: int) -> np.ndarray[Any, Any] | None:
    """A new array, if the store has memory for it."""
    before = _core.value_memory()["allocated"]
    made = np.full(ROWS, number)
    return made if _core.value_memory()["allocated"] > before else None


def wait_for_value(wait_until: Callable[..., None], number: int) -> np.ndarray[Any, Any]:
    """Make arrays until one of them is made in the store."""
    made: list[np.ndarray[Any, Any]] = []

    def make() -> bool:
        if (array := made_in_store(number)) is not None:
            made.append(array)
        return bool(made)

    wait_until(make, "a value made in the store")
    return made[0]


def replace(daemon: Any) -> None:
    with entrepot.connect(daemon.address, scope="tests") as store:
        daemon.kill(store)
    daemon.start()


@pytest.mark.parametrize("times", [1, 2])
def test_values_are_made_in_the_store_that_replaced_another(
    daemon: Any, wait_until: Callable[..., None], times: int
) -> None:
    with entrepot.connect(daemon.address, scope="tests") as store, store.allocating():
        for _ in range(times):
            before = wait_for_value(wait_until, 1)
            replace(daemon)
            copied = store.put(before)  # the request that finds the next store
            array = wait_for_value(wait_until, 2)
            sealed = _core.value_memory()["sealed"]
            oid = store.put({"numpy": array, "arrow": pa.array(array)})
            assert _core.value_memory()["sealed"] == sealed + 1, "sealed where it is"
            assert store.status()["leased_bytes"] > 0
            before[:] = array[:] = 9
            np.testing.assert_array_equal(store.get(copied), np.full(ROWS, 1))
            np.testing.assert_array_equal(store.get(oid)["numpy"], np.full(ROWS, 2))
    assert made_in_store(3) is None, "it has ended"


def test_what_began_before_a_replacement_ends_in_the_next_store(daemon: Any, wait_until: Callable[..., None]) -> None:
    """The leases are those of the store that is there when it ends."""
    with entrepot.connect(daemon.address, scope="tests") as store:
        allocating = store.allocating()
        allocating.start()
        wait_for_value(wait_until, 1)
        replace(daemon)
        store.put(b"finds the next store")
        wait_for_value(wait_until, 2)
        assert store.status()["leased_bytes"] > 0
        allocating.stop()
        wait_until(lambda: store.status()["leased_bytes"] == 0, "the lease to be returned")
