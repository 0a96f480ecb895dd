"""Uses an installed Entrepot for real; tools/wheel_try.py runs it with the Python of an empty environment.

A private daemon starts, bytes and an array go in and come back, the daemon is killed, and all is still there.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import entrepot
import numpy as np
from entrepot import _core


def main() -> int:
    """Puts, kills, gets; any disagreement is an exception."""
    own = os.path.realpath(sys.prefix)
    assert os.path.realpath(entrepot.__file__).startswith(own), f"not the installed package: {entrepot.__file__}"
    store = entrepot.connect()
    raw = bytes(range(256)) * 4096
    array = np.arange(5_000_000, dtype=np.float64).reshape(1000, 5000)  # large enough for the streaming copy
    oids = [store.put(raw), store.put(array, name="array"), store.put({"answer": 42})]

    def check(client: entrepot.Store) -> None:
        assert client.get(oids[0]) == raw
        got = client.get_by_name("array")
        assert type(got) is np.ndarray
        assert got.dtype == array.dtype
        assert not got.flags.writeable
        np.testing.assert_array_equal(got, array)
        assert client.get(oids[2]) == {"answer": 42}

    check(store)
    killed = store.status()["pid"]
    os.kill(killed, signal.SIGKILL)
    check(store)
    # The keeper brings another daemon, which adopts what the first one had.
    deadline = time.monotonic() + 30
    while store.status()["pid"] == killed:
        assert time.monotonic() < deadline, "30 s after the kill no other daemon answers"
        time.sleep(0.02)
    with entrepot.connect() as another:
        check(another)
        later = another.put(array + 1)
    assert store.get(later)[0, 0] == 1.0
    print(f"python {sys.version_info[0]}.{sys.version_info[1]}, {_core.__file__}, copies by {_core.copy_kind()}")
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
