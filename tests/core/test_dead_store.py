"""Death of a whole store (keeper and daemon): connected processes continue with the next store."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot._daemon import launcher
from suspension import suspend

MIB = 1 << 20


def kill(daemon: Any, store: entrepot.Store) -> None:
    """Kill keeper and daemon at once, so that neither restarts the other."""
    status = store.status()
    both = (status["keeper_pid"], status["pid"])
    for pid in both:
        suspend(pid)
    for pid in both:
        os.kill(pid, signal.SIGKILL)
    daemon.was_killed(status["pid"])


@pytest.fixture
def replaced(daemon: Any, store: entrepot.Store) -> Callable[[], None]:
    """``replaced()``: kill the store and start another one at its address."""

    def replace() -> None:
        kill(daemon, store)
        daemon.start()

    return replace


def test_the_first_call_reaches_the_next_store(store: entrepot.Store, replaced: Callable[[], None]) -> None:
    large = np.arange(100_000)
    oid = store.put(large)
    pinned_value = store.get(oid)
    old_instance = store.instance_id
    replaced()
    new_oid = store.put(large, name="again")
    assert store.instance_id != old_instance
    assert (store.get_by_name("again") == large).all()
    assert store.exists(new_oid)
    assert (pinned_value == large).all()
    assert not store.closed


def mappings() -> int:
    """Number of shared memory mappings in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:")


@pytest.fixture
def private_store(socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[entrepot.Store]:
    """Private store of the test user, started by the connection."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        folder = socket_folder / name[4:7].lower()
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("ENTREPOT_PRIVATE_SIZE", "64MiB")
    with entrepot.connect(scope="tests") as store:
        yield store
        keeper = store.status()["keeper_pid"]
    assert launcher.stop(keeper)


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.put("new"),
        lambda store: store.put_many(["new"] * 3),
        lambda store: store.status(),
        lambda store: store.list(),
        lambda store: store.sessions(),
        lambda store: store.exists("ab" * 20),
        lambda store: store.set_name("name", store.put("new")),
        lambda store: store.locality_set("set", priority=3),
        lambda store: store.create(MIB).seal(),
        lambda store: store.session("other").put("new"),
        lambda store: store.delete("ab" * 20),
    ],
    ids=["put", "put_many", "status", "list", "sessions", "exists", "set_name", "set", "create", "session", "delete"],
)
def test_every_kind_of_first_call_reaches_the_next_store(
    store: entrepot.Store, replaced: Callable[[], None], call: Callable[[entrepot.Store], object]
) -> None:
    old_instance = store.instance_id
    replaced()
    assert store.instance_id == old_instance, "nothing was asked yet"
    call(store)
    assert store.instance_id != old_instance


def test_a_new_connection_reaches_the_next_store(store: entrepot.Store, replaced: Callable[[], None]) -> None:
    replaced()
    with entrepot.connect(store.address, scope="tests") as reconnected:
        assert reconnected.get(store.put("new")) == "new"


def follows_killed(daemon: Any) -> bool:
    with entrepot.connect(daemon.address, scope="other") as store:
        return bool(store.status()["follows_killed_store"])


def test_the_next_store_says_that_this_one_was_killed(daemon: Any, store: entrepot.Store) -> None:
    """Nothing was spilled; the next store learns it from the address's lock file."""
    oid = store.put("gone")
    assert not follows_killed(daemon)
    kill(daemon, store)
    store.close()
    daemon.start()
    with entrepot.connect(daemon.address, scope="tests") as reconnected:
        assert reconnected.status()["follows_killed_store"] is True
        with pytest.raises(entrepot.ObjectNotFound, match="keeper and daemon were killed"):
            reconnected.get(oid)
        with pytest.raises(entrepot.ObjectNotFound, match=r"'name'.*keeper and daemon were killed"):
            reconnected.get_by_name("name")
        os.kill(reconnected.status()["pid"], signal.SIGKILL)
        assert follows_killed(daemon), "the next daemon of the same store says so too"
    daemon.stop()
    daemon.start()
    assert not follows_killed(daemon)


def test_a_store_of_which_one_part_died_was_not_killed(
    daemon: Any, store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    before = store.status()
    os.kill(before["pid"], signal.SIGKILL)
    assert not follows_killed(daemon)
    os.kill(before["keeper_pid"], signal.SIGKILL)
    wait_until(lambda: store.status()["keeper_pid"] not in (0, before["keeper_pid"]), "another keeper")
    assert not follows_killed(daemon)
    keeper = store.status()["keeper_pid"]
    store.close()
    assert launcher.stop(keeper), "a keeper that a daemon started knows of a clean end too"
    daemon.was_killed(keeper)
    daemon.start()
    assert not follows_killed(daemon)


def test_an_idle_end_is_a_clean_one(new_daemon: Callable[..., Any]) -> None:
    daemon = new_daemon("64MiB", "--idle-exit", "1s")
    with entrepot.connect(daemon.address, scope="tests") as store:
        pid = store.status()["pid"]
    del store  # and with it the connection
    daemon.was_killed(pid)
    daemon.start()
    assert not follows_killed(daemon)


def test_a_refused_start_forgets_nothing(
    daemon: Any, store: entrepot.Store, socket_folder: Path, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    lock = socket_folder / "store.sock.lock"
    wait_until(lambda: lock.read_text().endswith("has a store\n"), "the daemon to write that there is a store")
    lock_text = lock.read_text()
    command = [str(launcher.daemon_binary()), "--address", daemon.address, "--size", "64MiB", "--spill-path"]
    refused = subprocess.run([*command, "none"], capture_output=True, text=True, check=False, timeout=60)
    assert "is starting or running at" in refused.stderr
    assert lock.read_text() == lock_text
    kill(daemon, store)
    store.close()
    nowhere = tmp_path / "file"
    nowhere.touch()
    refused = subprocess.run([*command, str(nowhere)], capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 1, refused.stderr
    daemon.start()
    assert follows_killed(daemon)


def test_a_lock_file_of_a_version_that_said_less_tells_nothing(daemon: Any, socket_folder: Path) -> None:
    for lock_text in ("", "4711\n"):
        daemon.stop()
        (socket_folder / "store.sock.lock").write_text(lock_text)
        daemon.start()
        assert not follows_killed(daemon)


def test_what_is_gone_is_lost_at_once(store: entrepot.Store, replaced: Callable[[], None]) -> None:
    large, small = store.put(np.zeros(MIB)), store.put(b"small")
    replaced()
    begun = time.monotonic()
    store.status()  # from here on, the client knows
    for oid in (large, small):
        with pytest.raises(entrepot.ObjectLost, match="was lost with the previous store"):
            store.get(oid)
        with pytest.raises(entrepot.ObjectLost, match="was lost with the previous store"):
            store.info(oid)
        assert not store.exists(oid)
    with pytest.raises(entrepot.ObjectNotFound):
        store.get("ab" * 20)  # was in neither store
    store.put(b"recomputed", id=small)
    assert store.get(small) == b"recomputed"
    assert time.monotonic() - begun < 10  # watchdog: nothing here waits


LOST_READS: dict[str, Callable[[entrepot.Store, Any], object]] = {
    "get": lambda store, oid: store.get(oid, timeout=20),
    "get_many": lambda store, oid: store.get_many([store.put("new"), oid], timeout=20),
    "pin": lambda store, oid: store.pin(oid, timeout=20),
    "pin without a timeout": lambda store, oid: store.pin(oid),
    "without a limit": lambda store, oid: store.get(oid, timeout=None),
}


@pytest.mark.parametrize("read", LOST_READS.values(), ids=LOST_READS)
def test_what_is_gone_is_lost_at_once_with_a_timeout_too(
    store: entrepot.Store, replaced: Callable[[], None], read: Callable[[entrepot.Store, Any], object]
) -> None:
    """A read that would wait for a seal does not wait for what was in the dead store."""
    oid = store.put(np.zeros(MIB))
    replaced()
    for _ in range(2):  # the first learns of the death
        begun = time.monotonic()
        with pytest.raises(entrepot.ObjectLost, match="was lost with the previous store"):
            read(store, oid)
        assert time.monotonic() - begun < 1


def test_a_lost_object_that_was_made_again_is_waited_for_as_any(
    daemon: Any, store: entrepot.Store, replaced: Callable[[], None]
) -> None:
    oids = [store.put(np.zeros(MIB)) for _ in range(3)]
    replaced()
    store.put(b"made here", id=oids[0])
    with entrepot.connect(daemon.address, scope="tests") as other:
        other.put(np.ones(MIB), id=oids[1])
        other.put("named", id=oids[2], name="named")
    assert store.get(oids[1], timeout=20)[0] == 1
    assert store.resolve("named") == oids[2]
    for oid in oids:
        store.delete(oid)
        with pytest.raises(entrepot.Timeout):  # deleted from this store, not lost with the other
            store.get(oid, timeout=0.01)
        with pytest.raises(entrepot.ObjectNotFound):
            store.get(oid)


def test_a_collection_waits_for_members_that_are_made_again(
    store: entrepot.Store, replaced: Callable[[], None]
) -> None:
    store.collection("parts").put("first", index=0)
    replaced()
    store.status()
    builder = store.collection("parts")
    timer = threading.Timer(0.5, lambda: builder.put("again", index=0))
    timer.start()
    builder.seal(length=1, timeout=30)
    timer.join()
    assert list(store.get_by_name("parts")) == ["again"]


def test_sessions_and_sets_are_restored(store: entrepot.Store, replaced: Callable[[], None]) -> None:
    other = store.session("other", ttl=1234)
    first = other.locality_set("first", priority=1)
    second = other.locality_set("second", priority=2, reading="once")
    replaced()
    oid = other.put(np.zeros(MIB), locality_set=second, name="here")
    assert other.resolve("here") == oid
    assert [info.id for info in other.list()] == [oid]
    assert not store.list()
    (session_info,) = (item for item in store.sessions() if item.session == "other")
    assert session_info.ttl_seconds == 1234
    (second_info,) = (item for item in other.locality_sets() if item.name == "second")
    assert (second_info.priority, second_info.reading, second_info.objects) == (2, "once", 1)
    other.hint(first, priority=5)
    assert {item.name: item.priority for item in other.locality_sets()}["first"] == 5
    other.close()


def test_a_blob_of_the_dead_store_cannot_be_sealed(store: entrepot.Store, replaced: Callable[[], None]) -> None:
    blob = store.create(MIB)
    late = store.create(MIB)
    blob.view[:4] = late.view[:4] = b"half"
    replaced()
    with pytest.raises(entrepot.InstanceLost, match="create another"):
        blob.seal()
    store.status()
    with pytest.raises(entrepot.InstanceLost, match="create another"):
        late.seal()
    assert issubclass(entrepot.InstanceLost, entrepot.StoreUnavailable)
    with store.create(MIB) as next_one:
        next_one.view[:4] = b"full"
    assert bytes(store.get(next_one.id))[:4] == b"full"


def test_nobody_starts_another(store: entrepot.Store, daemon: Any) -> None:
    oid = store.put(np.arange(100_000))
    pinned_value = store.get(oid)
    kill(daemon, store)
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(entrepot.StoreUnavailable, match="entrepot start"):
            store.put("new")
        assert time.monotonic() - begun < 10  # watchdog: it gives up after half a second
    assert (pinned_value == np.arange(100_000)).all()
    daemon.start()
    assert store.get(store.put("new")) == "new"


def test_threads_that_notice_at_once_connect_once(
    store: entrepot.Store, replaced: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    oid = store.put(np.zeros(MIB))
    label = store.status()["clients"][0]["pid"]
    old_instance = store.instance_id
    replaced()
    barrier = threading.Barrier(8)

    def work(number: int) -> object:
        barrier.wait(30)
        return store.get(store.put(number))

    with caplog.at_level(logging.WARNING, "entrepot"), ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == list(range(8))
        with pytest.raises(entrepot.ObjectLost):
            store.get(oid)
    assert [client["pid"] for client in store.status()["clients"]] == [label]
    (message,) = (record.getMessage() for record in caplog.records if record.name == "entrepot")
    assert store.address in message
    assert old_instance in message
    assert store.instance_id in message
    assert "1 object" in message


def test_three_stores_in_a_row(store: entrepot.Store, replaced: Callable[[], None]) -> None:
    other_mappings = mappings()  # includes stores used by other tests of this process
    pinned_values = []
    for number in range(3):
        pinned_values.append(store.get(store.put(np.full(200_000, number), name="value")))
        assert (store.get_by_name("value") == number).all()
        replaced()
    assert all((value == number).all() for number, value in enumerate(pinned_values))
    store.status()
    own_mappings = mappings() - other_mappings
    pinned_values.clear()
    assert mappings() - other_mappings < own_mappings / 2  # only values keep a dead store's memory mapped


def test_a_child_of_a_process_whose_store_died(store: entrepot.Store, replaced: Callable[[], None]) -> None:
    oid = store.put(np.arange(100_000))
    pinned_value = store.get(oid)
    replaced()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # the death has not been noticed yet
        answer = b"no"
        try:
            new = store.put("of the child", name="child")
            answer = b"ok" if store.get(new) == "of the child" and pinned_value[-1] == 99_999 else b"??"
        finally:
            os.write(write, answer)
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"ok"
    os.waitpid(child, 0)
    assert store.get_by_name("child") == "of the child"


def test_closing_while_others_connect_anew(store: entrepot.Store, daemon: Any) -> None:
    kill(daemon, store)

    def work() -> str:
        try:
            store.put("new")
        except entrepot.StoreUnavailable as error:
            return str(error)
        return "stored"

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work) for _ in range(4)]
        store.close()
        for future in futures:
            assert future.result(30) != "stored"
    daemon.start()
    with pytest.raises(entrepot.StoreUnavailable, match="closed"):
        store.put("new")


def test_the_private_store_is_started_anew(private_store: entrepot.Store) -> None:
    oid = private_store.put(np.zeros(MIB))
    status = private_store.status()
    for pid in (status["keeper_pid"], status["pid"]):
        suspend(pid)
    for pid in (status["keeper_pid"], status["pid"]):
        os.kill(pid, signal.SIGKILL)
    assert private_store.get(private_store.put("new")) == "new"
    with pytest.raises(entrepot.ObjectLost):
        private_store.get(oid)
