"""Streams over hosts when processes, gateways and stores are killed or stopped: nothing is lost, nothing hangs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import InstanceLost, StoreUnavailable, StreamEnded, StreamFailed
from in_thread import in_thread
from suspension import suspend

sys.path.insert(0, str(Path(__file__).parents[2] / "run_programs"))

from spawned_programs import read_line, send_line

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]
PATIENCE = 60.0

WRITER = """
    stream = store.stream(sys.argv[1], cluster=True)
    with stream.writer() as writer:
        print("ready", flush=True)
        for line in sys.stdin:
            writer.put({"number": int(line), "rest": bytes(400_000)})
            print("put", flush=True)
    print("closed", flush=True)
"""

READER = """
    stream = store.stream(sys.argv[1], cluster=True)
    with stream.reader("model") as reader:
        print("ready", flush=True)
        for line in sys.stdin:
            print(reader.get()["number"], flush=True)
"""


def shared(host: Any, name: str = "frames", **arguments: Any) -> Any:
    """Open a stream of the cluster."""
    return host.store.stream(name, cluster=True, **arguments)


def read_all(reader: Any) -> list[int]:
    """Read to the end, which has to come."""
    numbers = []
    while True:
        try:
            numbers.append(reader.get(timeout=PATIENCE)["number"])
        except StreamEnded:
            return numbers


def put_all(writer: Any, numbers: Any) -> None:
    for number in numbers:
        writer.put({"number": number, "rest": bytes(100_000)}, timeout=PATIENCE)


# --- processes


def test_a_killed_reader_loses_nothing(lasting_hosts: Any, run_on: Any) -> None:
    a, b = lasting_hosts
    home = shared(a, "killed reader")
    with home.writer() as writer:
        put_all(writer, range(6))
    process = run_on(b, READER, "killed reader")
    assert read_line(process) == "ready"
    for number in range(2):
        send_line(process)
        assert read_line(process) == str(number)
    process.kill()
    with home.reader("model") as reader:
        numbers = read_all(reader)
    # 1 was in its hand; 0 comes again if the gateway had not heard that it was consumed
    assert sorted(numbers) in ([1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])


def test_a_killed_writer_is_an_error_everywhere(lasting_hosts: Any, run_on: Any) -> None:
    a, b = lasting_hosts
    home = shared(a, "killed writer", writers=2)
    process = run_on(b, WRITER, "killed writer")
    assert read_line(process) == "ready"
    near, far = home.reader("near"), shared(b, "killed writer").reader("far")
    other = shared(b, "killed writer").writer()
    process.stdin.write("1\n")
    process.stdin.flush()
    assert read_line(process) == "put"
    assert near.get(timeout=PATIENCE)["number"] == far.get(timeout=PATIENCE)["number"] == 1
    waits = [in_thread(near.get), in_thread(far.get)]
    process.kill()
    for wait in waits:
        with pytest.raises(StreamFailed, match="on host b"):
            wait.result(PATIENCE)
    with pytest.raises(StreamFailed, match="on host b"):
        other.close()


def test_processes_that_are_stopped_go_on(lasting_hosts: Any, run_on: Any) -> None:
    a, b = lasting_hosts
    home = shared(a, "stopped", capacity=2)
    reader_process = run_on(b, READER, "stopped")
    assert read_line(reader_process) == "ready"
    writer_process = run_on(b, WRITER, "stopped")
    assert read_line(writer_process) == "ready"
    others = home.reader("others")
    suspend(reader_process.pid)
    writer_process.stdin.write("0\n1\n2\n3\n")
    writer_process.stdin.close()
    assert others.get(timeout=PATIENCE)["number"] == 0
    suspend(writer_process.pid)
    os.kill(reader_process.pid, signal.SIGCONT)
    os.kill(writer_process.pid, signal.SIGCONT)
    followed = in_thread(lambda: read_all(others))
    for number in range(4):
        send_line(reader_process)
        assert read_line(reader_process) == str(number)
    send_line(reader_process)
    assert followed.result(PATIENCE) == [1, 2, 3]
    assert [read_line(writer_process) for _ in range(5)] == ["put"] * 4 + ["closed"]
    assert shared(b, "stopped").ended


# --- gateways and stores


def test_a_killed_gateway_of_a_far_end(two_hosts: Any) -> None:
    """Its processes get an error at once; at home, its writer is dead and its reader's chunk goes back."""
    a, b = two_hosts
    read, written = shared(a, "read"), shared(a, "written")
    with read.writer() as writer:
        put_all(writer, range(2))
    reader, far_writer = shared(b, "read").reader("model"), shared(b, "written").writer()
    put_all(far_writer, [0])
    assert reader.get(timeout=PATIENCE)["number"] == 0
    waits = in_thread(lambda: read_all(written.reader("model")))
    b.kill_gateway()
    with pytest.raises(StoreUnavailable, match="gateway of this host"):
        reader.get(timeout=PATIENCE)
    with pytest.raises(StoreUnavailable, match="gateway of this host"):
        far_writer.close()
    with read.reader("model") as here:
        assert sorted(read_all(here)) == [0, 1]
    with pytest.raises(StreamFailed, match="sign of life"):
        waits.result(PATIENCE)
    b.start_gateway()
    with shared(b, "again").writer() as writer:
        put_all(writer, [5])
    assert read_all(shared(a, "again").reader("model")) == [5]


def test_a_home_whose_gateway_is_killed_and_then_its_store(
    two_hosts: Any, cluster: Any, wait_until: Callable[..., None]
) -> None:
    a, b = two_hosts
    shared(a)
    read, written = shared(a, "read", groups=["model"]), shared(a, "written")
    reader, far_writer = shared(b, "read").reader("model"), shared(b, "written").writer()
    put_all(far_writer, [0])
    home_writer, home_reader = read.writer(), written.reader("model")
    put_all(home_writer, range(3))
    assert reader.get(timeout=PATIENCE)["number"] == 0
    assert home_reader.get(timeout=PATIENCE)["number"] == 0
    before = [0]

    def read_on() -> None:
        while True:
            before.append(reader.get(timeout=PATIENCE)["number"])

    waits = [in_thread(read_on), in_thread(lambda: put_all(far_writer, range(100)))]
    a.kill_gateway()
    with pytest.raises(StreamFailed):
        home_reader.get(timeout=PATIENCE)
    for wait in waits:
        with pytest.raises(StoreUnavailable, match="host a"):
            wait.result(PATIENCE)
    a.start_gateway()
    home_writer.close()  # readers that die are no failure
    with shared(b, "read").reader("model") as again:
        after = read_all(again)
    # A reader's next get() tells that the chunk before it was consumed; which ones the home heard of depends on how far
    # the reader came before the kill. None is lost, and what comes again is the end of the stream.
    assert after == list(range(3 - len(after), 3))
    assert {*before, *after} == {0, 1, 2}
    assert shared(a, "read").ended
    waiting = in_thread(shared(b).reader("model").get)
    pid = a.store.status()["pid"]
    os.kill(pid, signal.SIGKILL)  # the daemon: the next one does not know the stream
    with pytest.raises((StreamFailed, StoreUnavailable)):
        waiting.result(PATIENCE)
    wait_until(lambda: a.store.status()["pid"] != pid, "the daemon to be restarted")
    wait_until(lambda: a.store.status()["gateway"]["process"], "its gateway to serve the new daemon")
    shared(a)
    waiting = in_thread(lambda: shared(b).reader("model").get())
    wait_until(lambda: any(each["name"].startswith("frames@") for each in b.store.status()["streams"]), "a reader")
    a.kill()
    with pytest.raises(StoreUnavailable, match="host a"):
        waiting.result(PATIENCE)
    wait_until(lambda: cluster.instances() == {"a": False, "b": True}, "the lost instance to be noticed")

    def is_lost() -> bool:
        try:
            shared(b)
        except InstanceLost as error:
            return "host a" in str(error)
        except StoreUnavailable:
            return False
        return False

    wait_until(is_lost, "the home to be lost")
    with shared(b, replace=True).writer() as writer:
        put_all(writer, [1])
    assert read_all(shared(b).reader("model")) == [1]


@pytest.mark.exhaustive
def test_homes_that_are_stopped_do_not_make_others_hang(cluster: Any) -> None:
    """The gateway of one home, and the daemon of another."""
    homes, far = [cluster.host("home-1"), cluster.host("home-2")], cluster.host("far")
    stopped = [homes[0].gateway_pid, homes[1].store.status()["pid"]]
    waits: list[Future[Any]] = []
    written = []
    for home in homes:
        shared(home, f"read {home.name}", groups=["model"])
        written.append(shared(home, f"written {home.name}").reader("model"))
        reader = shared(far, f"read {home.name}").reader("model")
        writer = shared(far, f"written {home.name}").writer()
        put_all(writer, [0])
        assert written[-1].get(timeout=PATIENCE)["number"] == 0
        waits += [in_thread(reader.get), in_thread(partial(put_all, writer, range(100)))]
    for pid in stopped:
        suspend(pid)
    try:
        for number, wait in enumerate(waits):
            with pytest.raises(StoreUnavailable, match=f"host home-{1 + number // 2}"):
                wait.result(PATIENCE)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    for reader in written:
        with pytest.raises(StreamFailed):  # not an end
            read_all(reader)


@pytest.mark.exhaustive
def test_a_far_gateway_that_is_stopped_does_not_make_others_hang(two_hosts: Any) -> None:
    a, b = two_hosts
    shared(a, "read", groups=["model"])
    written = shared(a, "written").reader("model")
    reader, writer = shared(b, "read").reader("model"), shared(b, "written").writer()
    put_all(writer, [0])
    assert written.get(timeout=PATIENCE)["number"] == 0
    suspend(b.gateway_pid)
    try:
        for wait in [in_thread(reader.get), in_thread(lambda: put_all(writer, range(100)))]:
            with pytest.raises(StoreUnavailable, match="host a"):
                wait.result(PATIENCE)
        with pytest.raises(StreamFailed, match="sign of life"):
            written.get(timeout=PATIENCE)
    finally:
        os.kill(b.gateway_pid, signal.SIGCONT)
