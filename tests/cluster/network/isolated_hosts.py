"""Hosts for tests: network and UTS namespaces, joined by veth pairs whose rate can be limited.

    with two_hosts(rate="5gbit") as (a, b):
        server = b.popen(["iperf3", "-s"])
        a.run(["iperf3", "-c", b.address])

A host is a process that waits in new namespaces; what it holds goes with it. It and whatever is started on a host die
with the thread that started them, also by SIGKILL, so nothing is left behind. Needs the right to make namespaces;
``refusal()`` says why that is not possible here.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

_SUBNET = "10.77.0"
_DEVICE = "eth0"
_TABLE = "inet faults"
_PR_SET_PDEATHSIG = 1
_CARRIER_SECONDS = 5.0
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Host:
    """A host of its own, to the network: its name, its addresses, its packets. Files and processes are shared.

    Args:
        name: its host name.
        address: its IPv4 address.

    Attributes:
        name, address: as given.
        pid: of the process that holds its namespaces.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        script = f"hostname {name} && ip link set lo up && echo ready && exec sleep infinity"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=_die_with_parent,
        )
        self._started: list[subprocess.Popen[Any]] = []
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            self.end()
            raise RuntimeError(f"the namespaces of {name} cannot be made")
        self.pid = self._holder.pid

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command line that runs another one on this host."""
        return ["nsenter", "--target", str(self.pid), "--net", "--uts", "--", *arguments]

    def popen(self, arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process on this host; it is killed when the host ends, or the thread that called this."""
        process = subprocess.Popen(self.command(arguments), preexec_fn=_die_with_parent, **options)
        self._started.append(process)
        return process

    def run(self, arguments: Sequence[str], *, timeout: float = 60, **options: Any) -> str:
        """Run a command on this host and return its output; an exit status other than 0 is an error."""
        done = subprocess.run(
            self.command(arguments), capture_output=True, text=True, timeout=timeout, check=False, **options
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} on {self.name} exited with {done.returncode}: {done.stderr}")
        output: str = done.stdout
        return output

    def set_rate(self, rate: str) -> None:
        """Hold what this host sends to a rate in the notation of tc, such as ``"5gbit"``; empty: no limit."""
        if rate:
            limit = ["root", "tbf", "rate", rate, "burst", "2mb", "latency", "20ms"]
            self.run(["tc", "qdisc", "replace", "dev", _DEVICE, *limit])
        elif "tbf" in self.run(["tc", "qdisc", "show", "dev", _DEVICE]):
            self.run(["tc", "qdisc", "delete", "dev", _DEVICE, "root"])

    def block_from(self, other: Host) -> None:
        """Drop all packets that arrive from another host, until :meth:`heal`."""
        self._fault("input", f"ip saddr {other.address} drop")

    def block_to(self, other: Host) -> None:
        """Drop all packets that this host sends to another one, until :meth:`heal`."""
        self._fault("output", f"ip daddr {other.address} drop")

    def lose(self, percent: int) -> None:
        """Drop a share of the packets that arrive, chosen at random, until :meth:`heal`.

        To a host with segmentation offload (as here, by default), a packet has up to 64 KiB.
        """
        self._fault("input", f"iifname {_DEVICE} numgen random mod 100 < {percent} drop")

    def heal(self) -> None:
        """End all faults of this host. The rate stays."""
        self.run(["sh", "-c", f"nft list table {_TABLE} >/dev/null 2>&1 && nft delete table {_TABLE} || true"])

    def _fault(self, chain: str, rule: str) -> None:
        self.run(["nft", f"add table {_TABLE}"])
        self.run(["nft", f"add chain {_TABLE} {chain} {{ type filter hook {chain} priority 0; }}"])
        self.run(["nft", f"add rule {_TABLE} {chain} {rule}"])

    def end(self) -> None:
        """Kill what runs on this host; the kernel then removes its network. Idempotent."""
        for process in (*self._started, self._holder):
            process.kill()
            process.wait(30)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._started = []


@contextmanager
def two_hosts(rate: str = "") -> Iterator[tuple[Host, Host]]:
    """Two hosts with a veth pair between them.

    Args:
        rate: of each direction, in the notation of tc, such as ``"5gbit"``; default: no limit.
    """
    with ExitStack() as stack:
        first, second = (_new(stack, number) for number in (1, 2))
        first.run(["ip", "link", "add", _DEVICE, "type", "veth", "peer", "name", _DEVICE, "netns", str(second.pid)])
        for host in (first, second):
            _configure(host, rate)
        _wait_for_carrier((first, second))
        yield first, second


@contextmanager
def several_hosts(count: int, rate: str = "") -> Iterator[list[Host]]:
    """Hosts that reach each other through a switch.

    Args:
        count: how many, at most 200.
        rate: of what each host sends; default: no limit.
    """
    with ExitStack() as stack:
        switch = _new(stack, 250, "switch")
        switch.run(["ip", "link", "add", "bridge", "type", "bridge"])
        switch.run(["ip", "link", "set", "bridge", "up"])
        hosts = [_new(stack, number) for number in range(1, count + 1)]
        for number, host in enumerate(hosts, 1):
            port = f"port{number}"
            host.run(["ip", "link", "add", _DEVICE, "type", "veth", "peer", "name", port, "netns", str(switch.pid)])
            switch.run(["ip", "link", "set", port, "master", "bridge", "up"])
            _configure(host, rate)
        _wait_for_carrier(hosts)
        yield hosts


def _new(stack: ExitStack, number: int, name: str = "") -> Host:
    host = Host(name or f"host{number}", f"{_SUBNET}.{number}")
    stack.callback(host.end)
    return host


def _configure(host: Host, rate: str) -> None:
    host.run(["ip", "address", "add", f"{host.address}/24", "dev", _DEVICE])
    host.run(["ip", "link", "set", _DEVICE, "up"])
    host.set_rate(rate)


def _wait_for_carrier(hosts: Sequence[Host]) -> None:
    """Wait until both ends of each pair are up."""
    end = time.monotonic() + _CARRIER_SECONDS
    for host in hosts:
        while "LOWER_UP" not in host.run(["ip", "link", "show", _DEVICE]):
            if time.monotonic() > end:
                raise RuntimeError(f"the network of {host.name} has not come up in {_CARRIER_SECONDS:g} s")
            time.sleep(0.005)


@functools.cache
def refusal() -> str:
    """Why no hosts can be made here; empty: they can."""
    for tool, package in (("unshare", "util-linux"), ("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables")):
        if shutil.which(tool) is None:
            return f"{tool} is missing (Debian package {package})"
    try:
        with two_hosts(rate="1gbit") as (first, second):
            first.block_from(second)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return f"no hosts can be made: {error}"
    return ""
