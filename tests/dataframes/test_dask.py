"""Ranks on the workers of a Dask cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import pytest
from entrepot_frames import Env, Executor, RankFailed, TooFewWorkers


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Client of a cluster of three workers with a process each."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as connected,
    ):
        yield connected


def distinct(env: Env) -> tuple[int, int]:
    """A program with exchanges; returns the rows and the process."""
    rows = env.from_local({"k": [number % 10 for number in range(100)]})
    return rows.drop_duplicates().count_rows(), os.getpid()


def test_each_rank_has_a_worker_of_its_own(store: entrepot.Store, client: Any) -> None:
    with Executor(3, on=client, store=store) as executor:
        results = executor.run(distinct).result(60)
        assert [rows for rows, _ in results] == [10] * 3
        assert {pid for _, pid in results} == set(client.run(os.getpid).values())
        assert executor.run(distinct).result(60) == results
    assert client.submit(lambda: 1).result(60) == 1


def test_several_executors_share_a_cluster_with_its_own_tasks(store: entrepot.Store, client: Any) -> None:
    with Executor(2, on=client, store=store) as first, Executor(2, on=client, store=store) as second:
        futures = [executor.run(distinct) for executor in (first, second, first, second)]
        tasks = client.map(lambda number: number + 1, range(20))
        assert client.gather(tasks) == list(range(1, 21))
        assert [rows for future in futures for rows, _ in future.result(60)] == [10] * 8


def test_programs_that_wait_for_each_other_do_not_keep_a_worker_from_another_executor(
    store: entrepot.Store, client: Any
) -> None:
    def wait_for_rows(env: Env) -> int:
        return env.get("rows-of-another-executor", timeout=60).count_rows()

    def make_rows(env: Env) -> None:
        env.put("rows-of-another-executor", env.from_local({"k": [env.rank]}))

    with Executor(3, on=client, store=store) as first, Executor(3, on=client, store=store) as second:
        waiting = first.run(wait_for_rows)
        second.run(make_rows).result(60)
        assert waiting.result(60) == [3] * 3


def test_too_few_workers_are_said(store: entrepot.Store, client: Any) -> None:
    before = {session.session for session in store.sessions()}
    with pytest.raises(TooFewWorkers, match="3 workers, and 4 ranks"):
        Executor(4, on=client, store=store)
    assert {session.session for session in store.sessions()} == before


def test_a_killed_worker_fails_the_program_and_is_replaced(
    store: entrepot.Store, client: Any, wait_until: Callable[..., None]
) -> None:
    def program(env: Env, die: bool) -> int:
        env.communicator.barrier()
        if die and env.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return env.from_local({"k": [1, env.rank]}).drop_duplicates().count_rows()

    with Executor(2, on=client, store=store) as executor:
        with pytest.raises(RankFailed, match="rank 1 failed") as caught:
            executor.run(program, True).result(120)
        assert caught.value.rank == 1
        assert executor.run(program, False).result(120) == [2, 2]
    # The cluster's nanny starts the worker again.
    wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 3, "three workers")
