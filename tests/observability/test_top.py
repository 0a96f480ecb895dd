"""``entrepot top``: by Textual's pilot, and in a real pseudo-terminal; without colour, UTF-8, width, or a store."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pyte
import pytest
from entrepot.cli import main
from entrepot_ui.terminal.app import TopApp
from entrepot_ui.terminal.lines import memory_bar
from entrepot_ui.watch.watcher import StoreWatcher, View
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

HOSTILE = "[red]name[/red]\x1b[31m"
WATCHDOG = 60.0


@pytest.fixture(scope="module")
def filled(module_daemon: Any) -> Iterator[entrepot.Store]:
    """The module's store, with some objects."""
    with entrepot.connect(module_daemon.address) as store:
        store.put(np.zeros(100_000), name=HOSTILE)
        store.put(b"second", name="second")
        store.put_many([b"x" * number for number in range(30)])
        yield store


@pytest.fixture
def watcher(module_daemon: Any, filled: entrepot.Store) -> Iterator[StoreWatcher]:
    """Watches the module's store."""
    watching = StoreWatcher(module_daemon.address, 0.1)
    yield watching
    watching.close()


async def wait_for(pilot: Pilot[None], condition: Callable[[], bool], what: str) -> None:
    """Wait in the application's loop."""
    end = time.monotonic() + WATCHDOG
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {WATCHDOG:g} s for {what}")
        await pilot.pause(0.02)


def cells(app: TopApp, column: int) -> list[str]:
    """The text of a column."""
    table = app.query_one("#objects", DataTable)
    return [str(table.get_row_at(row)[column]) for row in range(table.row_count)]


def line(app: TopApp, name: str) -> str:
    """The text of a line."""
    return str(app.query_one(f"#{name}", Static).render())


def run(app: TopApp, steps: Callable[[Pilot[None]], Any], size: tuple[int, int] = (120, 30)) -> None:
    """Run the application without a terminal, and some steps in it."""

    async def go() -> None:
        async with app.run_test(size=size) as pilot:
            await steps(pilot)

    asyncio.run(go())


def test_it_shows_sorts_and_searches(watcher: StoreWatcher, filled: entrepot.Store) -> None:
    app = TopApp(watcher, 0.1)

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, lambda: len(cells(app, 0)) == 32, "the objects")
        assert cells(app, 0)[0] == r"[red]name[/red]\x1b[31m"
        assert "32 objects" in line(app, "state")
        assert "values" in line(app, "memory")
        await pilot.press("r")
        await wait_for(pilot, lambda: cells(app, 1)[0] == "0 B", "the other order")
        await pilot.press("s")
        await wait_for(pilot, lambda: cells(app, 2)[0] == "numpy.ndarray", "the order by type")
        await pilot.press("slash", *"second")
        await wait_for(pilot, lambda: cells(app, 0) == ["second"], "the search")
        assert "1 of 32 objects match 'second'" in line(app, "count")
        await pilot.press("enter")
        doomed = filled.put(b"new", name="second too")
        await wait_for(pilot, lambda: len(cells(app, 0)) == 2, "an object that is new")
        filled.delete(doomed)
        await wait_for(pilot, lambda: len(cells(app, 0)) == 1, "it to be gone")
        await pilot.press("escape")
        await wait_for(pilot, lambda: len(cells(app, 0)) == 32, "all objects")

    run(app, steps)


def test_one_object_with_who_pins_it(watcher: StoreWatcher, filled: entrepot.Store) -> None:
    app = TopApp(watcher, 0.1)
    held = filled.get_by_name(HOSTILE)

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, lambda: len(cells(app, 0)) == 32, "the objects")
        await wait_for(pilot, lambda: bool(watcher.view().details.pins), "the pin")
        await pilot.press("enter")
        await wait_for(pilot, lambda: len(app.screen_stack) == 2, "the object")
        text = str(app.screen.query_one("#detail", Static).render())
        assert r"names       [red]name[/red]\x1b[31m" in text
        assert f"({os.getpid()})" in text
        await pilot.press("escape")
        await wait_for(pilot, lambda: len(app.screen_stack) == 1, "the table")

    run(app, steps)
    assert held.shape == (100_000,)


def test_a_narrow_terminal(watcher: StoreWatcher) -> None:
    app = TopApp(watcher, 0.1)

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, lambda: len(cells(app, 0)) == 32, "the objects")
        await pilot.resize_terminal(12, 5)
        await pilot.pause()
        await pilot.resize_terminal(200, 50)
        await pilot.pause()

    run(app, steps, (30, 8))


def test_without_a_store_it_says_so(tmp_path: Path) -> None:
    watching = StoreWatcher(f"unix://{tmp_path}/nothing.sock", 0.1)
    app = TopApp(watching, 0.1)

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, lambda: "CONNECTING" in line(app, "state"), "the state")

    try:
        run(app, steps)
    finally:
        watching.close()


def test_the_bar_is_as_wide_as_it_should_be(watcher: StoreWatcher) -> None:
    assert memory_bar(View(), 80) == ""
    end = time.monotonic() + WATCHDOG
    while watcher.view().status is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    for width in (0, 12, 40, 200):
        assert len(memory_bar(watcher.view(), width)) == max(12, width)


def test_without_a_terminal_it_says_what_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 1
    assert "needs a terminal: use entrepot ls" in capsys.readouterr().err


class Terminal:
    """A pseudo-terminal with a program, and what is on its screen."""

    def __init__(self, command: list[str], columns: int, rows: int, **environment: str) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.master, slave = os.openpty()
        import fcntl
        import struct
        import termios

        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, **environment}, start_new_session=True
        )
        os.close(slave)

    def wait_for(self, text: str) -> list[str]:
        """Read until the screen shows a text; return its lines."""
        end = time.monotonic() + WATCHDOG
        while text not in "\n".join(self._screen.display):
            if time.monotonic() > end:
                pytest.fail("\n".join([f"waited for {text!r}", *self._screen.display]))
            self._read()
        return list(self._screen.display)

    def wait_for_end(self) -> int:
        """Read until the program has ended; return its exit code."""
        end = time.monotonic() + WATCHDOG
        while self.process.poll() is None:
            if time.monotonic() > end:
                pytest.fail("\n".join(["it did not end", *self._screen.display]))
            self._read()
        return self.process.returncode

    def _read(self) -> None:
        if not select.select([self.master], [], [], 0.05)[0]:
            return
        try:
            self._stream.feed(os.read(self.master, 65536))
        except OSError:
            return  # the program has ended


@pytest.mark.slow
def test_in_a_pseudo_terminal(module_daemon: Any, filled: entrepot.Store) -> None:
    command = [sys.executable, "-m", "entrepot", "top", "--address", module_daemon.address, "--interval", "0.2"]
    terminal = Terminal(command, 100, 30, TERM="xterm", NO_COLOR="1", LC_ALL="C", PYTHONUTF8="0")
    try:
        shown = terminal.wait_for("32 of 32 objects")
        assert any("name" in each and "bytes v" in each for each in shown)
        terminal.wait_for(r"[red]name[/red]\x1b[31m")
        os.write(terminal.master, b"q")
        assert terminal.wait_for_end() == 0
    finally:
        if terminal.process.poll() is None:
            os.kill(terminal.process.pid, signal.SIGKILL)
            terminal.process.wait()
        os.close(terminal.master)
