"""Memory between the values of a process that has ended: it goes back to the machine, and the values stay."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import entrepot

MIB = 1 << 20
VALUE = 10 * MIB
COUNT = 6
HOLES = 16 * MIB  # at least, of segments of 16 and 32 MiB

PUTS = f"""
import sys
import entrepot

with entrepot.connect(sys.argv[1], scope="holes") as store:
    for number in range({COUNT}):
        store.put(bytes([number]) * {VALUE}, name=str(number))
    print("stored", flush=True)
    sys.stdin.read()
"""


def unused(store: entrepot.Store) -> int:
    """The store's memory that holds no value and is not lent to anyone."""
    status = store.status()
    values = status["used_bytes"] - status["record_bytes"]
    return int(status["budget"]["items"]["segments"] - values - status["leased_bytes"])


def test_what_a_process_has_left_free_between_its_values_goes_back(
    new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    daemon = new_daemon("256MiB")
    with entrepot.connect(daemon.address, scope="holes") as store:
        store.wait_provisioned()
        warm = unused(store)
        command = [sys.executable, "-c", PUTS, daemon.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdin is not None
            assert writer.stdout.readline() == "stored\n"
            wait_until(lambda: unused(store) >= warm + HOLES, "what the values do not fill to be returned")
            writer.stdin.close()
            assert writer.wait(60) == 0
        wait_until(lambda: unused(store) <= warm + HOLES // 4, "the memory between the values to go back")
        for number in range(COUNT):
            value = store.get_by_name(str(number))
            assert bytes(value) == bytes([number]) * VALUE
