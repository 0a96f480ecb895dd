"""Names after keeper and daemon were both killed: one that was moved never leads to its former object again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot._store.objects import to_item
from suspension import suspend

WAIT_SECONDS = 60.0
MIB = 1 << 20
NAMES = [f"name{number}" for number in range(8)]


def kill_both(daemon: Any, pids: tuple[int, int]) -> None:
    """Kill keeper and daemon at once: stopped first, so that neither restarts the other or goes on for a moment."""
    for pid in pids:
        suspend(pid)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    daemon.was_killed(pids[0])


@pytest.fixture
def spilling(tmp_path: Path, new_daemon: Callable[..., Any]) -> Any:
    """A store of 256 MiB with a separate spill directory."""
    return new_daemon("256MiB", "--spill-path", str(tmp_path / "spill"), "--spill-quota", "1GiB")


def array(number: int) -> np.ndarray[Any, Any]:
    """A value large enough to be spilled, that says which one it is."""
    return np.full(4096, number)


class Names:
    """A model of a session's names: which values each of them may lead to after a death."""

    def __init__(self, store: entrepot.Store, dice: random.Random, wait_until: Callable[..., None]) -> None:
        self.store = store
        self.dice = dice
        self.wait_until = wait_until
        self.count = 0
        self.now: dict[str, tuple[entrepot.ObjectID, int]] = {}

    def put(self, name: str) -> None:
        """Put another value under the name: one that can be spilled, or a small one, which cannot."""
        self.count += 1
        value = array(self.count) if self.dice.random() < 0.7 else self.count
        self.now[name] = self.store.put(value, name=name, replace=True), self.count

    def spill(self) -> None:
        """Move all values to disk that can be, and wait until they are listed there."""
        oids = [oid for oid, _ in self.now.values()]
        self.store.evict(*oids)
        self.wait_until(lambda: all(self.is_out(oid) for oid in oids), "all large values to leave")
        self.wait_until(lambda: self.store.status()["spill"]["unrecorded"] == 0, "the manifest")

    def is_out(self, oid: entrepot.ObjectID) -> bool:
        """Whether it left memory, or is in a record, which it never does."""
        info = self.store.info(oid)
        return info.state == "spilled" or info.nbytes < 1000

    def change_one(self) -> None:
        """Move or remove a name, and return once that was answered."""
        name = self.dice.choice(NAMES)
        kind = self.dice.choice(["put", "put", "put", "set", "unset", "delete", "batch"])
        if kind == "batch":
            self.count += 1
            items = [array(self.count), self.count]
            oid = self.store.put_many(items)[self.dice.randrange(2)]
            self.store.set_name(name, oid, replace=True)
            self.now[name] = oid, self.count
        elif kind == "put" or name not in self.now:
            self.put(name)
        elif kind == "set":
            other = self.dice.choice(sorted(self.now))
            self.store.set_name(name, self.now[other][0], replace=True)
            self.now[name] = self.now[other]
        elif kind == "unset":
            self.store.unset_name(name)
            del self.now[name]
        else:
            gone = self.now[name][0]
            self.store.delete(gone)
            self.now = {key: value for key, value in self.now.items() if value[0] != gone}

    def check(self, store: entrepot.Store) -> int:
        """Compare with what another store says; return how many names survived."""
        survived = 0
        for name in NAMES:
            try:
                value = store.get_by_name(name)
            except entrepot.ObjectNotFound:
                continue
            number = int(np.ravel(value)[0])
            expected = self.now.get(name, (None, None))[1]
            assert number == expected, f"{name} leads to value {number}, but it was answered to lead to {expected}"
            survived += 1
        return survived


def test_a_name_never_leads_back_however_soon_both_are_killed(spilling: Any, wait_until: Callable[..., None]) -> None:
    """Killed right after an answer, while the threads that write the manifest are busy with copies."""
    dice = random.Random(4711)
    survived = 0
    for number in range(12):
        scope = f"round{number}"
        with entrepot.connect(spilling.address, scope=scope) as store:
            status = store.status()
            names = Names(store, dice, wait_until)
            for name in NAMES:
                names.put(name)
            names.spill()
            store.evict(*store.put_many([np.full(MIB, byte) for byte in range(4)]))  # 32 MiB to write
            for _ in range(dice.randrange(1, 6)):
                names.change_one()
            kill_both(spilling, (status["pid"], status["keeper_pid"]))
        spilling.start()
        with entrepot.connect(spilling.address, scope=scope) as next_store:
            survived += names.check(next_store)
    assert survived > 12, "hardly any name was recovered"


HANGING_WRITES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
/* Writes to a manifest hang while the file exists that HANG names. */
ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
  ssize_t (*real)(int, const struct iovec *, int, off_t) = dlsym(RTLD_NEXT, "pwritev");
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t bytes = readlink(link, path, sizeof path - 1);
  path[bytes < 0 ? 0 : bytes] = 0;
  while (strstr(path, "/manifest") && access(getenv("HANG"), F_OK) == 0) usleep(1000);
  return real(fd, pieces, count, offset);
}
"""


@pytest.fixture
def hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Path of a file; while it exists, writes of the manifest of a store started from now on do not return."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler")
    (tmp_path / "hang.c").write_text(HANGING_WRITES)
    library = tmp_path / "hang.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "hang.c"), "-ldl"]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("HANG", str(tmp_path / "hangs"))
    return tmp_path / "hangs"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_disk_that_does_not_respond_is_waited_for_twenty_seconds(
    hang: Path, spilling: Any, wait_until: Callable[..., None]
) -> None:
    """The error says what holds; nobody else waits; repeating the call waits again."""
    with entrepot.connect(spilling.address, scope="tests") as store:
        removed = store.session("removed")
        oids = [store.put(array(number), name=f"name{number}") for number in range(4)]
        oids.append(removed.put(array(4), name="name"))
        store.evict(*oids)
        wait_until(lambda: all(store.info(oid).state == "spilled" for oid in oids), "all values to leave")
        wait_until(lambda: store.status()["spill"]["unrecorded"] == 0, "the manifest to be written")
        new_oid = store.put("new")
        session = store._session
        items = [
            to_item(session, "unnamed", store.derive("unnamed"), True),
            to_item(session, "named", store.derive("named"), True, "name3", True),
        ]
        calls: list[Callable[[], object]] = [
            lambda: store.put("moved", name="name0", replace=True),
            lambda: store.set_name("name1", new_oid, replace=True),
            lambda: store.unset_name("name2"),
            lambda: store.delete(oids[1]),
            lambda: session.raw().put(items, 30.0),
            lambda: store.remove_session("removed"),
        ]
        pid = store.status()["pid"]
        hang.touch()
        with ThreadPoolExecutor(len(calls)) as pool:
            waiting = [pool.submit(call) for call in calls]
            wait_until(lambda: store.status()["waiting"] == len(calls), "all of them to wait")
            begun = time.monotonic()
            assert store.get(store.put("of another name", name="other", replace=True)) == "of another name"
            assert time.monotonic() - begun < 10, "who has no former object on disk does not wait"
            assert store.get_by_name("name0") == "moved"
            errors = [future.exception(WAIT_SECONDS) for future in waiting]
        hang.unlink()
        for error in errors:
            assert isinstance(error, entrepot.Timeout), errors
            assert "may lead to its former object in the next store" in str(error)
        assert "value 1 of 2" in str(errors[4]), "the other one of the batch was answered"
        assert store.get(store.derive("unnamed")) == "unnamed"
        assert store.get_by_name("name0") == "moved"
        assert store.get_by_name("name1") == "new"
        with pytest.raises(entrepot.ObjectNotFound):
            store.resolve("name2")
        assert not store.exists(oids[1])
        store.set_name("name0", store.resolve("name0"))  # once the disk responds, this waits for it
        assert store.status()["pid"] == pid
        spilling.kill(store)
    spilling.start()
    with entrepot.connect(spilling.address, scope="tests") as next_store:
        for name in ("name0", "name1", "name2", "name3"):
            with pytest.raises(entrepot.ObjectNotFound, match="keeper and daemon were killed"):
                next_store.resolve(name)
        assert {info.id for info in next_store.list()} == {oids[0], oids[2], oids[3]}
        assert not next_store.session("removed").list()
