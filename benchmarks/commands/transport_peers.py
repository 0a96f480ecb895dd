"""Other systems' transfers between the two hosts of ``python -m benchmarks transport``: Ray's and Vineyard's."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.transport_programs import END_SECONDS, ask, gbits_per_second, wait_ready
from benchmarks.harness.environments import environment
from benchmarks.systems.ray import QUIET

if TYPE_CHECKING:
    from isolated_hosts import Host

RAY_PROGRAM = Path(__file__).with_name("transport_ray.py")
VINEYARD_PROGRAM = Path(__file__).with_name("transport_vineyard.py")
RAY_PORT, ETCD_PORT = 6399, 2399
START_SECONDS = 60
# Vineyard gets objects one after another, each in a tenth of a second or more: so many stand for all.
VINEYARD_MOST = 50

Cases = list[tuple[int, int]]  # how many objects, and bytes of each


def measure(
    system: str, folder: Path, near: Host, far: Host, cases: Cases, store_bytes: int, rounds: int
) -> list[float]:
    """Gbit/s of payload, medians of the rounds, for each case.

    Raises:
        Unavailable: the system's environment cannot be made.
    """
    python = environment(system)
    figures = []
    if system == "ray":
        with _ray(python, folder, near, far, store_bytes) as driver:
            for count, nbytes in cases:
                rates = [gbits_per_second(ask(driver, [count, nbytes]), count * nbytes) for _ in range(1 + rounds)]
                figures.append(statistics.median(rates[1:]))
        return figures
    with _vineyard(python, folder, near, far, store_bytes) as (putting, fetching):
        for case, nbytes in cases:
            count = min(case, VINEYARD_MOST)
            rates = []
            for _ in range(1 + rounds):
                ids = ask(putting, [count, nbytes])
                rates.append(gbits_per_second(ask(fetching, ids), count * nbytes))
            figures.append(statistics.median(rates[1:]))
    return figures


@contextmanager
def _ray(python: str, folder: Path, near: Host, far: Host, store_bytes: int) -> Iterator[subprocess.Popen[str]]:
    """A node of Ray's on each host, and a driver on the near one."""
    ray = str(Path(python).with_name("ray"))
    head = f"{far.address}:{RAY_PORT}"
    with ExitStack() as stack:

        def start(host: Host, *options: str) -> None:
            command = [ray, "start", "--block", "--node-ip-address", host.address, "--num-cpus", "2"]
            command += ["--object-store-memory", str(store_bytes), "--disable-usage-stats", *options]
            stack.enter_context(_process(host, command))

        start(far, "--head", "--port", str(RAY_PORT), "--resources", '{"head": 1}', "--temp-dir", str(folder / "ray"))
        start(near, "--address", head)
        driver = stack.enter_context(_process(near, [python, str(RAY_PROGRAM), near.address, head]))
        wait_ready(driver, "Ray's driver")
        yield driver


@contextmanager
def _vineyard(
    python: str, folder: Path, near: Host, far: Host, store_bytes: int
) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """etcd on the far host, vineyardd on both, a process that puts there, and one that fetches here."""
    (vineyardd,) = Path(python).parent.parent.glob("lib/python*/site-packages/vineyard/bdist/vineyardd")
    etcd = f"http://{far.address}:{ETCD_PORT}"
    names = folder / "hosts"  # vineyardd looks its peers up by their host names
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in (near, far)))
    with ExitStack() as stack:
        urls = ["--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls"]
        peers = f"http://{far.address}:{ETCD_PORT + 1}"
        stack.enter_context(_process(far, ["etcd", "--data-dir", str(folder / "etcd"), *urls, peers]))
        _wait(lambda: _answers(etcd, far), "etcd")
        for host in (near, far):
            socket = folder / f"{host.name}.sock"
            command = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(names)]
            command += [str(vineyardd), "--meta", "etcd", "--etcd_endpoint", etcd, "--socket", str(socket)]
            stack.enter_context(_process(host, [*command, "--size", str(store_bytes)]))
            _wait(socket.exists, "vineyardd")
        ends = []
        for host, what in ((far, "put"), (near, "fetch")):
            program = [python, str(VINEYARD_PROGRAM), what, str(folder / f"{host.name}.sock")]
            ends.append(stack.enter_context(_process(host, program)))
            wait_ready(ends[-1], "Vineyard's client")
        yield ends[0], ends[1]


def _wait(is_there: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not is_there():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} did not start in {START_SECONDS} s")
        time.sleep(0.05)


def _answers(etcd: str, host: Host) -> bool:
    try:
        host.run(["python3", "-c", f"import urllib.request; urllib.request.urlopen('{etcd}/health', timeout=1)"])
    except RuntimeError:
        return False
    return True


@contextmanager
def _process(host: Host, command: list[str]) -> Iterator[subprocess.Popen[Any]]:
    pipe, no_output = subprocess.PIPE, subprocess.DEVNULL
    output = pipe if command[1].endswith(".py") else no_output
    process = host.popen(command, stdin=pipe, stdout=output, stderr=no_output, text=True, env=os.environ | QUIET)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)  # `ray start --block` ends its children
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
