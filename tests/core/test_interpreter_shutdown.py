"""Interpreter shutdown while threads are inside the store: the process still exits cleanly."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import entrepot
import pytest

TURNS = 8  # which moment a thread is caught at is chance

WAITS = """
    def work():
        store.get(entrepot.ObjectID.random(), timeout=None)
"""
READS = """
    def work():
        oid = store.put(b"x" * 100_000)
        while True:
            store.get_many([oid], copy="always")
"""
WRITES = """
    def work():
        while True:
            store.delete(store.put(b"x" * 1_000_000))
"""
OPENS = """
    def work():
        while True:
            store.session("another").close()
"""


@pytest.mark.parametrize("what", [WAITS, READS, WRITES, OPENS], ids=["waits", "reads", "writes", "opens"])
def test_a_daemon_thread_does_not_abort_the_process(daemon: Any, what: str) -> None:
    code = f"""
    import entrepot, threading
    store = entrepot.connect({daemon.address!r}, scope="tests")
    {textwrap.indent(textwrap.dedent(what), "    ").strip()}
    started = threading.Event()
    def run():
        started.set()
        work()
    for _ in range(2):
        threading.Thread(target=run, daemon=True).start()
    started.wait()
    for _ in range(200):
        store.exists(entrepot.ObjectID.random())
    """
    for _ in range(TURNS):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    with entrepot.connect(daemon.address, scope="tests") as store:
        assert store.get(store.put(b"it goes on")) == b"it goes on"


def test_a_store_that_outlives_its_module_says_nothing(daemon: Any) -> None:
    """At shutdown, modules that are still referenced are cleared in reverse order of import; then their contents are
    freed."""
    code = f"""
    import json, sys, entrepot
    json.kept = entrepot.connect({daemon.address!r}, scope="tests")
    sys.kept = json, sys.modules["entrepot._store.store"]
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
