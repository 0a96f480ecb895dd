"""Recomputable objects are dropped instead of spilled if that costs less, and reported as dropped until recomputed."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.cli import main
from entrepot.errors import InvalidArgument, ObjectDropped, ObjectLost, ObjectNotFound

MIB = 1 << 20
VALUE = 4 * MIB
CHEAP_SECONDS, EXPENSIVE_SECONDS = 1e-5, 600.0  # in seconds: less than any disk takes, more than any


def value(number: int) -> np.ndarray[Any, Any]:
    return np.full(VALUE // 8, number)


def dropped(store: entrepot.Store, oid: entrepot.ObjectID) -> bool:
    try:
        store.info(oid)
    except ObjectDropped:
        return True
    return False


def fill(store: entrepot.Store, drops: int) -> list[entrepot.ObjectID]:
    """Put values until this many others have been dropped."""
    oids = []
    while store.status()["drops"] < drops:
        oids.append(store.put(value(99)))
    return oids


def test_the_cheap_are_dropped_and_the_dear_are_spilled(tmp_path: Path, new_daemon: Callable[..., Any]) -> None:
    daemon = new_daemon("64MiB", "--spill-path", str(tmp_path / "spill"), "--spill-quota", "1GiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = []
        for number in range(64):  # four times the memory
            oid = store.put(value(number), name=f"v{number}")
            store.hint(oid, recompute_seconds=CHEAP_SECONDS if number % 2 else EXPENSIVE_SECONDS)
            oids.append(oid)
        status = store.status()
        dropped_numbers = [number for number, oid in enumerate(oids) if dropped(store, oid)]
        assert len(dropped_numbers) >= 16, "half of what does not fit, at the least"
        assert all(number % 2 for number in dropped_numbers)
        assert status["drops"] == status["dropped"] == len(dropped_numbers)
        assert status["drops_bytes"] == len(dropped_numbers) * VALUE
        assert status["spill"]["written_bytes"] <= 32 * VALUE, "of what can be dropped nothing is written"
        for number, oid in enumerate(oids):  # each reload takes the memory of other droppable objects
            if number % 2 == 0:
                assert np.array_equal(store.get(oid), value(number))


def test_a_dropped_value_says_what_happened_and_what_to_do(
    new_daemon: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = new_daemon("64MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        oid = store.put(value(1), name="features")
        assert store.info(oid).recompute_seconds is None
        store.hint(oid, recompute_seconds=0.4)
        assert store.info(oid).recompute_seconds == pytest.approx(0.4, rel=1e-3)
        assert "can be recomputed" in store.info(oid).why
        fillers = fill(store, 1)
        assert dropped(store, oid)
        for _ in range(2):
            with pytest.raises(ObjectDropped, match=r"recomputing it \(0\.4 s.*Rerun the task") as caught:
                store.get(oid)
            assert isinstance(caught.value, ObjectLost)
            with pytest.raises(ObjectDropped):
                store.get_by_name("features")
            assert not store.exists(oid)
            with pytest.raises(ObjectNotFound):
                store.hint(oid, recompute_seconds=1)
            pid = store.status()["pid"]
            os.kill(pid, signal.SIGKILL)  # the next daemon knows it too
        assert main(["info", "features", "--address", daemon.address, "--scope", "tests"]) != 0
        assert "was dropped: memory was short" in capsys.readouterr().err
        for filler in fillers[:4]:
            store.delete(filler)
        assert store.put(value(1), id=oid, name="features") == oid
        assert np.array_equal(store.get_by_name("features"), value(1))
        assert store.info(oid).made_again


def test_what_is_read_or_taken_back_is_not_dropped(new_daemon: Callable[..., Any]) -> None:
    daemon = new_daemon("64MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = [store.put(value(number)) for number in range(4)]
        for oid in oids:
            store.hint(oid, recompute_seconds=CHEAP_SECONDS)
        pinned_value = store.get(oids[0])
        store.hint(oids[1], recompute_seconds=math.inf)
        store.hint(oids[2], keep=True)
        fill(store, 1)  # the others are older, and would have been dropped first
        assert [dropped(store, oid) for oid in oids] == [False, False, False, True]
        assert np.array_equal(pinned_value, value(0))


def test_bad_hints_are_refused(daemon: Any) -> None:
    with entrepot.connect(daemon.address, scope="tests") as store:
        oid = store.put(value(0))
        for wrong in (-1.0, math.nan, "1s"):
            with pytest.raises(InvalidArgument, match="a number of seconds"):
                store.hint(oid, recompute_seconds=wrong)  # type: ignore[arg-type]
        locality_set = store.locality_set("s")
        with pytest.raises(InvalidArgument, match="are for objects"):
            store.hint(locality_set, recompute_seconds=1.0)
        with pytest.raises(ObjectNotFound):
            store.hint(entrepot.ObjectID.random(), recompute_seconds=1.0)
