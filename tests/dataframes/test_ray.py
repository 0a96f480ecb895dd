"""Ranks as actors of a Ray cluster."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import entrepot
import numpy as np
import psutil
import pytest
from entrepot_frames import Env, Executor, RankFailed, TooFewWorkers

sys.path.insert(0, str(Path(__file__).with_name("ray_cluster")))

if TYPE_CHECKING:
    from ray_drivers import RayDriver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's processes cannot import tests


@pytest.fixture(scope="module")
def driver() -> Iterator[RayDriver]:
    """A program that is connected to a cluster of three CPUs."""
    pytest.importorskip("ray", reason="Ray is not installed (it has no wheel for this Python)")
    from ray_drivers import ray_driver

    folder = tempfile.mkdtemp(prefix="er-", dir="/tmp")  # Ray's sockets lie there, whose paths have to be short
    try:
        with ray_driver(folder) as started:
            yield started
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def opened(address: str) -> entrepot.Store:
    return entrepot.connect(address, scope="frames")


def distinct(env: Env) -> tuple[int, int]:
    """A program with exchanges; returns the rows and the process."""
    rows = env.from_local({"k": [number % 10 for number in range(100)]})
    return rows.drop_duplicates().count_rows(), os.getpid()


def dying(env: Env, die: bool) -> int:
    """A program of which a rank may die."""
    env.communicator.barrier()
    if die and env.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return env.from_local({"k": [1, env.rank]}).drop_duplicates().count_rows()


def test_ranks_run_and_are_replaced_when_they_die(store: entrepot.Store, driver: RayDriver) -> None:
    def program(address: str) -> tuple[Any, Any, Any, Any]:
        with opened(address) as own, Executor(2, on="ray", store=own) as executor:
            first, second = (executor.run(distinct).result(60) for _ in range(2))
            try:
                executor.run(dying, True).result(120)
            except RankFailed as error:
                return first, second, (error.rank, str(error)), executor.run(dying, False).result(120)
            raise AssertionError("the program has survived a rank")

    first, second, (rank, message), after = driver.run(program, store.address)
    assert [rows for rows, _ in first] == [10, 10]
    assert first == second  # in the same processes
    assert len({pid for _, pid in first}) == 2
    assert rank == 1
    assert "its actor is gone" in message
    assert after == [2, 2]


def test_too_few_cpus_are_said(store: entrepot.Store, driver: RayDriver) -> None:
    def program(address: str) -> str:
        import ray

        with opened(address) as own:
            try:
                Executor(2, on="ray", store=own, threads=2)
            except TooFewWorkers as error:
                assert not [group for group in ray.util.placement_group_table().values() if group["state"] != "REMOVED"]
                return str(error)
        raise AssertionError("it has found four CPUs")

    before = {session.session for session in store.sessions()}
    assert "has 3 CPUs, and 2 ranks need 4 CPUs (threads=2 each)" in driver.run(program, store.address)
    assert {session.session for session in store.sessions()} == before


@pytest.mark.exhaustive
def test_data_sets_are_collections(store: entrepot.Store, driver: RayDriver) -> None:
    def program(address: str) -> tuple[list[int], list[str], Any]:
        import ray
        from entrepot_frames import from_collection, to_collection

        with opened(address) as own:
            numbers = ray.data.range(1000, override_num_blocks=4).map_batches(lambda rows: {"n": rows["id"] * 2})
            to_collection(numbers, "numbers", store=own)
            tables = from_collection("numbers", "ray.data", store=own)
            tensors = from_collection("tensors", "ray.data", store=own)
            sums = tables.sum("n"), tensors.map_batches(lambda rows: {"s": rows["data"].sum(axis=1)}).sum("s")
            return sorted(row["n"] for row in tables.take_all()), tensors.schema().names, sums

    builder = store.collection("tensors")
    for index in range(3):
        builder.put(np.full((10, 4), index), index=index)
    builder.seal(3)
    numbers, columns, sums = driver.run(program, store.address)
    assert numbers == list(range(0, 2000, 2))
    assert columns == ["data"]
    assert sums == (999_000, 120)
    assert sorted(store.get_by_name("numbers").to_arrow()["n"].to_pylist()) == numbers


@pytest.mark.exhaustive
def test_actors_leave_when_their_program_is_killed(
    store: entrepot.Store, driver: RayDriver, wait_until: Callable[..., None]
) -> None:
    from ray_drivers import ray_driver

    def program(address: str) -> list[int]:
        executor = Executor(2, on="ray", store=opened(address))  # its thread keeps it until the program ends
        return [pid for _, pid in executor.run(distinct).result(60)]

    with ray_driver(driver.address) as other:
        pids = other.run(program, store.address)
        assert all(psutil.pid_exists(pid) for pid in pids)
        other.process.kill()
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), "the ranks to end")
