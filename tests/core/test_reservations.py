"""Reservations: tasks that together exceed the store run one after another instead of all at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.cli import main
from spawned_programs import read_line, send_line
from suspension import suspend

MIB = 1 << 20

HOLDER = """
    with store.reserve("160MiB") as reservation:
        print("held", flush=True)
        sys.stdin.readline()
    print("released", flush=True)
"""


def reservations(store: entrepot.Store) -> dict[str, Any]:
    listed: dict[str, Any] = store.status()["reservations"]
    return listed


def waiting_pids(store: entrepot.Store) -> list[int]:
    return [entry["pid"] for entry in reservations(store)["waiting"]]


def test_a_reservation_counts_what_is_stored_under_it(store: entrepot.Store) -> None:
    with store.reserve("64MiB", timeout=0) as reservation:
        assert isinstance(reservation, entrepot.Reservation)
        assert (reservation.bytes, reservation.used, reservation.held) == (64 * MIB, 0, True)
        oid = store.put(np.ones(MIB))
        assert 8 * MIB <= reservation.used < 8 * MIB + 4096
        assert reservations(store)["bytes"] == 64 * MIB
        store.delete(oid)
        assert reservation.used >= 8 * MIB, "what was handed over, whether or not it still exists"
    assert not reservation.held
    assert 8 * MIB <= reservation.used < 8 * MIB + 4096, "as it was at the end"
    assert reservations(store) == {"bytes": 0, "granted": [], "waiting": []}
    reservation.release()


def test_without_a_block_it_is_held_until_it_is_released(store: entrepot.Store) -> None:
    reservation = store.reserve(np.int64(MIB))
    assert reservations(store)["bytes"] == MIB
    reservation.release()
    assert reservations(store)["bytes"] == 0


def test_it_ends_with_its_last_reference(store: entrepot.Store) -> None:
    reservation = store.reserve("8MiB")
    assert reservations(store)["bytes"] == 8 << 20
    del reservation
    assert reservations(store)["bytes"] == 0


def test_more_than_any_store_is_refused_at_once(store: entrepot.Store) -> None:
    with pytest.raises(entrepot.StoreFull, match=r"at most .* can be reserved"):
        store.reserve("99999999999TiB", timeout=60)


def test_what_is_shared_with_stored_objects_is_free(store: entrepot.Store) -> None:
    oid = store.put({"a": np.ones(MIB), "b": np.zeros(10)})
    with store.reserve("32MiB") as reservation:
        value = store.get(oid)
        store.put({"again": value["a"], "more": np.full(MIB // 2, 2.0)})
        assert 4 * MIB <= reservation.used < 4 * MIB + 4096
        store.put(value["a"][1000:])
        assert reservation.used < 4 * MIB + 4096
        store.put({"small": 1})
        assert reservation.used < 4 * MIB + 4096


def test_zero_bytes_are_granted_at_once_and_measure(store: entrepot.Store) -> None:
    with store.reserve("200MiB"), store.reserve(0, timeout=0) as measured:
        assert measured.bytes == 0
    with store.reserve("0") as measured:
        store.put(np.ones(MIB))
        assert measured.used >= 8 * MIB


@pytest.mark.parametrize("size", [-1, "2 GB", "", 1.5, None, "-1"], ids=repr)
def test_a_size_that_is_none_is_refused(store: entrepot.Store, size: Any) -> None:
    with pytest.raises(entrepot.InvalidArgument, match="size"):
        store.reserve(size)


@pytest.mark.parametrize("timeout", [-1, "5", float("nan")], ids=repr)
def test_a_timeout_that_is_none_is_refused(store: entrepot.Store, timeout: Any) -> None:
    with pytest.raises(entrepot.InvalidArgument, match="timeout"):
        store.reserve(MIB, timeout=timeout)
    assert reservations(store)["granted"] == []


def test_more_than_could_ever_fit_is_refused_at_once(store: entrepot.Store) -> None:
    with pytest.raises(entrepot.StoreFull, match=r"at most 255\.9 MiB \(\d+ bytes\) can be reserved"):
        store.reserve("1GiB", timeout=None)


def test_one_not_granted_in_time_says_who_holds_what(store: entrepot.Store, spawn: Callable[..., Any]) -> None:
    holder = spawn(HOLDER)
    assert read_line(holder) == "held"
    with pytest.raises(entrepot.StoreFull, match=rf"process {holder.pid}\) has reserved 160 MiB"):
        store.reserve("128MiB", timeout=0.05)
    with pytest.raises(entrepot.StoreFull, match=rf"process {holder.pid}\) has reserved 160 MiB"):
        store.reserve("128MiB", timeout=0)
    with store.reserve("64MiB", timeout=0):
        pass


def test_a_put_neither_needs_one_nor_waits_for_one(store: entrepot.Store, spawn: Callable[..., Any]) -> None:
    holder = spawn(HOLDER)
    assert read_line(holder) == "held"
    store.put(np.ones(24 * MIB))  # 192 of 256 MiB, beside 160 that are reserved


@pytest.mark.parametrize("ending", ["release", "kill"])
def test_the_next_in_line_gets_it_when_the_holder_ends(
    store: entrepot.Store, spawn: Callable[..., Any], wait_until: Callable[..., None], ending: str
) -> None:
    holder = spawn(HOLDER)
    assert read_line(holder) == "held"
    waiter = spawn(HOLDER)
    wait_until(lambda: waiting_pids(store) == [waiter.pid], "the second request")
    if ending == "kill":
        holder.kill()
    else:
        send_line(holder)
    assert read_line(waiter) == "held"
    assert [entry["pid"] for entry in reservations(store)["granted"]] == [waiter.pid]


def test_a_waiting_process_that_is_killed_leaves_the_line(
    store: entrepot.Store, spawn: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    holder, *waiters = (spawn(HOLDER) for _ in range(1))
    assert read_line(holder) == "held"
    for expected in (1, 2):
        waiters.append(spawn(HOLDER))
        wait_until(lambda expected=expected: len(waiting_pids(store)) == expected, "a request")
    waiters[0].kill()
    wait_until(lambda: waiting_pids(store) == [waiters[1].pid], "the end of a request")
    send_line(holder)
    assert read_line(waiters[1]) == "held"


def test_a_wait_can_be_interrupted_and_leaves_the_line(
    store: entrepot.Store, spawn: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    holder = spawn(HOLDER)
    assert read_line(holder) == "held"
    waiter = spawn(
        """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests were started
        try:
            store.reserve("160MiB", timeout=None)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        sys.stdin.readline()
        """
    )
    wait_until(lambda: waiting_pids(store) == [waiter.pid], "the request")
    waiter.send_signal(signal.SIGINT)
    assert read_line(waiter) == "interrupted"
    wait_until(lambda: waiting_pids(store) == [], "the end of the request")
    send_line(holder)
    assert read_line(holder) == "released"
    assert reservations(store)["granted"] == []
    assert waiter.poll() is None, "it gave up its place while it lives"


TASK = """
    import sys
    import entrepot
    import numpy as np
    store = entrepot.connect(sys.argv[1], scope="tests")
    with store.reserve("150MiB", timeout=None):
        print("began", store.status()["reservations"]["granted"][0]["pid"], flush=True)
        parts = [store.put(np.full(9 << 20, float(number))) for number in range(2)]
        held = [store.get(oid) for oid in parts]
        assert [float(part[0]) for part in held] == [0.0, 1.0]
        print("ends", flush=True)
        del held
        for oid in parts:
            store.delete(oid)
"""


def test_tasks_that_exceed_the_store_together_run_one_after_another_in_order(
    new_daemon: Callable[..., Any], wait_until: Callable[..., None], socket_folder: Any
) -> None:
    """Six tasks of 144 MiB in a store of 256 MiB, which could spill: none does, and none fails."""
    daemon = new_daemon("256MiB", f"--spill-path={socket_folder}/spill")
    with entrepot.connect(daemon.address, scope="tests") as store:
        first = store.reserve("255MiB", timeout=0)  # so that all of them wait
        tasks: list[subprocess.Popen[str]] = []
        try:
            for number in range(6):
                command = [sys.executable, "-c", textwrap.dedent(TASK), daemon.address]
                tasks.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
                wait_until(lambda count=number + 1: len(waiting_pids(store)) == count, "a task's request")
            order = waiting_pids(store)
            assert order == [task.pid for task in tasks]
            first.release()
            for task in tasks:
                assert read_line(task) == f"began {task.pid}", "nobody else had a reservation at that time"
                assert read_line(task) == "ends"
                assert task.wait(60) == 0
        finally:
            for task in tasks:
                task.kill()
                task.communicate()
        spill = store.status()["spill"]
        assert spill["enabled"]
        assert (spill["evictions"], spill["written_bytes"], spill["loads"]) == (0, 0, 0)


def test_a_restarted_daemon_gets_reservations_back(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    with store.reserve("160MiB") as reservation:
        daemon = store.status()["pid"]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: store.status()["pid"] != daemon, "another daemon")
        assert reservation.held
        with entrepot.connect(store.address, scope="tests") as _:
            assert reservations(store)["bytes"] == 160 * MIB
    assert reservations(store)["bytes"] == 0


@pytest.mark.usefixtures("private")
def test_the_next_store_knows_nothing_of_it(wait_until: Callable[..., None]) -> None:
    with entrepot.connect(scope="tests") as store:
        reservation = store.reserve("32MiB")
        status = store.status()
        suspend(status["keeper_pid"])  # so that neither restarts the other
        os.kill(status["pid"], signal.SIGKILL)
        os.kill(status["keeper_pid"], signal.SIGKILL)
        assert not reservation.held
        reservation.release()
        assert reservations(store)["bytes"] == 0
        with store.reserve("32MiB", timeout=0) as another:
            reservation.release()
            assert another.held


def test_a_forked_child_has_none_and_takes_none_away(store: entrepot.Store) -> None:
    with store.reserve("32MiB") as reservation:
        pid = os.fork()
        if pid == 0:
            try:
                free = not reservation.held
                reservation.release()
                own = store.reserve(MIB, timeout=0)
                os._exit(0 if free and own.held else 1)
            finally:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        assert reservation.held


def test_release_after_close_is_harmless(daemon: Any) -> None:
    store = entrepot.connect(daemon.address, scope="tests")
    reservation = store.reserve(MIB)
    store.close()
    reservation.release()
    with pytest.raises(entrepot.StoreUnavailable):
        store.reserve(MIB)
    with entrepot.connect(daemon.address, scope="tests") as other:
        assert reservations(other)["bytes"] == 0


def test_the_status_shows_who_holds_and_who_waits(
    store: entrepot.Store,
    spawn: Callable[..., Any],
    wait_until: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["status", "--address", store.address]) == 0
    assert "reserved" not in capsys.readouterr().out
    holder = spawn(HOLDER)
    assert read_line(holder) == "held"
    waiter = spawn(HOLDER)
    wait_until(lambda: waiting_pids(store) == [waiter.pid], "the second request")
    assert main(["status", "--address", store.address]) == 0
    output = capsys.readouterr().out
    assert "160.0 MiB in 1 reservation, 1 waiting" in output
    lines = [line.split() for line in output.splitlines()]
    assert any(line[:1] == [str(holder.pid)] and "for" in line for line in lines)
    assert any(line[:1] == [str(waiter.pid)] and "waiting" in line for line in lines)
