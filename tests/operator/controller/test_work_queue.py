"""The queue of keys to reconcile."""

from __future__ import annotations

import threading

from entrepot_operator.controller.work_queue import MAX_PAUSE_SECONDS, WorkQueue
from hypothesis import given
from hypothesis import strategies as st


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_key_waits_once_and_at_the_earlier_time() -> None:
    clock = Clock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a", 5)
    queue.add("a", 9)
    queue.add("b")
    queue.add("a", 2)
    assert len(queue) == 2
    assert queue.take(0) == "b"
    assert queue.take(0) is None
    clock.now += 2
    assert queue.take(0) == "a"
    clock.now += 100
    assert queue.take(0) is None  # the later times were dropped with it


def test_failures_wait_longer_each_time_until_a_success() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())
    pauses = [queue.retry("a") for _ in range(12)]
    assert all(later > earlier for earlier, later in zip(pauses[:5], pauses[2:7], strict=True))
    assert 0.75 * MAX_PAUSE_SECONDS <= pauses[-1] <= MAX_PAUSE_SECONDS
    queue.reset_backoff("a")
    assert queue.retry("a") <= 0.5


def test_whoever_waits_gets_what_is_added() -> None:
    queue: WorkQueue[str] = WorkQueue()
    taken: list[str | None] = []
    waiter = threading.Thread(target=lambda: taken.append(queue.take(20)))
    waiter.start()
    queue.add("a", 0.05)
    waiter.join(20)
    assert taken == ["a"]


def test_what_is_forgotten_does_not_come() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())
    queue.add("a")
    queue.clear()
    assert queue.take(0) is None
    assert len(queue) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9))))
def test_every_key_comes_exactly_once_in_the_order_of_times(added: list[tuple[str, int]]) -> None:
    clock = Clock()
    queue: WorkQueue[str] = WorkQueue(clock)
    for key, after in added:
        queue.add(key, after)
    due = {key: min(after for other, after in added if other == key) for key, _ in added}
    taken: list[str] = []
    for _ in range(10):
        while (came := queue.take(0)) is not None:
            assert clock.now == 100.0 + due[came]
            taken.append(came)
        clock.now += 1
    assert sorted(taken) == sorted(due)
