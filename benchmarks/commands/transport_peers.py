"""Other systems' transfers between the two hosts of ``python -m benchmarks transport``: Ray's."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.environments import environment
from benchmarks.systems.ray import QUIET

if TYPE_CHECKING:
    from isolated_hosts import Host

PROGRAM = Path(__file__).with_name("transport_ray.py")
PORT = 6399
END_SECONDS = 30


def measure_ray(
    folder: Path, near: Host, far: Host, cases: list[tuple[int, int]], store_bytes: int, rounds: int
) -> list[float]:
    """Gbit/s of payload, medians of the rounds, for each case: how many objects, and bytes of each.

    Raises:
        Unavailable: Ray's environment cannot be made.
    """
    python = environment("ray")
    figures = []
    with _cluster(python, folder, near, far, store_bytes) as driver:
        for count, nbytes in cases:
            rates = [_fetch(driver, count, nbytes) for _ in range(1 + rounds)]
            figures.append(statistics.median(rates[1:]))
    return figures


def _fetch(driver: subprocess.Popen[str], count: int, nbytes: int) -> float:
    assert driver.stdin is not None
    driver.stdin.write(json.dumps([count, nbytes]) + "\n")
    driver.stdin.flush()
    answer = json.loads(_line(driver))
    assert answer["nbytes"] == count * nbytes, answer
    return float(8 * count * nbytes / answer["seconds"] / 1e9)


@contextmanager
def _cluster(python: str, folder: Path, near: Host, far: Host, store_bytes: int) -> Iterator[subprocess.Popen[str]]:
    """A node on each host, and a driver on the near one."""
    ray = str(Path(python).with_name("ray"))
    head = f"{far.address}:{PORT}"
    with ExitStack() as stack:

        def start(host: Host, *options: str) -> None:
            command = [ray, "start", "--block", "--node-ip-address", host.address, "--num-cpus", "2"]
            command += ["--object-store-memory", str(store_bytes), "--disable-usage-stats", *options]
            stack.enter_context(_process(host, command))

        start(far, "--head", "--port", str(PORT), "--resources", '{"head": 1}', "--temp-dir", str(folder / "ray"))
        start(near, "--address", head)
        driver = stack.enter_context(_process(near, [python, str(PROGRAM), near.address, head]))
        if _line(driver) != "ready\n":
            raise RuntimeError("Ray's driver did not start")
        yield driver


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


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"Ray's driver ended with {process.wait(END_SECONDS)}")
    return line
