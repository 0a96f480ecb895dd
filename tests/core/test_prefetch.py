"""Prefetching of members: in order, bounded, without leftovers, with errors at the right member."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from entrepot._collections import prefetcher
from entrepot.errors import ObjectLost


class Source:
    """Members that are slow to get; records which thread got which, and how many are held."""

    def __init__(self, count: int, size: int = 10, seconds: float = 0.002) -> None:
        self.positions = list(range(count))
        self.size = size
        self.seconds = seconds
        self.threads: dict[int, str] = {}
        self.lock = threading.Lock()
        self.held_count = 0
        self.max_held_count = 0

    def get(self, position: int) -> Member:
        time.sleep(self.seconds)  # simulated disk
        with self.lock:
            self.threads[position] = threading.current_thread().name
            self.held_count += 1
            self.max_held_count = max(self.max_held_count, self.held_count)
        return Member(self, position)

    def read(self, most: int = 2, most_bytes: int = 1000) -> Iterator[Any]:
        return prefetcher.iterate_pinned(
            self.get, self.positions, lambda position: self.size, max_members=most, max_bytes=lambda: most_bytes
        )


class Member:
    def __init__(self, source: Source, position: int) -> None:
        self.source = source
        self.position = position

    def __del__(self) -> None:
        with self.source.lock:
            self.source.held_count -= 1


def _helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "entrepot-prefetch"]


def test_what_is_slow_is_got_ahead_by_another_thread(wait_until: Callable[..., None]) -> None:
    source = Source(20)
    positions = []
    for member in source.read():
        positions.append(member.position)
        del member
    assert positions == list(range(20))
    assert source.threads[0] == "MainThread"
    assert "entrepot-prefetch" in source.threads.values()
    assert source.max_held_count <= 4  # in use, being loaded, and two ready
    wait_until(lambda: not _helpers(), "the helper to end")
    assert source.held_count == 0


def test_what_is_fast_needs_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetcher, "SLOW_SECONDS", 5.0)  # even trivial work may take long on a busy machine
    source = Source(200, seconds=0)
    assert [member.position for member in source.read()] == source.positions
    assert set(source.threads.values()) == {"MainThread"}


@pytest.mark.parametrize(("most", "most_bytes"), [(0, 1000), (2, 0), (2, 9)])
def test_no_further_ahead_than_allowed(most: int, most_bytes: int, wait_until: Callable[..., None]) -> None:
    source = Source(6)
    assert [member.position for member in source.read(most, most_bytes)] == source.positions
    assert set(source.threads.values()) == {"MainThread"}
    wait_until(lambda: not _helpers(), "the helper to end")


def test_bytes_bound_what_is_ahead(wait_until: Callable[..., None]) -> None:
    source = Source(12)
    members = source.read(most=10, most_bytes=30)
    taken = [next(members)]
    wait_until(lambda: source.held_count == 4, "three members of ten bytes each to be got ahead")
    taken.append(next(members))
    wait_until(lambda: source.held_count == 5, "one more")
    assert source.max_held_count == 5
    assert [member.position for member in [*taken, *members]] == source.positions


def test_an_iterator_that_is_dropped_leaves_nothing(wait_until: Callable[..., None]) -> None:
    source = Source(50)
    members = source.read()
    for _ in range(3):
        next(members)
    assert _helpers()
    del members
    wait_until(lambda: not _helpers() and source.held_count == 0, "the helper and what it held to go")


def test_an_error_comes_where_the_member_is_asked_for(wait_until: Callable[..., None]) -> None:
    source = Source(10)
    tries: list[str] = []

    def get(position: int) -> Member:
        if position == 5:
            tries.append(threading.current_thread().name)
            raise ObjectLost("gone")
        return source.get(position)

    members = prefetcher.iterate_pinned(get, source.positions, lambda position: 1, max_members=3, max_bytes=lambda: 100)
    assert [next(members).position for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ObjectLost, match="gone"):
        next(members)
    assert tries[-1] == "MainThread"
    wait_until(lambda: not _helpers(), "the helper to end")


def test_an_error_of_the_helper_alone_is_no_error() -> None:
    source = Source(10)

    def get(position: int) -> Member:
        if threading.current_thread().name == "entrepot-prefetch" and position % 2:
            raise ObjectLost("no room while the reader holds the one before")
        return source.get(position)

    members = prefetcher.iterate_pinned(get, source.positions, lambda position: 1, max_members=3, max_bytes=lambda: 100)
    assert [member.position for member in members] == source.positions


def test_what_is_held_is_let_go_between_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetcher, "SLOW_SECONDS", 5.0)
    source = Source(5, seconds=0)
    for member in source.read():
        assert source.held_count == 1
        del member
        assert source.held_count == 0
