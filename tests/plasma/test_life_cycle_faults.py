"""Plasma clients, front end and daemon killed and stopped, and clients forked, in every state of an object: no leaks.

The clients' states are in life_cycle_client.py. By default, each fault comes once, while there is a client in each of
them; marked ``exhaustive``, each fault comes in each state alone, and the daemon stands still for longer than any
request to it waits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import entrepot
import pytest
from life_cycle_client import CONTENT, NBYTES, STATES, awaited_by, object_of
from spawned_programs import read_line, send_line
from suspension import standing_still

from benchmarks.harness.plasma_connection import NONEXISTENT, OK, PlasmaConnection

pytestmark = pytest.mark.timeout(180)

ARENA = 32 << 20
PROGRAM = Path(__file__).parent / "wire/life_cycle_client.py"
LONGER_THAN_ANY_ANSWER_SECONDS = 33.0  # a request to the daemon is given up after 30
WARM = b"life-cycle-warm-0000"
FIGURES = ("objects", "used_bytes", "pinned_bytes", "deferred_frees", "waiting")
UNUSED_ARENA = "in use: 0 bytes\nobjects: 0\nheld: 0\nunsealed: 0\n"
SOCKETS_WITHOUT_CLIENTS = 3  # the one that it listens at, and two to the store
TARGETS = {
    "client": ("client",),
    "front end": ("front end",),
    "daemon": ("daemon",),
    "front end and daemon": ("front end", "daemon"),
}


def sockets_of(pid: int) -> int:
    """How many sockets a process has open."""
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += str(descriptor.readlink()).startswith("socket:")
    return count


def segment_bytes_of(pid: int) -> int:
    """The size of the segments that a process has open, of which it may have several descriptors each."""
    segments: dict[int, int] = {}
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if "entrepot-segment" in str(descriptor.readlink()):
                status = descriptor.stat()
                segments[status.st_ino] = status.st_size
    return sum(segments.values())


class Scene:
    """A store with a front end, and clients in states of their objects' lives.

    Attributes:
        store: a connection of the test.
        front_end: the front end.
        states: of the clients, by number.
        clients: the clients' processes, by number.
        pids: those that go on, which are the clients' children if these have forked.
    """

    def __init__(self, store: entrepot.Store, front_end: Any, wait_until: Callable[..., None]) -> None:
        self.store = store
        self.front_end = front_end
        self._wait_until = wait_until
        self.states: Sequence[str] = []
        self.clients: list[subprocess.Popen[str]] = []
        self.pids: list[int] = []
        with closing(PlasmaConnection(front_end.socket)) as client:  # memory is at hand from now on
            client.create_and_seal(WARM, bytes(NBYTES), b"")
            assert client.delete(WARM) == OK
        self._wait_until(lambda: self.figures()["used_bytes"] == self.figures()["pinned_bytes"] == 0, "nothing in use")
        self._before = self.figures()

    def figures(self) -> dict[str, int]:
        """What the store holds, and for how many clients."""
        status = self.store.status()
        return {name: status[name] for name in FIGURES} | {"clients": len(status["clients"])}

    def begin(self, states: Sequence[str], *modes: str) -> None:
        """Start a client for each state, and wait until it has come to it."""
        self.states = states
        for number, state in enumerate(states):
            command = [sys.executable, str(PROGRAM), str(self.front_end.socket), state, str(number), *modes]
            self.clients.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for client in self.clients:
            ready, pid = read_line(client).split()
            assert ready == "ready"
            self.pids.append(int(pid))

    def pids_of(self, targets: Sequence[str]) -> list[int]:
        pids = {"client": self.pids, "front end": [self.front_end.process.pid], "daemon": [self.store.status()["pid"]]}
        return [pid for target in targets for pid in pids[target]]

    def go_on(self) -> None:
        for client in self.clients:
            send_line(client)

    def provide(self) -> None:
        """Put what the clients that get are waiting for."""
        with closing(PlasmaConnection(self.front_end.socket)) as client:
            for number in range(len(self.clients)):
                client.create_and_seal(awaited_by(number), CONTENT, b"")

    def outcomes(self) -> dict[str, str]:
        """What each client has written at its end; its errors are in the test's own output."""
        return {state: read_line(client) for state, client in zip(self.states, self.clients, strict=True)}

    def check_nothing_leaks(self) -> None:
        """Once the clients are gone, and what they left behind sealed is deleted, all is as it was."""
        for client in self.clients:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.close()
            client.wait(60)
            client.stdout.close()
        self._wait_until(lambda: self.store.status()["pinned_bytes"] == 0, "the clients' pins to end")
        with closing(PlasmaConnection(self.front_end.socket)) as last:
            for number in range(len(self.clients)):
                for oid in (object_of(number), awaited_by(number)):
                    assert last.delete(oid) in (OK, NONEXISTENT)
        self._wait_until(lambda: self.figures() == self._before, f"the figures {self._before} again")
        pid = self.front_end.process.pid
        self._wait_until(lambda: sockets_of(pid) == SOCKETS_WITHOUT_CLIENTS, "the clients' sockets to be closed")
        assert segment_bytes_of(pid) <= ARENA
        with closing(PlasmaConnection(self.front_end.socket)) as last:
            self._wait_until(
                lambda: last.debug_text().endswith(UNUSED_ARENA), f"the arena to be empty: {last.debug_text()}", 10
            )
            last.create(WARM, ARENA - NBYTES, 0)  # all of it can be used
            last.abort(WARM)
            assert last.debug_text().endswith(UNUSED_ARENA)
        assert self.front_end.stop() == 0
        self._wait_until(lambda: self.store.status()["leased_bytes"] == 0, "the front end's leases to end")


@pytest.fixture
def scene(daemon: Any, new_front_end: Callable[..., Any], wait_until: Callable[..., None]) -> Iterator[Scene]:
    with entrepot.connect(daemon.address) as store:
        made = Scene(store, new_front_end(ARENA), wait_until)
        yield made
        for client in made.clients:
            if client.poll() is None:
                client.kill()
                client.wait(60)


def kill(scene: Scene, targets: Sequence[str]) -> None:
    for pid in scene.pids_of(targets):
        os.kill(pid, signal.SIGKILL)
    if "front end" in targets:
        scene.front_end.process.wait(60)
        scene.front_end.start()


def stop(scene: Scene, targets: Sequence[str], seconds: float) -> None:
    """Let the targets stand still while the clients are to go on."""
    with ExitStack() as stack:
        for pid in scene.pids_of(targets):
            stack.enter_context(standing_still(pid))
        scene.go_on()
        time.sleep(seconds)


def by_state() -> list[Any]:
    """All states together; then, exhaustively, each alone."""
    alone = [pytest.param([state], id=state, marks=pytest.mark.exhaustive) for state in STATES]
    return [pytest.param(list(STATES), id="all states"), *alone]


@pytest.mark.parametrize("states", by_state())
@pytest.mark.parametrize("target", TARGETS)
def test_killed(scene: Scene, states: list[str], target: str) -> None:
    scene.begin(states)
    kill(scene, TARGETS[target])
    scene.provide()
    if target != "client":
        scene.go_on()
        # A client whose front end dies has lost its connection, as with Plasma. The daemon's death is not noticed.
        outcome = "cut off" if "front end" in TARGETS[target] else "finished"
        assert scene.outcomes() == dict.fromkeys(states, outcome), scene.front_end.log()
    scene.check_nothing_leaks()


LONG_STOP = pytest.param(
    list(STATES), LONGER_THAN_ANY_ANSWER_SECONDS, id="all states, long", marks=pytest.mark.exhaustive
)
SHORT_STOPS = [pytest.param(*each.values, 0.0, id=each.id, marks=each.marks) for each in by_state()]


@pytest.mark.parametrize(("states", "seconds"), [*SHORT_STOPS, LONG_STOP])
@pytest.mark.parametrize("target", TARGETS)
def test_stopped_and_continued(scene: Scene, states: list[str], target: str, seconds: float) -> None:
    scene.begin(states)
    stop(scene, TARGETS[target], seconds)
    scene.provide()
    assert scene.outcomes() == dict.fromkeys(states, "finished"), scene.front_end.log()
    scene.check_nothing_leaks()


@pytest.mark.parametrize("states", by_state())
@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "is killed"])
def test_forked(scene: Scene, states: list[str], is_killed: bool) -> None:
    """The child has the connection, too: what its parent had is kept for it, until it ends."""
    scene.begin(states, "fork")
    for client in scene.clients:
        client.kill()
        client.wait(60)
    held = scene.store.status()["pinned_bytes"]
    assert held >= NBYTES * sum(state in ("held by its creator", "get not fetched") for state in states)
    if is_killed:
        kill(scene, ["client"])
    scene.provide()
    if not is_killed:
        scene.go_on()
        assert scene.outcomes() == dict.fromkeys(states, "finished"), scene.front_end.log()
    scene.check_nothing_leaks()
