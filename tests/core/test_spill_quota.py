"""A spill quota that is used up: what is refused, what the error says, and that all that is stored can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest

MIB = 1 << 20


@pytest.fixture(autouse=True)
def short_waits_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full store is what these tests wait for: 30 seconds each by default."""
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 5.0)


@pytest.fixture
def store_with_quota(tmp_path: Path, new_daemon: Callable[..., Any]) -> Callable[[str], entrepot.Store]:
    """``store_with_quota("30MiB")``: a store of 64 MiB that may write so much."""

    def start(quota: str) -> entrepot.Store:
        daemon = new_daemon("64MiB", "--spill-path", str(tmp_path / "spill"), "--spill-quota", quota)
        return entrepot.connect(daemon.address, scope="tests")

    return start


def value(number: int, nbytes: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(number).integers(0, 1 << 62, nbytes // 8)


def put_until_full(store: entrepot.Store, nbytes: int) -> tuple[list[entrepot.ObjectID], str]:
    """Put values until the store is full; return their IDs and the error's message."""
    oids: list[entrepot.ObjectID] = []
    for number in range(100):
        try:
            oids.append(store.put(value(number, nbytes)))
        except entrepot.StoreFull as error:
            return oids, str(error)
    pytest.fail(f"100 values of {nbytes} bytes were put, and the store was never full")


# Three values of 20 MiB fit into memory, and one stays clean or unwritten so that those on disk can be read.
@pytest.mark.parametrize(("quota", "count"), [("30MiB", 3), ("45MiB", 4)])
def test_new_values_leave_room_to_read_back_what_is_on_disk(
    store_with_quota: Callable[[str], entrepot.Store], quota: str, count: int
) -> None:
    with store_with_quota(quota) as store:
        oids, message = put_until_full(store, 20 * MIB)
        assert len(oids) == count
        assert f"of {quota[:-3]} MiB (of the spill quota" in message
        assert "start the daemon with a larger --size or --spill-quota" in message
        for number in [*range(count), *reversed(range(count))]:
            assert np.array_equal(store.get(oids[number]), value(number, 20 * MIB)), number


def test_a_value_too_large_for_the_quota_does_not_keep_others_in_memory(
    store_with_quota: Callable[[str], entrepot.Store],
) -> None:
    """It is the first that would leave memory, and is passed over."""
    with store_with_quota("16MiB") as store:
        large = store.put(value(1000, 20 * MIB))
        oids, message = put_until_full(store, 4 * MIB)
        assert len(oids) * 4 > 64 - 20, "more than fits into memory beside it"
        assert store.status()["spilled_bytes"] >= 4 * MIB
        assert "--spill-quota" in message
        for number, oid in enumerate(oids):
            assert np.array_equal(store.get(oid), value(number, 4 * MIB)), number
        assert np.array_equal(store.get(large), value(1000, 20 * MIB))


def test_a_large_value_that_was_deleted_is_not_kept_room_for(
    store_with_quota: Callable[[str], entrepot.Store], wait_until: Callable[..., None]
) -> None:
    with store_with_quota("32MiB") as store:
        large = store.put(value(1000, 24 * MIB))
        store.evict(large)
        wait_until(lambda: store.info(large).state == "spilled", "the large value to leave memory")
        kept = store.put(value(1001, MIB))
        store.evict(kept)
        wait_until(lambda: store.info(kept).state == "spilled", "the small one to leave memory")
        assert store.delete(large)
        oids, _ = put_until_full(store, 4 * MIB)
        # All of memory but the last segment, and all of the quota but what one value of 4 MiB needs to be read back.
        assert len(oids) * 4 > 64 + 32 - 20
        for number, oid in enumerate(oids):
            assert np.array_equal(store.get(oid), value(number, 4 * MIB)), number


def test_an_eviction_by_hand_is_not_subject_to_the_reserve(
    store_with_quota: Callable[[str], entrepot.Store], wait_until: Callable[..., None]
) -> None:
    """The user's word counts. What is on disk can be read again after something was deleted, and the error says so."""
    with store_with_quota("30MiB") as store:
        oids, _ = put_until_full(store, 20 * MIB)
        store.evict(oids[0])
        wait_until(lambda: store.info(oids[0]).state == "spilled", "it to leave memory")
        last = store.put(value(3, 20 * MIB))
        with pytest.raises(entrepot.StoreFull, match=r"no room to reload it.*larger --size or --spill-quota"):
            store.get(oids[0], timeout=1)
        assert store.delete(last)
        assert np.array_equal(store.get(oids[0]), value(0, 20 * MIB))
