"""More data than memory: values are spilled and reloaded, and survive every process of the store."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_io.connections import close_all, session_store
from entrepot_io.values import get_value, put_value

MIB = 1 << 20
VALUE = 4 * MIB


@pytest.fixture
def spilling(tmp_path: Path, new_daemon: Callable[..., Any]) -> Any:
    """A store of 64 MiB with a separate spill directory."""
    return new_daemon("64MiB", "--spill-path", str(tmp_path / "spill"), "--spill-quota", "1GiB")


@pytest.fixture
def small(spilling: Any) -> Iterator[entrepot.Store]:
    """Connection to that store."""
    with entrepot.connect(spilling.address, scope="tests") as connected:
        yield connected


def value(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(number).integers(0, 1 << 62, VALUE // 8)


def fill(store: entrepot.Store, count: int) -> list[entrepot.ObjectID]:
    return [store.put(value(number), name=f"v{number}") for number in range(count)]


def test_four_times_the_memory_is_reloaded_in_any_order(small: entrepot.Store) -> None:
    count = 4 * 64 * MIB // VALUE
    oids = fill(small, count)
    orders = [range(count), reversed(range(count)), np.random.default_rng(7).permutation(count)]
    for order in orders:
        for number in order:
            assert np.array_equal(small.get(oids[number]), value(int(number))), number
    status = small.status()
    assert status["objects"] == count
    assert status["spilled_bytes"] > 2 * 64 * MIB
    assert status["used_bytes"] <= 64 * MIB


def test_pin_evict_and_prefetch(small: entrepot.Store, wait_until: Callable[..., None]) -> None:
    oid, other = fill(small, 2)
    with small.pin(oid) as pin:
        small.evict(oid, other)
        wait_until(lambda: small.info(other).state == "spilled", "the other to leave")
        assert pin.pinned
        assert small.info(oid).state == "sealed"
    small.evict(oid)
    wait_until(lambda: small.info(oid).state == "spilled", "it to leave")
    assert "it was spilled" in small.info(oid).why
    assert small.exists(oid)
    assert small.info(oid).state == "spilled", "a question brings nothing back"
    assert {info.type for info in small.list()} == {"numpy.ndarray"}
    assert small.info(oid).state == "spilled"
    small.prefetch(oid, entrepot.ObjectID.random())
    wait_until(lambda: small.info(oid).state == "sealed", "it to come back")
    assert np.array_equal(small.get(oid), value(0))
    with pytest.raises(entrepot.ObjectNotFound):
        small.evict(entrepot.ObjectID.random())


def test_a_retried_task_finds_its_value_on_disk(small: entrepot.Store, wait_until: Callable[..., None]) -> None:
    oid = small.derive("task/1")
    small.put(value(1), id=oid)
    small.evict(oid)
    wait_until(lambda: small.info(oid).state == "spilled", "it to leave")
    assert small.put_versioned(value(1), id=oid).existed
    small.evict(oid)
    with pytest.raises(entrepot.ObjectExists):
        small.put(value(2), id=oid)


def test_a_full_quota_is_store_full_and_loses_nothing(
    tmp_path: Path, new_daemon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 5.0)
    daemon = new_daemon("64MiB", "--spill-path", str(tmp_path / "s"), "--spill-quota", "32MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = []
        message = None
        for number in range(40):
            try:
                oids.append(store.put(value(number)))
            except entrepot.StoreFull as error:
                message = str(error)
                break
        assert message is not None
        assert "spilled" in message
        assert len(oids) >= 18
        for number, oid in enumerate(oids):
            assert np.array_equal(store.get(oid), value(number))


def patterned(number: int, size: int) -> bytes:
    return (number.to_bytes(8, "little") * (size // 8 + 1))[:size]


@pytest.mark.parametrize("batch", [1, 100])
def test_ten_times_the_memory_in_medium_objects(tmp_path: Path, new_daemon: Callable[..., Any], batch: int) -> None:
    size, count = 17_000, 10 * 16 * MIB // 17_000
    daemon = new_daemon("16MiB", "--spill-path", str(tmp_path / "s"), "--spill-quota", "1GiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids: list[entrepot.ObjectID] = []
        while len(oids) < count:
            values = [patterned(len(oids) + i, size) for i in range(batch)]
            oids += store.put_many(values) if batch > 1 else [store.put(values[0])]
        for number, oid in enumerate(oids):
            assert store.get(oid) == patterned(number, size), number
        assert store.status()["budget"]["granted_bytes"] <= 18 * MIB


def test_ten_times_the_memory_in_objects_of_any_size(tmp_path: Path, new_daemon: Callable[..., Any]) -> None:
    random = np.random.default_rng(5)
    sizes: list[int] = []
    while sum(sizes) < 10 * 16 * MIB:
        sizes.append(int(2 ** random.uniform(0, 20)))
    daemon = new_daemon("16MiB", "--spill-path", str(tmp_path / "s"), "--spill-quota", "1GiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = [store.put(patterned(number, size)) for number, size in enumerate(sizes)]
        for number in random.permutation(len(oids)):
            assert store.get(oids[number]) == patterned(int(number), sizes[number]), number


def test_a_full_quota_refuses_medium_objects_until_some_are_deleted(
    tmp_path: Path, new_daemon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 5.0)
    size = 17_000
    daemon = new_daemon("16MiB", "--spill-path", str(tmp_path / "s"), "--spill-quota", "16MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids: list[entrepot.ObjectID] = []
        message = None
        while message is None and len(oids) < 4_000:
            try:
                oids.append(store.put(patterned(len(oids), size)))
            except entrepot.StoreFull as error:
                message = str(error)
        assert message is not None
        assert re.search(r"spilled \d+.* of 16 MiB", message), message
        assert len(oids) > 1_000
        for number, oid in enumerate(oids):
            assert store.get(oid) == patterned(number, size), number
        for oid in oids[:400]:
            store.delete(oid)
        further_oids = [store.put(patterned(number, size)) for number in range(200)]
        for number, oid in enumerate(further_oids):
            assert store.get(oid) == patterned(number, size), number


def test_a_reader_that_holds_all_the_memory_is_told_so(small: entrepot.Store) -> None:
    """As a put, a get without a time-out waits for room for 30 seconds: what its own process holds stays held."""
    oids = fill(small, 32)
    held: list[Any] = []
    began = time.monotonic()

    def read_all() -> None:
        nonlocal began
        for oid in oids:
            held.append(small.get(oid))
            began = time.monotonic()

    says = rf"is on disk: there is no room to reload it.*process {os.getpid()}\) pins \d+ objects"
    with pytest.raises(entrepot.StoreFull, match=says):
        read_all()
    assert 25 < time.monotonic() - began < 100
    read = len(held)
    assert 8 <= read < 32
    held.clear()
    assert np.array_equal(small.get(oids[read]), value(read))


def test_a_dead_daemon_is_not_noticed(small: entrepot.Store, wait_until: Callable[..., None]) -> None:
    oids = fill(small, 40)
    assert small.status()["follows_killed_store"] is False
    pid = small.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    for number, oid in enumerate(oids):
        assert np.array_equal(small.get(oid), value(number))
    assert small.status()["pid"] != pid


def test_what_was_on_disk_outlives_keeper_and_daemon(
    spilling: Any, small: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    reference = put_value(session_store(spilling.address, "tests", "run-1", 3600), "task/return_value", value(99))
    oids = fill(small, 8)
    with entrepot.connect(spilling.address, scope="tests", session="run-1") as run:
        run.evict(reference.id)
        small.evict(*oids[:6])
        wait_until(lambda: run.info(reference.id).state == "spilled", "the run's value to leave")
        wait_until(lambda: all(small.info(oid).state == "spilled" for oid in oids[:6]), "six values to leave")
        wait_until(lambda: small.status()["spill"]["unrecorded"] == 0, "the manifest to tell of them")
    spilling.kill(small)
    close_all()
    spilling.start()
    assert np.array_equal(get_value(reference, address=spilling.address), value(99)), "an old reference still holds"
    with entrepot.connect(spilling.address, scope="tests") as reconnected:
        for number in range(6):
            assert np.array_equal(reconnected.get_by_name(f"v{number}"), value(number))
        for oid in oids[6:]:
            assert not reconnected.exists(oid)
            with pytest.raises(entrepot.ObjectNotFound, match="were killed"):
                reconnected.get(oid)
        assert reconnected.status()["follows_killed_store"] is True
        reconnected.put(value(6), id=oids[6])
        assert np.array_equal(reconnected.get(oids[6]), value(6))


@pytest.mark.parametrize("size", [100, 1 << 20])
@pytest.mark.parametrize("new_id", [True, False])
def test_a_name_that_was_rebound_never_leads_to_its_former_object_on_disk(
    spilling: Any, small: entrepot.Store, wait_until: Callable[..., None], size: int, new_id: bool
) -> None:
    former = small.put(value(1), name="latest")
    small.evict(former)
    wait_until(lambda: small.info(former).state == "spilled", "the former value to leave")
    wait_until(lambda: small.status()["spill"]["unrecorded"] == 0, "the manifest to list it")
    if new_id:
        small.put(b"2" * size, name="latest", replace=True)
    else:  # a put that finds its content already sealed binds the name, too
        oid = small.put(b"2" * size)
        small.put(b"2" * size, id=oid, name="latest", replace=True)
    wait_until(lambda: small.status()["spill"]["unrecorded"] == 0, "the manifest to follow")
    spilling.kill(small)
    spilling.start()
    with entrepot.connect(spilling.address, scope="tests") as reconnected:
        with pytest.raises(entrepot.ObjectNotFound):
            reconnected.get_by_name("latest")
        assert np.array_equal(reconnected.get(former), value(1)), "it is there, without a name"


def test_a_clean_stop_leaves_nothing_on_disk(spilling: Any, small: entrepot.Store, tmp_path: Path) -> None:
    fill(small, 40)
    small.close()
    spilling.stop()
    left = [path for path in (tmp_path / "spill").rglob("*") if path.is_file() and path.stat().st_size > 4096]
    assert left == []
