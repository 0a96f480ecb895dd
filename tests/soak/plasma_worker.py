"""A Plasma client of the soak: creates, seals, gets, deletes and abandons objects through the front end.

Its journal is that of worker.py. What it has put is read back through the front end and through the store. When the
front end dies, it connects again, and all that it held is no longer certain.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from entrepot._codecs.plasma_objects import PlasmaObject
from entrepot.errors import ObjectNotFound, StoreUnavailable, Timeout
from journal import Journal, content, read_journal, recent_sizes
from worker import connect

from benchmarks.harness.plasma_connection import IN_USE, NoReply, ObjectExists, OutOfMemory, PlasmaConnection

MAX_LIVE = 24
MAX_HELD = 4
MAX_BYTES = 1 << 20
VALUES_PER_LINE = 10
GET_MS = 5_000


class PlasmaWorker:
    """Random operations of one Plasma client."""

    def __init__(self, address: str, socket: Path, journals: Path, name: str, seed: int) -> None:
        self.store = connect(address)
        self.socket = socket
        self.journals = journals
        self.name = name
        self.random = random.Random(seed)
        path = journals / f"{name}.journal"
        before = read_journal(path)
        self.live = [key for key, state in before.items() if state.must_exist]
        self.sizes = {key: state.size for key, state in before.items()}
        self.counter = len(before)
        self.journal = Journal(path)
        self.compared_count = 0
        self.held: list[tuple[str, memoryview, memoryview]] = []
        self.connection = PlasmaConnection(socket)

    def step(self) -> None:
        """Do one operation; connect again if the front end has died."""
        actions = (self.put, self.read, self.read_in_store, self.delete, self.abandon, self.release, self.evict)
        action = self.random.choices(actions, (30, 30, 10, 18, 4, 10, 4))[0]
        try:
            self.check_held()
            action()
        except NoReply as error:
            self.journal.write("E", f"{self.name}: {error}")
            self.connect_again()
        except OutOfMemory:
            self.release_all()
            self.delete()
        except (StoreUnavailable, Timeout):
            time.sleep(0.05)  # the daemon is being restarted, and this client's own timeout expired
        except OSError:
            self.connect_again()

    def connect_again(self) -> None:
        """After the front end's death, nobody pins what was held."""
        self.held.clear()
        self.connection.close()
        self.connection = PlasmaConnection(self.socket)

    def oid(self, key: str) -> bytes:
        return self.store.derive(key).binary

    def put(self) -> None:
        if len(self.live) >= MAX_LIVE:
            self.delete()
            return
        key = f"{self.name}-{self.counter}"
        self.counter += 1
        size = int(2 ** self.random.uniform(0, np.log2(MAX_BYTES)))
        data, metadata, oid = content(key, size).tobytes(), key.encode(), self.oid(key)
        self.journal.write("P", key, size)
        self.sizes[key] = size
        if size < 1 << 16 and self.random.random() < 0.5:
            self.connection.create_and_seal(oid, data, metadata)
        else:
            view = self.connection.create(oid, size, len(metadata))
            view[:] = data + metadata
            self.connection.seal(oid)
            self.connection.release(oid)
        self.journal.write("p", key)
        self.live.append(key)

    def read(self) -> None:
        """Get an object of any Plasma client through the front end, with the bytes that it must have."""
        journal = self.random.choice(sorted(self.journals.glob("plasma-*.journal")))
        sizes = recent_sizes(journal) | {key: self.sizes[key] for key in self.live if journal.stem == self.name}
        if not sizes:
            return
        key = self.random.choice(sorted(sizes))
        is_own = journal.stem == self.name and key in self.live
        if any(held == key for held, _, _ in self.held):
            return
        # There may be no room for it as long as others hold much: only what the store says is certain.
        (value,) = self.connection.get([self.oid(key)], GET_MS if is_own else 0)
        if value is None:
            if is_own:
                self.read_in_store(key)
            return
        data, metadata = bytes(value[0]), bytes(value[1])
        self.connection.contains(self.oid(key))  # fails if it was not held until here
        self.verify(key, sizes[key], data, metadata)
        if len(self.held) < MAX_HELD and self.random.random() < 0.3:
            self.held.append((key, *value))
        else:
            self.connection.release(self.oid(key))

    def read_in_store(self, key: str = "") -> None:
        """Read an object of its own as any other client of the store does."""
        if not self.live:
            return
        key = key or self.random.choice(self.live)
        try:
            value = self.store.get(self.store.derive(key))
        except ObjectNotFound:
            self.journal.write("E", f"{key} was sealed, not deleted, and is not found in the store")
            return
        assert isinstance(value, PlasmaObject)
        self.verify(key, self.sizes[key], value.data, value.metadata)

    def delete(self) -> None:
        if not self.live:
            return
        key = self.live.pop(self.random.randrange(len(self.live)))
        if any(held == key for held, _, _ in self.held):
            self.held = [each for each in self.held if each[0] != key]
            self.connection.release(self.oid(key))
        self.journal.write("D", key)
        if self.connection.delete(self.oid(key)) != IN_USE:  # another client holds it: it goes some time
            self.journal.write("d", key)

    def abandon(self) -> None:
        """Create an object and abort it, or leave it to the end of the connection."""
        oid = self.oid(f"{self.name}-abandoned")
        try:
            view = self.connection.create(oid, self.random.randrange(1, MAX_BYTES), 0)
        except ObjectExists:  # the front end has not noticed yet that the former connection ended
            return
        view[:1] = b"x"
        if self.random.random() < 0.5:
            self.connection.abort(oid)
        else:
            self.connect_again()

    def release(self) -> None:
        if self.held:
            key, _, _ = self.held.pop(self.random.randrange(len(self.held)))
            self.connection.release(self.oid(key))

    def release_all(self) -> None:
        while self.held:
            self.release()

    def evict(self) -> None:
        self.connection.evict(self.random.randrange(1, 4 * MAX_BYTES))

    def check_held(self) -> None:
        """What is held stays as it is, as long as the front end lives."""
        copies = [(key, bytes(data), bytes(metadata)) for key, data, metadata in self.held]
        if copies:
            self.connection.contains(self.oid(self.name))  # an error if it has died meanwhile: then nothing is certain
        for key, data, metadata in copies:
            self.verify(key, self.sizes.get(key, len(data)), data, metadata)

    def verify(self, key: str, size: int, data: bytes | memoryview, metadata: bytes | memoryview) -> None:
        self.compared_count += 1
        if self.compared_count % VALUES_PER_LINE == 0:
            self.journal.write("V", VALUES_PER_LINE)
        if bytes(data) != content(key, size).tobytes() or bytes(metadata) != key.encode():
            self.journal.write("E", f"{key} of {size} bytes came back with other content")


def main() -> int:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    address, socket, journals, name, seed = sys.argv[1:6]
    stop = Path(journals) / "stop"
    worker = PlasmaWorker(address, Path(socket), Path(journals), name, int(seed))
    while not stop.exists():
        worker.step()
    return 0


if __name__ == "__main__":
    sys.exit(main())
