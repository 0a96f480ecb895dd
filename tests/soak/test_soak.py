"""Eight clients at random, kills of clients, daemon and keeper, upgrades, and a model that says what must be there.

Once in a store whose memory holds everything, once in one that spills most of it.

``make soak`` runs it for ENTREPOT_SOAK_SECONDS (600 by default); ``make test`` for a short while.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import entrepot
import numpy as np
import pytest
from entrepot._launcher import daemon_binary
from entrepot.errors import EntrepotError, ObjectNotFound, StoreUnavailable

sys.path.insert(0, str(Path(__file__).parent))

from journal import content, read_journal, violations

CLIENTS = 8
SECONDS = float(os.environ.get("ENTREPOT_SOAK_SECONDS", "15"))
SEED = int(os.environ.get("ENTREPOT_SOAK_SEED", str(int(time.time()))))


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait on a condition with a watchdog."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain: {what}"
        time.sleep(0.02)


@pytest.fixture(params=["memory", "spilling"])
def load(request: pytest.FixtureRequest) -> str:
    """What the workers do: see worker.py."""
    return str(request.param)


@pytest.fixture
def address(tmp_path: Path, load: str, answers: Callable[[str], bool]) -> Iterator[str]:
    """A store of its own; whatever process of it is left at the end is ended by pid."""
    spill = ("--spill-path", f"{tmp_path}/a,{tmp_path}/b", "--spill-quota", "2GiB", "--spill-reserve", "64MiB")
    options = ("--size", "512MiB", "--spill-path", "none") if load == "memory" else ("--size", "64MiB", *spill)
    address = f"unix://{tmp_path}/store.sock"
    log = (tmp_path / "daemon.log").open("wb")
    keeper = subprocess.Popen(
        [sys.executable, "-m", "entrepot.daemon_main", "--address", address, *options],
        stdout=log,
        stderr=log,
    )
    try:
        wait_until(lambda: answers(address) or keeper.poll() is not None, 20, "the store to listen")
        assert keeper.poll() is None, (tmp_path / "daemon.log").read_text()
        yield address
    finally:
        try:
            status = entrepot.connect(address).status()
            os.kill(status["keeper_pid"], signal.SIGTERM)
        except (EntrepotError, ProcessLookupError) as error:
            print(f"the store was gone at the end: {error}")
        if keeper.poll() is None:
            keeper.terminate()
        try:
            keeper.wait(20)
        except subprocess.TimeoutExpired:
            keeper.kill()
        log.close()


class Soak:
    """Starts workers, kills at random, and knows the model."""

    def __init__(self, address: str, folder: Path, chance: random.Random, load: str) -> None:
        self.address = address
        self.load = load
        self.folder = folder
        self.chance = chance
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.kills = {"client": 0, "daemon": 0, "keeper": 0, "upgrade": 0}

    def start(self, number: int) -> None:
        err = (self.folder / f"{number}.err").open("ab")
        self.workers[number] = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("worker.py")),
                self.address,
                str(self.folder),
                str(number),
                str(self.chance.randrange(1 << 30)),
                self.load,
            ],
            stderr=err,
        )
        err.close()

    def kill_something(self, store: entrepot.Store) -> None:
        target = self.chance.choices(("client", "daemon", "keeper", "upgrade"), (68, 18, 9, 5))[0]
        if target == "client":
            number = self.chance.choice(sorted(self.workers))
            self.workers[number].kill()
            self.workers[number].wait()
            self.start(number)
        elif target == "upgrade":
            self.upgrade()
        else:
            before = store.status()
            pid = before["pid" if target == "daemon" else "keeper_pid"]
            with suppress(ProcessLookupError):  # an upgrade that was under way has replaced it since
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: self.replaced(store, target, pid), 30, f"a new {target} for the killed {pid}")
        self.kills[target] += 1

    def upgrade(self) -> None:
        """Another copy of the program takes over; killed young, it may be undone, which is as good."""
        program = self.folder / "entrepotd"
        fresh = self.folder / "entrepotd.new"
        shutil.copy2(daemon_binary(), fresh)
        fresh.rename(program)
        with entrepot.connect(self.address) as store:
            store._raw().upgrade(str(program))

    @staticmethod
    def replaced(store: entrepot.Store, target: str, pid: int) -> bool:
        try:
            now: int = store.status()["pid" if target == "daemon" else "keeper_pid"]
        except StoreUnavailable:
            return False
        return now not in (0, pid)

    def check_alive(self) -> None:
        for number, worker in self.workers.items():
            code = worker.poll()
            error = (self.folder / f"{number}.err").read_text(errors="replace")
            assert code is None, f"worker {number} ended by itself with {code}:\n{error[-4000:]}"

    def stop(self) -> None:
        (self.folder / "stop").touch()
        for worker in self.workers.values():
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()

    def check_model(self, store: entrepot.Store) -> int:
        """Every object that must be there is, with its content; none that must not."""
        found = 0
        for path in sorted(self.folder.glob("*.journal")):
            assert violations(path) == []
            for key, state in read_journal(path).items():
                try:
                    value = store.get(store.derive(key))
                except ObjectNotFound:
                    assert not state.certainly_there, f"{key} was sealed and never deleted, and is lost"
                    continue
                assert not state.certainly_gone, f"{key} was deleted and is still there"
                assert np.array_equal(value, content(key, state.size)), f"{key} has other content"
                found += 1
        return found


@pytest.mark.timeout(SECONDS + 300)
def test_nothing_sealed_is_lost_and_nothing_leaks(address: str, tmp_path: Path, load: str) -> None:
    folder = tmp_path / "journals"
    folder.mkdir()
    chance = random.Random(SEED)
    store = entrepot.connect(address, scope="soak", session="")
    soak = Soak(address, folder, chance, load)
    for number in range(CLIENTS):
        soak.start(number)
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.1, 0.8))  # the rhythm of the kills, not a wait for a result
            soak.check_alive()
            soak.kill_something(store)
    finally:
        soak.stop()
    found = soak.check_model(store)
    operations = sum(len(path.read_text().splitlines()) for path in folder.glob("*.journal"))
    if load == "spilling":
        assert store.status()["spill"]["loads"] > 0, "nothing was spilled and came back"
    print(f"{load}, seed {SEED}: {operations} journal lines, kills {soak.kills}, {found} objects verified at the end")
    assert operations > CLIENTS * SECONDS, "the workers hardly worked"

    for path in folder.glob("*.journal"):
        for key in read_journal(path):
            store.delete(store.derive(key))
    wait_until(lambda: len(store.status()["clients"]) == 1, 30, "the killed clients to be noticed")
    wait_until(lambda: store.status()["deferred_frees"] == 0, 30, "the last deferred free")
    status = store.status()
    leaks = {name: status[name] for name in ("objects", "blobs", "used_bytes", "pinned_bytes", "leased_bytes")}
    assert leaks == dict.fromkeys(leaks, 0), f"seed {SEED}: something leaked"
