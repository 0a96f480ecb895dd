"""Keeper, daemon and an upgrade's processes, each held at each of its steps, in four ways, for longer than any timeout.

While one is held, there is never a second daemon, what is mapped can be read, and clients that need nothing of the held
process wait for nothing. When it goes on, there is one daemon and one keeper, every value is correct, and stays so when
the daemon is killed then. ``ENTREPOT_FAULT_MATRIX=full`` (`make test-full`) tries every step in every way; otherwise
some steps are tried, each in one way and for a shorter time.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot._daemon.launcher import daemon_binary

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "soak"))

from process_steps import KEEPER_MESSAGE_BYTES, Step, Tracer, held
from store_processes import describe_duplicates, store_processes

FULL_MATRIX = os.environ.get("ENTREPOT_FAULT_MATRIX") == "full"
# More than any timeout between keeper, daemon and program (10 s); else more than the shortest (1 s).
HOLD_SECONDS = 11.0 if FULL_MATRIX else 1.2
STALL_SECONDS = 1.0 if FULL_MATRIX else 4.0  # in `make test`, other tests run alongside
MANNERS = ("stopped", "frozen", "traced", "throttled")
PUT = np.arange(40_000)


@dataclass(frozen=True)
class Case:
    """Where somebody is held.

    Attributes:
        trace: whose main thread is traced, with what it starts: ``keeper`` or ``daemon``.
        trigger: ``connect`` (another process connects and puts), ``kill daemon``, ``kill keeper``, ``upgrade`` or
            ``roll back`` (an upgrade whose first daemon is killed).
        role: who is held: the one that is traced, or its ``child``.
        step: where.
        served: clients need nothing of who is held there.
    """

    trace: str
    trigger: str
    role: str
    step: Step
    served: bool = False

    def serves_while(self, manner: str) -> bool:
        """Whether clients are served all the time: a throttled keeper goes on with the upgrade, slowly, and they wait
        for it between the end of one daemon and the start of the next."""
        return self.served and not (manner == "throttled" and self.trigger == "upgrade" and self.role == "keeper")


SENT = Step("sendmsg", 1, KEEPER_MESSAGE_BYTES)
RECEIVED = Step("recvmsg", 1, KEEPER_MESSAGE_BYTES)
CASES = {
    "keeper wakes up for a message": Case("keeper", "connect", "keeper", Step("epoll"), served=True),
    "keeper received a message": Case("keeper", "connect", "keeper", RECEIVED, served=True),
    "keeper wakes up for its daemon's end": Case("keeper", "kill daemon", "keeper", Step("epoll")),
    "keeper forked a daemon": Case("keeper", "kill daemon", "keeper", Step("clone")),
    "daemon received a request": Case("daemon", "connect", "daemon", Step("recvmsg")),
    "daemon gave memory to the keeper": Case("daemon", "connect", "daemon", SENT),
    "new daemon is forked": Case("keeper", "kill daemon", "child", Step("born")),
    "new daemon runs its program": Case("keeper", "kill daemon", "child", Step("exec")),
    "new daemon received a descriptor": Case("keeper", "kill daemon", "child", RECEIVED),
    "new daemon has the lock": Case("keeper", "kill daemon", "child", Step("locked")),
    "new daemon says that it is ready": Case("keeper", "kill daemon", "child", SENT),
    "new keeper is forked": Case("daemon", "kill keeper", "child", Step("born"), served=True),
    "new keeper runs its program": Case("daemon", "kill keeper", "child", Step("exec"), served=True),
    "new keeper says that it is ready": Case("daemon", "kill keeper", "child", SENT, served=True),
    "new keeper received a descriptor": Case("daemon", "kill keeper", "child", RECEIVED, served=True),
    "upgrade's daemon sent the program": Case("daemon", "upgrade", "daemon", SENT),
    "upgrade's daemon has the keeper's answer": Case("daemon", "upgrade", "daemon", RECEIVED),
    "upgrade's daemon told the caller": Case("daemon", "upgrade", "daemon", Step("sendmsg")),
    "upgrade's keeper received the program": Case("keeper", "upgrade", "keeper", RECEIVED, served=True),
    "upgrade's keeper is to end the daemon": Case(
        "keeper", "upgrade", "keeper", Step("recvmsg", 2, KEEPER_MESSAGE_BYTES)
    ),
    "upgrade's program is asked about itself": Case("daemon", "upgrade", "child", Step("exec"), served=True),
    "upgrade's program replaced the keeper's": Case("keeper", "upgrade", "keeper", Step("exec")),
    "upgrade's program forked a daemon": Case("keeper", "upgrade", "keeper", Step("clone")),
    "upgrade's new daemon is forked": Case("keeper", "upgrade", "child", Step("born")),
    "upgrade's new daemon runs its program": Case("keeper", "upgrade", "child", Step("exec")),
    "upgrade's new daemon received a descriptor": Case("keeper", "upgrade", "child", RECEIVED),
    "upgrade's new daemon has the lock": Case("keeper", "upgrade", "child", Step("locked")),
    "previous program replaced the upgrade's": Case("keeper", "roll back", "keeper", Step("exec", 2)),
}
QUICK = (
    ("keeper received a message", "frozen"),
    ("keeper wakes up for its daemon's end", "traced"),
    ("keeper forked a daemon", "throttled"),
    ("daemon gave memory to the keeper", "stopped"),
    ("new daemon is forked", "frozen"),
    ("new daemon received a descriptor", "throttled"),
    ("new daemon has the lock", "stopped"),
    ("new keeper runs its program", "traced"),
    ("new keeper received a descriptor", "frozen"),
    ("upgrade's daemon has the keeper's answer", "stopped"),
    ("upgrade's daemon told the caller", "frozen"),
    ("upgrade's program is asked about itself", "traced"),
    ("upgrade's program replaced the keeper's", "throttled"),
    ("upgrade's new daemon has the lock", "frozen"),
    ("previous program replaced the upgrade's", "traced"),
)
PAIRS = [(name, manner) for name in CASES for manner in MANNERS] if FULL_MATRIX else QUICK

HELPER = """
import sys, entrepot, numpy as np
verb, address, program = sys.argv[1:]
store = entrepot.connect(address, scope="tests") if verb == "upgrade" else None
print("ready", flush=True)
sys.stdin.readline()
if verb == "upgrade":
    try:
        store._raw().upgrade(program)
        print("upgraded")
    except entrepot.EntrepotError as error:
        print("refused:", error)
else:
    with entrepot.connect(address, scope="tests") as store:
        print(store.put(np.arange(40_000)))
"""


class Values:
    """Values in the store, and a client that reads and one that puts."""

    def __init__(self, store: entrepot.Store) -> None:
        self._store = store
        self._oids: list[tuple[Any, Any]] = []
        for number in range(20):
            self.put(store, number)
        self.check()

    def put(self, store: entrepot.Store, number: int) -> None:
        value = np.random.default_rng(number).integers(0, 1 << 60, 20_000)
        self._oids.append((store.put(value), value))

    def add(self, oid: str, value: Any) -> None:
        self._oids.append((oid, value))

    def check(self) -> None:
        values = self._store.get_many([oid for oid, _ in self._oids])
        wrong = [number for number, (_, value) in enumerate(self._oids) if not np.array_equal(values[number], value)]
        assert not wrong, f"values {wrong} of {len(self._oids)} are wrong"


@contextmanager
def helper(verb: str, address: str, program: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that acts when a line is written to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELPER, verb, address, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def pull_trigger(trigger: str, store_status: dict[str, Any], process: subprocess.Popen[str]) -> None:
    if trigger == "kill daemon":
        os.kill(store_status["pid"], signal.SIGKILL)
    elif trigger == "kill keeper":
        os.kill(store_status["keeper_pid"], signal.SIGKILL)
    else:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def watch_held(served: bool, values: Values, store: entrepot.Store, tracer: Tracer) -> None:
    """Look for a second daemon, and for stalls of clients, until the time is over."""
    end = time.monotonic() + HOLD_SECONDS
    number = 1000
    while time.monotonic() < end:
        began = time.monotonic()
        values.check()  # needs no process
        if served:
            values.put(store, number)
            with entrepot.connect(store.address, scope="tests") as other:
                values.put(other, number + 1)
            number += 2
        assert time.monotonic() - began < STALL_SECONDS, "a client waited for the held process"
        tracer.reap()
        duplicates = describe_duplicates(store.address)
        assert not duplicates, duplicates
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("_ended")
@pytest.mark.parametrize(("name", "manner"), PAIRS)
def test_held_at_a_step(
    store: entrepot.Store, socket_folder: Path, wait_until: Callable[..., None], name: str, manner: str
) -> None:
    case = CASES[name]
    values = Values(store)
    status = store.status()
    program = socket_folder / "entrepotd"
    shutil.copy2(daemon_binary(), program)
    tracer = Tracer()
    verb = "upgrade" if case.trigger in ("upgrade", "roll back") else "connect"
    with helper(verb, store.address, program) as process:
        tracer.attach(status["keeper_pid" if case.trace == "keeper" else "pid"], case.trace)
        try:
            pull_trigger(case.trigger, status, process)
            if case.trigger == "roll back":
                os.kill(tracer.run_until("child", Step("exec")), signal.SIGKILL)
            pid = tracer.run_until(case.role, case.step)
            with held(tracer, pid, manner, wait_until):
                watch_held(case.serves_while(manner), values, store, tracer)
        finally:
            tracer.close()
        if case.trigger == "connect" or case.trigger.startswith("kill"):
            if case.trigger != "connect":
                pull_trigger("connect", status, process)
            output, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
            values.add(output.strip(), PUT)
        else:
            process.communicate(timeout=60)  # told of the upgrade, that it failed, or cut off

    def is_whole() -> bool:
        roles = sorted(process.role for process in store_processes(store.address))
        return roles == ["daemon", "keeper"] and store.status()["keeper_pid"] != 0

    wait_until(is_whole, "one daemon and one keeper")
    values.put(store, 1)
    values.check()
    daemon_pid = store.status()["pid"]
    os.kill(daemon_pid, signal.SIGKILL)  # the keeper has everything
    wait_until(lambda: store.status()["pid"] not in (0, daemon_pid), "the next daemon")
    values.check()
    assert not describe_duplicates(store.address)
