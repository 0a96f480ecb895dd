"""What Plasma clients of the soak must find at its end."""

from __future__ import annotations

import sys
from pathlib import Path

import entrepot

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from journal import content, read_journal

from benchmarks.harness.plasma_connection import PlasmaConnection


def check_plasma_objects(store: entrepot.Store, socket: Path, folder: Path, wait_ms: int = 10_000) -> int:
    """Check that Plasma clients see what they put and did not delete, and only that; return the number of objects.

    Args:
        store: a connection with the scope and session of the workers.
        socket: of the front end.
        folder: with the journals.
        wait_ms: how long to wait for an object.
    """
    checked_count = 0
    connection = PlasmaConnection(socket)
    for path in sorted(folder.glob("plasma-*.journal")):
        for key, state in read_journal(path).items():
            oid = store.derive(key).binary
            (value,) = connection.get([oid], wait_ms if state.must_exist else 0)
            if value is None:
                assert not state.must_exist, f"a Plasma client does not find {key}, which was sealed and never deleted"
                continue
            assert not state.must_not_exist, f"a Plasma client finds {key}, which was deleted"
            assert bytes(value[0]) == content(key, state.size).tobytes(), f"{key} has other content for Plasma clients"
            assert bytes(value[1]) == key.encode(), f"{key} has other metadata"
            connection.release(oid)
            checked_count += 1
    connection.close()
    return checked_count
