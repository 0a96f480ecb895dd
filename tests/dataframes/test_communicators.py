"""What every communicator does; run for each implementation."""

from __future__ import annotations

import time
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument, Timeout
from entrepot_frames import ProgramsDiffer, RankFailed
from entrepot_frames.communicators.communicator import combined
from entrepot_frames.env import Env

SIZES = [1, 2, 3, 5]


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_returns_all_values_in_order(run_ranks: Any, size: int) -> None:
    results = run_ranks(size, lambda env: env.communicator.all_gather({"rank": env.rank}))
    assert results == [[{"rank": rank} for rank in range(size)]] * size


@pytest.mark.parametrize("size", SIZES)
def test_all_to_all_delivers_each_table_to_its_rank(run_ranks: Any, size: int) -> None:
    def program(env: Env) -> list[tuple[int, int]]:
        tables = [pa.table({"from": [env.rank] * 3, "to": [rank] * 3}) for rank in range(env.size)]
        return [(table["from"][0].as_py(), table["to"][2].as_py()) for table in env.communicator.all_to_all(tables)]

    assert run_ranks(size, program) == [[(sender, rank) for sender in range(size)] for rank in range(size)]


@pytest.mark.parametrize("size", SIZES)
def test_broadcast_gather_and_reduce_from_every_root(run_ranks: Any, size: int) -> None:
    def program(env: Env) -> list[Any]:
        communicator = env.communicator
        return [
            (
                communicator.broadcast(f"from {env.rank}", root),
                communicator.gather(env.rank * 10, root),
                communicator.reduce(env.rank, "max", root),
            )
            for root in range(env.size)
        ]

    for rank, result in enumerate(run_ranks(size, program)):
        for root, (sent, gathered, largest) in enumerate(result):
            assert sent == f"from {root}"
            assert gathered == ([other * 10 for other in range(size)] if rank == root else None)
            assert largest == (size - 1 if rank == root else None)


def test_all_reduce_combines_numbers_and_arrays(run_ranks: Any) -> None:
    def program(env: Env) -> list[Any]:
        reduce = env.communicator.all_reduce
        array = np.array([env.rank, -env.rank])
        return [reduce(env.rank + 1), reduce(env.rank + 1, "prod"), reduce(array, "min").tolist()]

    assert run_ranks(3, program) == [[6, 6, [0, -2]]] * 3


def test_combining_refuses_what_does_not_go_together() -> None:
    with pytest.raises(InvalidArgument, match="median"):
        combined([1, 2], "median")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="shapes"):
        combined([np.zeros(2), np.zeros(3)], "sum")


def test_a_barrier_is_passed_by_nobody_before_all_are_there(run_ranks: Any) -> None:
    entered: list[int] = []

    def program(env: Env) -> int:
        if env.rank == 0:
            time.sleep(0.2)  # the others would get there first
        entered.append(env.rank)
        env.communicator.barrier()
        return len(entered)

    assert run_ranks(3, program) == [3, 3, 3]


def test_messages_are_deleted_once_nobody_needs_them(run_ranks: Any, store: entrepot.Store) -> None:
    before = store.status()["objects"]

    def program(env: Env) -> None:
        for _ in range(5):
            env.communicator.all_to_all([np.arange(5000)] * env.size)
            env.communicator.all_gather(env.rank)
            env.communicator.broadcast(b"x" * 100_000)
            env.communicator.gather(env.rank)

    run_ranks(3, program)
    assert store.status()["objects"] == before


def test_the_values_that_arrive_outlive_their_messages(run_ranks: Any) -> None:
    def program(env: Env) -> int:
        received = env.communicator.all_to_all([np.full(100_000, env.rank)] * env.size)
        for _ in range(3):
            env.communicator.all_to_all([np.zeros(100_000, dtype=np.int64)] * env.size)
        return int(sum(array.sum() for array in received))

    assert run_ranks(3, program) == [300_000] * 3


def test_a_rank_that_fails_fails_all(run_ranks: Any) -> None:
    seen: list[RankFailed] = []

    def program(env: Env) -> None:
        env.communicator.barrier()
        if env.rank == 1:
            raise ArithmeticError("no luck")
        try:
            env.communicator.barrier()
        except RankFailed as error:
            seen.append(error)

    with pytest.raises(ArithmeticError):
        run_ranks(3, program)
    assert [(error.rank, error.reason) for error in seen] == [(1, "ArithmeticError: no luck")] * 2


def test_a_rank_that_does_not_come_is_named(run_ranks: Any) -> None:
    def program(env: Env) -> str:
        if env.rank == 1:
            return ""
        with pytest.raises(Timeout, match="rank 1") as caught:
            env.communicator.barrier()
        return str(caught.value)

    assert "operation 1" in run_ranks(2, program, timeout=0.3)[0]


def test_ranks_that_call_different_operations_are_told(run_ranks: Any) -> None:
    def program(env: Env) -> None:
        if env.rank == 0:
            env.communicator.broadcast("x", 0)
        else:
            with pytest.raises(ProgramsDiffer, match="rank 0 called broadcast"):
                env.communicator.all_gather("y")

    run_ranks(2, program)


def test_bad_arguments_are_refused(run_ranks: Any) -> None:
    def program(env: Env) -> None:
        with pytest.raises(InvalidArgument, match="3 values for 2 ranks"):
            env.communicator.all_to_all([1, 2, 3])
        with pytest.raises(InvalidArgument, match="no rank 2"):
            env.communicator.broadcast(1, root=2)

    run_ranks(2, program)
