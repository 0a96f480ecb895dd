"""Assigning members to workers: compared with the best distribution that may split members, by linear programming."""

from __future__ import annotations

import numpy as np
import pytest
from entrepot._collections.assignment import assign
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

Problem = tuple[list[int], list[set[int]], int]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Sizes of members, the workers that have each, and the number of workers."""
    workers = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.one_of(st.integers(0, 10), st.integers(0, 1_000_000)), max_size=14))
    somebody = st.sets(st.integers(0, workers - 1), max_size=workers)
    return sizes, [draw(somebody) for _ in sizes], workers


def moved(sizes: list[int], having: list[set[int]], assigned: list[list[int]]) -> int:
    """The bytes that have to move."""
    return sum(
        sizes[member] for worker, members in enumerate(assigned) for member in members if worker not in having[member]
    )


def least_moved(sizes: list[int], having: list[set[int]], workers: int) -> float:
    """The bytes that have to move at least if members can be split, and nobody gets more than the fair share."""
    count, total = len(sizes), sum(sizes)
    if not total:
        return 0.0
    shares = np.array(sizes, dtype=float) / total
    costs = np.array(
        [[0.0 if worker in having[member] else 1.0 for worker in range(workers)] for member in range(count)]
    )
    whole = np.kron(np.eye(count), np.ones((1, workers)))  # each member is given to somebody, in bytes
    loads = np.kron(np.ones((1, count)), np.eye(workers))
    limits = np.full(workers, 1 / workers)
    solution = linprog(costs.ravel(), A_ub=loads, b_ub=limits, A_eq=whole, b_eq=shares, method="highs")
    assert solution.status == 0, solution.message
    return float(solution.fun) * total


@given(problems())
@settings(max_examples=200, deadline=None)
def test_loads_are_even_and_no_more_moves_than_if_members_could_be_split(problem: Problem) -> None:
    sizes, having, workers = problem
    assigned = assign(sizes, having, workers)
    assert sorted(member for members in assigned for member in members) == list(range(len(sizes)))
    assert all(members == sorted(members) for members in assigned)
    largest, total = max(sizes, default=0), sum(sizes)
    for members in assigned:
        assert sum(sizes[member] for member in members) * workers <= total + largest * workers
    assert moved(sizes, having, assigned) <= least_moved(sizes, having, workers) + 1e-6 * total


def test_members_are_passed_on_to_make_room() -> None:
    # Worker 0 has everything; what worker 1 has too has to go there, although worker 0 would be as good.
    sizes, having = [10, 10, 10, 10], [{0, 1}, {0, 1}, {0}, {0}]
    assert assign(sizes, having, 2) == [[2, 3], [0, 1]]
    # Along a path: only worker 1 can pass on to worker 2.
    sizes, having = [6, 6, 6], [{0}, {0, 1}, {1, 2}]
    assert assign(sizes, having, 3) == [[0], [1], [2]]


def test_members_without_bytes_are_shared_out_by_number() -> None:
    assert [len(members) for members in assign([0] * 6, [set()] * 6, 3)] == [2, 2, 2]
    assert assign([0, 0], [{1}, {1}], 2) == [[], [0, 1]]


def test_nothing_moves_if_each_host_has_its_share() -> None:
    sizes = [1000 + member % 7 for member in range(700)]
    having = [{member % 7} for member in range(700)]
    assert moved(sizes, having, assign(sizes, having, 7)) <= least_moved(sizes, having, 7) + 1e-6 * sum(sizes)


@pytest.mark.parametrize("copies", [1, 3])
def test_many_members_on_many_hosts(copies: int) -> None:
    random = np.random.default_rng(7)
    sizes = random.integers(1, 1 << 20, 20_000).tolist()
    having = [set(random.integers(0, 64, copies).tolist()) for _ in sizes]
    assigned = assign(sizes, having, 64)
    assert max(sum(sizes[member] for member in members) for members in assigned) <= sum(sizes) / 64 + max(sizes)
    assert moved(sizes, having, assigned) < sum(sizes) / 8
