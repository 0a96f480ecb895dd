"""Uses an installed Entrepot for real; run by tools/wheel_check.py with the Python of an empty environment.

It starts a private daemon, puts and gets bytes and an array, kills the daemon, and checks that everything survives.
``--without-numpy`` leaves out the array.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
import sys
import sysconfig
import threading
import time

import entrepot
from entrepot import _core, cli


def use_from_threads(store: entrepot.Store) -> None:
    """Put, get and delete in eight threads at once, with one client."""
    import numpy as np

    started = threading.Barrier(8)

    def work(number: int) -> None:
        started.wait(timeout=30)
        for turn in range(300):
            small = store.put(b"%d of %d" % (turn, number))
            large = store.put(np.full(5_000, number * 1000 + turn))
            assert store.get(small) == b"%d of %d" % (turn, number)
            assert store.get(large)[-1] == number * 1000 + turn
            assert store.delete(small)
            assert store.delete(large)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, number) for number in range(8)]:
            done.result(timeout=120)


def use_an_array(store: entrepot.Store) -> None:
    """Put and get an array, which is a view of the store's memory then."""
    import numpy as np

    array = np.arange(5_000_000, dtype=np.float64).reshape(1000, 5000)
    got = store.get(store.put(array, name="array"))
    assert type(got) is np.ndarray
    assert got.dtype == array.dtype
    assert not got.flags.writeable
    np.testing.assert_array_equal(got, array)
    with entrepot.connect() as another:
        assert another.get_by_name("array")[-1, -1] == array[-1, -1]


def main() -> int:
    """Put, kill, get; any mismatch raises an exception."""
    own = os.path.realpath(sys.prefix)
    assert os.path.realpath(entrepot.__file__).startswith(own), f"not the installed package: {entrepot.__file__}"
    store = entrepot.connect()
    raw = bytes(range(256)) * 4096
    oids = [store.put(raw), store.put({"answer": 42, "large": raw * 8})]  # large enough for the streaming copy

    def check(client: entrepot.Store) -> None:
        assert client.get(oids[0]) == raw
        got = client.get(oids[1])
        assert got["answer"] == 42
        assert got["large"] == raw * 8

    check(store)
    killed = store.status()["pid"]
    os.kill(killed, signal.SIGKILL)
    check(store)
    # The keeper starts a new daemon, which adopts the first one's objects.
    deadline = time.monotonic() + 30
    while store.status()["pid"] == killed:
        assert time.monotonic() < deadline, "no new daemon answered within 30 s of the kill"
        time.sleep(0.02)
    with entrepot.connect() as another:
        check(another)
        later = another.put(b"later")
    assert store.get(later) == b"later"
    if "--without-numpy" not in sys.argv:
        use_an_array(store)
    assert cli.main(["explain", "E107"]) == 0  # its page is in the wheel
    locked = "with a GIL"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        # It would be turned on by the first extension that does not declare that it can do without, ours included.
        assert not getattr(sys, "_is_gil_enabled")(), "the GIL was turned on"  # noqa: B009 - unknown before 3.13
        use_from_threads(store)
        locked = "without a GIL"
    version = f"python {sys.version_info[0]}.{sys.version_info[1]} {locked}"
    print(f"{version}, {_core.__file__}, copies by {_core.copy_kind()}")
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
