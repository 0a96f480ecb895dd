"""A gateway serves and ends whatever becomes of its standard output and error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import entrepot
import pytest
from entrepot_cluster.patient_output import MAX_BYTES, PatientOutput

pytestmark = pytest.mark.timeout(180)
PATIENCE_SECONDS = 60.0
WITH_CLOSED_DESCRIPTORS = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")


def read_all(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read().decode()


def full_pipe() -> tuple[int, int, int]:
    """A pipe without room: its ends, and how many bytes are in it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    size = 0
    try:
        while True:
            size += os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer, size


def test_lines_are_written_in_order_until_nobody_reads_and_what_is_missing_is_said() -> None:
    reader, writer, size = full_pipe()
    output = PatientOutput(writer)
    count = 2 * MAX_BYTES // 100
    for number in range(count):
        output.write(f"{number:99d}\n")
    with os.fdopen(reader, "rb") as stream:
        stream.read(size)
        lines: list[str] = []
        while not lines or "missing" not in lines[-1]:
            lines.append(stream.readline().decode())
    os.close(writer)
    *written, note = lines
    assert [int(line) for line in written] == list(range(len(written)))
    assert int(note.split()[0]) == count - len(written) > 0


def test_a_line_without_its_end_waits_for_it() -> None:
    reader, writer = os.pipe()
    output = PatientOutput(writer)
    print("one", "\udc80", file=output, flush=True)
    output.write("tw")
    output.write("o\nthree")
    output.drain(PATIENCE_SECONDS)
    os.close(writer)
    assert read_all(reader) == "one \\udc80\ntwo\n"


def test_a_reader_that_is_gone_stops_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    output = PatientOutput(writer)
    output.write("nobody\nreads\n")
    output.drain(PATIENCE_SECONDS)
    os.close(writer)


@contextmanager
def gateway_of(cluster: Any, host: Any, output: int | IO[Any], *before: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*before, sys.executable, "-m", "entrepot", "gateway", "--address", host.address]
    command += ["--cluster", cluster.url, "--host", host.name]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_gateway_with_a_full_pipe_joins_serves_and_leaves(cluster: Any, wait_until: Callable[..., None]) -> None:
    a, b = cluster.host("a", gateway=False), cluster.host("b")
    reader, writer, _ = full_pipe()
    with gateway_of(cluster, a, writer) as gateway:
        wait_until(lambda: cluster.instances().get("a", False), "the gateway to be registered")
        oid = a.store.put(b"far away")
        a.store.publish(oid, timeout=PATIENCE_SECONDS)
        assert b.store.get(oid, timeout=PATIENCE_SECONDS) == b"far away"
        gateway.terminate()
        assert gateway.wait(PATIENCE_SECONDS) == 0
    assert "a" not in cluster.instances()
    os.close(writer)
    os.close(reader)


def test_a_gateway_whose_reader_is_gone_joins(cluster: Any, wait_until: Callable[..., None]) -> None:
    a = cluster.host("a", gateway=False)
    reader, writer = os.pipe()
    os.close(reader)
    with gateway_of(cluster, a, writer) as gateway:
        wait_until(lambda: cluster.instances().get("a", False), "the gateway to be registered")
        assert gateway.poll() is None
    os.close(writer)


def test_closed_descriptors_are_never_those_of_the_store(cluster: Any, wait_until: Callable[..., None]) -> None:
    a = cluster.host("a", gateway=False)
    with gateway_of(cluster, a, subprocess.DEVNULL, *WITH_CLOSED_DESCRIPTORS) as gateway:
        wait_until(lambda: cluster.instances().get("a", False), "the gateway to be registered")
        links = [os.readlink(f"/proc/{gateway.pid}/fd/{number}") for number in range(3)]
    assert links == [os.devnull] * 3


def test_what_a_gateway_says_at_its_end_is_written(cluster: Any) -> None:
    a = cluster.host("a")
    command = [sys.executable, "-m", "entrepot", "gateway", "--address", a.address, "--cluster", cluster.url]
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert "has a gateway already" in second.stderr
    assert second.returncode != 0
    with entrepot.connect(a.address) as store:
        assert store.status()["gateway"]["serves"]
