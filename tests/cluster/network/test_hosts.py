"""Hosts as namespaces: they reach each other, at a rate, with faults, and nothing is left of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from isolated_hosts import Host, refusal, several_hosts, two_hosts
from tcp_relay import TO_CLIENT, TO_SERVER, TcpRelay

pytestmark = pytest.mark.skipif(bool(refusal()), reason=refusal())

RECEIVE = """
    import socket, sys
    server = socket.create_server(("0.0.0.0", 7000))
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        while data := connection.recv(1 << 20):
            connection.sendall(len(data).to_bytes(4, "little"))
"""
SEND = """
    import socket, sys, time
    begin = time.monotonic()
    connection = socket.create_connection((sys.argv[1], 7000), float(sys.argv[3]))
    left = int(sys.argv[2])
    connection.sendall(bytes(left))
    connection.settimeout(3 * float(sys.argv[3]))
    while left:
        answer = bytearray()
        while len(answer) < 4:
            answer += connection.recv(4 - len(answer)) or sys.exit("ended")
        left -= int.from_bytes(answer, "little")
    print(time.monotonic() - begin)
"""


def _python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(program), *arguments]


def _receiver(host: Host) -> None:
    process = host.popen(_python(RECEIVE), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def _seconds(sender: Host, receiver: Host, nbytes: int, patience: float = 1.0) -> float:
    return float(sender.run(_python(SEND, receiver.address, str(nbytes), str(patience))))


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts without limits; the second one receives."""
    with two_hosts() as (first, second):
        _receiver(second)
        yield first, second


def test_names_and_addresses(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    assert [host.run(["hostname"]).strip() for host in hosts] == ["host1", "host2"]
    assert first.address in first.run(["ip", "-4", "address"])
    assert second.address not in first.run(["ip", "-4", "address"])
    assert socket.gethostname() not in ("host1", "host2")
    with pytest.raises(RuntimeError, match="exited with 3"):
        first.run(["sh", "-c", "exit 3"])


def test_a_rate_holds_and_can_be_changed(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    nbytes = 12_500_000  # a second at 100 Mbit/s, less the first 2 MB
    first.set_rate("100mbit")
    assert 0.7 < _seconds(first, second, nbytes) < 5
    first.set_rate("")
    first.set_rate("")
    assert _seconds(first, second, nbytes) < 0.7


def test_directions_are_cut_and_healed(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    for host, block, other in (
        (first, first.block_to, second),
        (first, first.block_from, second),
        (second, second.block_from, first),
    ):
        block(other)
        with pytest.raises(RuntimeError, match="timed out"):
            _seconds(first, second, 100)
        host.heal()
        _seconds(first, second, 100)
    second.lose(2)
    _seconds(first, second, 1_000_000, 15.0)  # what is lost is sent again a second later, and then two
    second.heal()
    second.heal()


def test_several_hosts() -> None:
    with several_hosts(3, rate="1gbit") as hosts:
        _receiver(hosts[2])
        assert _seconds(hosts[0], hosts[2], 1000) < 3
        assert _seconds(hosts[1], hosts[2], 1000) < 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_killed_test(number: int, wait_until: Callable[..., None]) -> None:
    program = """
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from isolated_hosts import two_hosts
        with two_hosts() as (a, b):
            running = [a.popen(["sleep", "600"]), b.popen(["sleep", "600"])]
            print(a.pid, b.pid, *(process.pid for process in running), flush=True)
            sys.stdin.read()
    """
    folder = str(Path(__file__).parent)
    with subprocess.Popen(_python(program, folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        pids = [int(text) for text in test.stdout.readline().split()]
        assert len(pids) == 4
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        os.kill(test.pid, number)
        test.wait(30)

    def ended(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(lambda: all(ended(pid) for pid in pids), "the hosts to end")


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=_echo, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _echo(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(1000):
                connection.sendall(data)
        except OSError:
            return


def _through(relay: TcpRelay) -> socket.socket:
    host, _, port = relay.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), 10)
    connection.settimeout(10)
    return connection


def test_the_relay(echo: str, wait_until: Callable[..., None]) -> None:
    with TcpRelay(echo) as relay, _through(relay) as connection:
        connection.sendall(b"abc")
        assert connection.recv(10) == b"abc"
        relay.delay = 0.1
        begin = time.monotonic()
        connection.sendall(b"abc")
        assert connection.recv(10) == b"abc"
        assert time.monotonic() - begin >= 0.2
        relay.delay = 0.0
        relay.corrupt(TO_CLIENT, 1)
        connection.sendall(b"abc")
        assert connection.recv(10) == b"a" + bytes([ord("b") ^ 0x40]) + b"c"
        relay.cut(TO_SERVER)
        connection.sendall(b"lost")
        wait_until(lambda: relay.passed[TO_SERVER] == 13, "the relay to swallow it")
        relay.heal()
        connection.sendall(b"abc")
        assert connection.recv(10) == b"abc"
        relay.drop_after(TO_SERVER, 2)
        connection.sendall(b"abc")
        assert connection.recv(10) == b""
        with _through(relay) as another:
            another.sendall(b"abc")
            assert another.recv(10) == b"abc"
