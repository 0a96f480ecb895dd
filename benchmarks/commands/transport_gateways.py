"""Objects that another host's store gets through the gateways; part of ``python -m benchmarks transport``.

What a user sees: one ``get_many`` of IDs that are published, against two gateways and a directory in a file. Beside
moving the bytes, the gateways look the objects up, and record beside each copy what it is a copy of.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import entrepot
    from isolated_hosts import Host

START_SECONDS = 60.0
END_SECONDS = 20.0


@contextmanager
def gateways(folder: Path, hosts: Sequence[tuple[Host, entrepot.Store]]) -> Iterator[None]:
    """Context in which each of these stores has a gateway on its host."""
    with ExitStack() as stack:
        for host, store in hosts:
            command = [sys.executable, "-m", "entrepot", "gateway", "--address", store.address, "--host", host.name]
            command += ["--cluster", f"embedded://{folder}/directory", "--listen", f"{host.address}:0"]
            command += ["--insecure", "--compression", "off"]  # the hosts are namespaces of this machine
            process = host.popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(_end, process)
        for _, store in hosts:
            _wait_for_gateway(store)
        yield


def get_many(source: entrepot.Store, sink: entrepot.Store, ids: Sequence[Any], nbytes: int) -> float:
    """Publish objects of one store, get all of them from the other one, and delete them there; Gbit/s of payload."""
    source.publish(*ids, timeout=START_SECONDS)
    begin = time.perf_counter()
    values = sink.get_many(list(ids))
    seconds = time.perf_counter() - begin
    received = sum(value.nbytes for value in values)
    assert received == nbytes, (received, nbytes)
    del values
    sink._raw().delete([oid.binary for oid in ids])  # pyright: ignore[reportPrivateUsage]
    return float(8 * received / seconds / 1e9)


def _wait_for_gateway(store: entrepot.Store) -> None:
    from entrepot.errors import DirectoryUnavailable, StoreUnavailable

    oid = store.put(0)
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            store.publish(oid)
        except (StoreUnavailable, DirectoryUnavailable):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            store.delete(oid)
            return


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(END_SECONDS)
