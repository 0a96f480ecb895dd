"""Polling a slow source: callers never wait long, and locations that are too old are not returned."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest
from entrepot.errors import StoreUnavailable
from entrepot_operator.placement.cached_source import CachedSource
from entrepot_operator.placement.locations import Locations
from entrepot_operator.placement.sources import LocationsUnavailable

ID = "5b" * 20


class ScriptedSource:
    """A source controlled by the test: counts its reads, and can be made to fail or hang."""

    def __init__(self) -> None:
        self.reads = 0
        self.failing = False
        self.unblocked = threading.Event()
        self.unblocked.set()

    def __call__(self) -> Locations:
        assert self.unblocked.wait(30)
        self.reads += 1
        if self.failing:
            raise StoreUnavailable("the server does not answer")
        return Locations({ID: {"node-a": self.reads}})


def test_the_first_caller_gets_what_is_read_and_the_next_ones_what_was() -> None:
    answers = ScriptedSource()
    source = CachedSource(answers, "the cluster", every=60)
    assert source.places().objects == {ID: {"node-a": 1}}
    assert [source.places().objects[ID]["node-a"] for _ in range(100)] == [1] * 100
    assert answers.reads == 1


def test_it_is_read_again_from_time_to_time(wait_until: Callable[..., None]) -> None:
    source = CachedSource(ScriptedSource(), "the cluster", every=0.01)
    wait_until(lambda: source.places().objects[ID]["node-a"] > 2, "another read")


def test_a_caller_does_not_wait_for_a_source_that_hangs() -> None:
    answers = ScriptedSource()
    answers.unblocked.clear()
    source = CachedSource(answers, "the cluster", patience=0.05)
    began = time.monotonic()
    with pytest.raises(LocationsUnavailable, match=r"the cluster: .* no response yet"):
        source.places()
    assert time.monotonic() - began < 5
    answers.unblocked.set()


def test_cached_locations_are_returned_while_the_source_fails_until_they_expire(
    wait_until: Callable[..., None],
) -> None:
    answers = ScriptedSource()
    source = CachedSource(answers, "the cluster", every=0.01, oldest=1.0, patience=0.05)
    source.places()
    answers.failing = True
    seen = answers.reads
    wait_until(lambda: answers.reads > seen + 1, "a read that failed")
    assert ID in source.places().objects

    def told_nothing() -> bool:
        try:
            source.places()
        except LocationsUnavailable as error:
            return "the server does not answer" in str(error)
        return False

    wait_until(told_nothing, "the end of what is known")
    answers.failing = False
    wait_until(lambda: not told_nothing(), "a source that answers again")


def test_an_error_is_raised_at_once_not_after_the_timeout() -> None:
    answers = ScriptedSource()
    answers.failing = True
    began = time.monotonic()
    with pytest.raises(LocationsUnavailable, match="the server does not answer"):
        CachedSource(answers, "the cluster", every=60, patience=30).places()
    assert time.monotonic() - began < 20


def test_the_thread_ends_when_idle_and_is_restarted(wait_until: Callable[..., None]) -> None:
    answers = ScriptedSource()
    source = CachedSource(answers, "the cluster", every=0.01, idle=0.05)
    source.places()
    wait_until(lambda: source._thread is None, "the end of the thread")
    before = answers.reads
    wait_until(lambda: source.places().objects[ID]["node-a"] > before, "another read")


def test_a_child_of_a_fork_reads_for_itself() -> None:
    source = CachedSource(ScriptedSource(), "the cluster", every=60)
    source.places()
    with source._changed:  # as if a thread of the parent held it at the fork
        child = os.fork()
        if child == 0:
            os._exit(0 if source.places().objects[ID]["node-a"] == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
