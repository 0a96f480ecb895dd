"""The store of one run: an ``entrepotd`` in the foreground, provisioned before the run begins and stopped after it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from examples.flights.processes import Child
from examples.flights.runs import MIB, ROOT, RunConfig

START_TIMEOUT = 60.0
PROVISION_TIMEOUT = 120.0


def capacity_bytes(scale: int) -> int:
    """Enough for all values of one run (about 270 MiB for a year of flights) and for the tasks' leases."""
    return (256 + 352 * scale) * MIB


def _is_listening(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(address.removeprefix("unix://")) == 0


@contextmanager
def running(config: RunConfig, address: str, *, size: int | None = None) -> Iterator[Child]:
    """Context with a store at ``address``.

    Args:
        config: for the size of the data.
        address: ``unix:`` and a path.
        size: capacity in bytes; ``None``: enough for the flights job.

    Raises:
        DemoError: it does not start.
        StoreUnavailable, Timeout: it does not respond, or is not provisioned within two minutes.
    """
    import entrepot

    command = [sys.executable, "-m", "entrepot.daemon_main", "--address", address]
    command += ["--size", str(size or capacity_bytes(config.scale))]
    log = config.work / "entrepotd.log"
    with Child("entrepotd", command, log=log, environment=config.environment(), folder=ROOT) as child:
        child.wait_for(lambda: _is_listening(address), f"a listener at {address}", START_TIMEOUT, interval=0.02)
        with entrepot.connect(address, scope="flights-demo") as store:
            store.wait_provisioned(PROVISION_TIMEOUT)
        yield child
