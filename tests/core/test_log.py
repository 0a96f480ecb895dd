"""A log that is not read or cannot be written does not stop a store: lines are dropped, counted and reported."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest

SECONDS = 60
PIPE_BYTES = 4096
KEPT_BYTES = 2 * (128 << 10) + PIPE_BYTES  # of waiting lines: pending, being written, and in the pipe
LINE_BYTES = 100  # at least, per line that cause_log_lines() causes


def entrepotd(address: str, *options: str) -> list[str]:
    command = [sys.executable, "-m", "entrepot.daemon_main", "--address", address, "--size", "64MiB"]
    return [*command, "--spill-path", "none", *options]


def cause_log_lines(address: str, count: int) -> int:
    """Make the daemon log a line for each of ``count`` connections that start with garbage."""
    for _ in range(count):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            connection.connect(address.removeprefix("unix://"))
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while connection.recv(1 << 16):
                pass
    return count


def run_within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return the result of ``work``; fail if it takes longer, because it hangs."""
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the store does not go on"
    assert outcome, "it failed: see above"
    return outcome[0]


@pytest.fixture
def unread(socket_folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes], int]]:
    """A store whose standard error is a full pipe that nobody reads: address, process, read end."""
    address = f"unix://{socket_folder}/store.sock"
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.write(writer, b"." * (PIPE_BYTES - 1) + b"\n")
    process = subprocess.Popen(entrepotd(address), stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
    os.close(writer)
    yield address, process, reader
    os.close(reader)
    process.terminate()  # terminated, because a killed keeper is restarted
    assert process.wait(SECONDS) in (0, -signal.SIGTERM)


def put_and_get(address: str) -> int:
    with entrepot.connect(address, scope="tests") as store:
        assert store.get(store.put([1, "two"])) == [1, "two"]
        return int(store.status()["log_lines_dropped"])


def test_a_pipe_that_nobody_reads_stops_nobody(
    unread: tuple[str, subprocess.Popen[bytes], int],
    answers: Callable[[str], bool],
    wait_until: Callable[..., None],
) -> None:
    address, process, reader = unread
    wait_until(lambda: answers(address), "the store to listen", SECONDS)
    assert run_within(SECONDS, lambda: put_and_get(address)) == 0
    times = KEPT_BYTES // LINE_BYTES + 200
    run_within(SECONDS, lambda: cause_log_lines(address, times))
    dropped = run_within(SECONDS, lambda: put_and_get(address))
    assert 0 < dropped < times

    # Once the pipe is read, the kept lines arrive, and a line with the number of dropped ones.
    text = b""
    note = re.compile(rb"WARNING daemon\[\d+\] (\d+) lines of this log were dropped: its reader did not keep up\n")
    while not (counts := note.findall(text)):
        piece = run_within(SECONDS, lambda: os.read(reader, 1 << 16))
        assert piece, text[-2000:]
        text += piece
    assert sum(map(int, counts)) == dropped
    process.terminate()
    last = b""
    while piece := run_within(SECONDS, lambda: os.read(reader, 1 << 16)):  # until daemon and keeper have closed it
        last += piece
    assert process.wait(SECONDS) == 0
    assert b"keeper exits with code 0" in last, "each process logs its exit"


def test_the_end_does_not_wait_for_a_reader(
    unread: tuple[str, subprocess.Popen[bytes], int],
    answers: Callable[[str], bool],
    wait_until: Callable[..., None],
) -> None:
    address, process, _ = unread
    wait_until(lambda: answers(address), "the store to listen", SECONDS)
    process.terminate()
    assert process.wait(SECONDS) == 0


def test_a_daemon_that_dies_is_followed_by_another(
    unread: tuple[str, subprocess.Popen[bytes], int],
    answers: Callable[[str], bool],
    wait_until: Callable[..., None],
) -> None:
    address, _, _ = unread
    wait_until(lambda: answers(address), "the store to listen", SECONDS)

    def survive() -> bool:
        with entrepot.connect(address, scope="tests") as store:
            oid = store.put(np.arange(1000))
            os.kill(store.status()["pid"], signal.SIGKILL)
            return bool(store.get(oid)[-1] == 999 and store.status()["incarnation"] > 0)

    assert run_within(SECONDS, survive)


def test_a_refused_start_ends_without_a_reader(socket_folder: Path) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.write(writer, b"." * PIPE_BYTES)
    try:
        refused = subprocess.run(
            entrepotd(f"unix://{socket_folder}/store.sock", "--size", "1KiB"),
            stdin=subprocess.DEVNULL,
            stderr=writer,
            timeout=SECONDS,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert refused.returncode in (1, 2)


def test_a_fifo_as_log_file_waits_for_no_reader(
    socket_folder: Path, answers: Callable[[str], bool], wait_until: Callable[..., None]
) -> None:
    address = f"unix://{socket_folder}/store.sock"
    fifo = socket_folder / "log"
    os.mkfifo(fifo)
    process = subprocess.Popen(entrepotd(address, "--log-file", str(fifo)), stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(address), "the store to listen", SECONDS)
        assert run_within(SECONDS, lambda: put_and_get(address)) == 0
        with fifo.open("rb") as reader:  # a late reader misses nothing
            assert b"daemon[" in run_within(SECONDS, reader.readline)
        run_within(SECONDS, lambda: cause_log_lines(address, 3))  # the reader is gone, and nothing dies
        assert run_within(SECONDS, lambda: put_and_get(address)) == 0
    finally:
        process.terminate()
        assert process.wait(SECONDS) == 0


def test_a_log_on_a_full_disk_is_counted(
    socket_folder: Path, answers: Callable[[str], bool], wait_until: Callable[..., None]
) -> None:
    address = f"unix://{socket_folder}/store.sock"
    process = subprocess.Popen(entrepotd(address, "--log-file", "/dev/full"), stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(address), "the store to listen", SECONDS)
        wait_until(
            lambda: run_within(SECONDS, lambda: put_and_get(address)) > 0, "the lost lines to be counted", SECONDS
        )
        with entrepot.connect(address, scope="tests") as store:
            os.kill(store.status()["pid"], signal.SIGKILL)  # the keeper logs that

        def keeper_lost_lines() -> bool:
            with entrepot.connect(address, scope="tests") as store:  # wakes the keeper
                return bool(store.status()["keeper_log_lines_dropped"])

        wait_until(keeper_lost_lines, "the keeper's lost lines to be told", SECONDS)
    finally:
        process.terminate()
        assert process.wait(SECONDS) == 0
