"""Scratch sets: what their one writer wrote last is what it reads, wherever the page has been."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import InvalidArgument, ObjectExists
from hypothesis import given, settings
from hypothesis import strategies as st
from spawned_programs import read_line

PAGE = 32 << 10


@pytest.fixture(scope="module")
def shared(module_daemon: Any) -> Any:
    """A store for the tests that only put and get."""
    with entrepot.connect(module_daemon.address, scope="scratches") as connected:
        yield connected


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, PAGE - 1), st.integers(1, 255), st.booleans())))
def test_reads_return_the_latest_writes(shared: entrepot.Store, changes: list[tuple[int, int, int, bool]]) -> None:
    model = np.zeros((5, PAGE), np.uint8)
    with shared.scratch("x", 5, page_bytes=PAGE, open_bytes=2 * PAGE) as scratch:
        for page, at, value, reads in changes:
            with scratch.write(page) as view:
                view[at] = value
                model[page, at] = value
            assert scratch.open_pages <= 2
            if reads:
                assert scratch.read(page) == model[page].tobytes()
        for page in range(5):
            assert scratch.read(page) == model[page].tobytes()
    assert shared.status()["objects"] == 0


def test_more_pages_than_memory(tmp_path: Path, new_daemon: Callable[..., Any]) -> None:
    daemon = new_daemon("16MiB", "--spill-path", str(tmp_path / "spill"), "--spill-quota", "1GiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        with store.scratch("x", 96, page_bytes="256KiB") as scratch:
            for _ in range(2):
                for page in range(96):
                    with scratch.write(page) as view:
                        np.frombuffer(view, np.int32)[:] += page
            assert store.status()["spill"]["read_bytes"] > 0
            for page in range(96):
                assert (np.frombuffer(scratch.read(page), np.int32) == 2 * page).all()
            (attributes,) = (each for each in store.locality_sets() if each.name == "scratch")
            assert (attributes.reading, attributes.writing) == ("random", "random")
        assert store.status()["objects"] == 0


WRITER = """
    scratch = store.scratch("x", 8, page_bytes=32768, open_bytes=65536)
    for page in range(8):
        with scratch.write(page) as view:
            view[0] = 7
    print("written", flush=True)
    sys.stdin.readline()
"""


def test_one_writer(
    store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]], wait_until: Callable[..., None]
) -> None:
    process = spawn(WRITER)
    assert read_line(process) == "written"
    with pytest.raises(ObjectExists, match="one writer already"):
        store.scratch("x", 8)
    process.kill()
    process.wait(60)

    def opened() -> bool:
        try:
            taken.append(store.scratch("x", 4, page_bytes=PAGE))
        except ObjectExists:  # the daemon has not seen the death yet
            return False
        return True

    taken: list[entrepot.ScratchSet] = []
    wait_until(opened, "the dead writer's set to be free")
    assert taken[0].read(0) == bytes(PAGE), "what the dead writer left is gone"
    taken[0].close()
    assert store.status()["objects"] == 0
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the dead writer's pages to be given back")


def test_errors(store: entrepot.Store) -> None:
    with pytest.raises(InvalidArgument, match="at least 32768 bytes"):
        store.scratch("x", 1, page_bytes=1)
    with pytest.raises(InvalidArgument, match="at least 1"):
        store.scratch("x", 0)
    scratch = store.scratch("x", 2, page_bytes=PAGE)
    with pytest.raises(InvalidArgument, match="integer from 0 to 1"):
        scratch.read(2)
    with scratch.write(0) as view:
        view[:5] = b"bytes"
        with pytest.raises(InvalidArgument, match="is being written"):
            scratch.close()
    scratch.close()
    scratch.close()
    with pytest.raises(InvalidArgument, match="closed"):
        scratch.read(0)
    assert store.status()["objects"] == 0
