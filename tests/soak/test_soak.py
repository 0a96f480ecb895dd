"""Eight clients at random, kills of clients, daemon and keeper, and a model that says what must be there.

``make soak`` runs it for ENTREPOT_SOAK_SECONDS (600 by default); ``make test`` for a short while.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import entrepot
import numpy as np
import pytest
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


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A store of its own; whatever process of it is left at the end is ended by pid."""
    address = f"unix://{tmp_path}/store.sock"
    log = (tmp_path / "daemon.log").open("wb")
    keeper = subprocess.Popen(
        [sys.executable, "-m", "entrepot.daemon_main", "--address", address, "--size", "512MiB"],
        stdout=log,
        stderr=log,
    )
    try:
        wait_until(lambda: (tmp_path / "store.sock").exists() or keeper.poll() is not None, 20, "the store's socket")
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

    def __init__(self, address: str, folder: Path, chance: random.Random) -> None:
        self.address = address
        self.folder = folder
        self.chance = chance
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.kills = {"client": 0, "daemon": 0, "keeper": 0}

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
            ],
            stderr=err,
        )
        err.close()

    def kill_something(self, store: entrepot.Store) -> None:
        target = self.chance.choices(("client", "daemon", "keeper"), (70, 20, 10))[0]
        if target == "client":
            number = self.chance.choice(sorted(self.workers))
            self.workers[number].kill()
            self.workers[number].wait()
            self.start(number)
        else:
            before = store.status()
            pid = before["pid" if target == "daemon" else "keeper_pid"]
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: self.replaced(store, target, pid), 30, f"a new {target} for the killed {pid}")
        self.kills[target] += 1

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
def test_nothing_sealed_is_lost_and_nothing_leaks(address: str, tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    folder.mkdir()
    chance = random.Random(SEED)
    store = entrepot.connect(address, scope="soak", session="")
    soak = Soak(address, folder, chance)
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
    print(f"seed {SEED}: {operations} journal lines, kills {soak.kills}, {found} objects verified at the end")
    assert operations > CLIENTS * SECONDS, "the workers hardly worked"

    for path in folder.glob("*.journal"):
        for key in read_journal(path):
            store.delete(store.derive(key))
    wait_until(lambda: len(store.status()["clients"]) == 1, 30, "the killed clients to be noticed")
    wait_until(lambda: store.status()["deferred_frees"] == 0, 30, "the last deferred free")
    status = store.status()
    leaks = {name: status[name] for name in ("objects", "blobs", "used_bytes", "pinned_bytes", "leased_bytes")}
    assert leaks == dict.fromkeys(leaks, 0), f"seed {SEED}: something leaked"
