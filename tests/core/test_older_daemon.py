"""A daemon that is one minor version of the protocol older: it is used without what it does not have."""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import raw_objects
from entrepot._core import PROTOCOL

OPEN_RINGS, PUT_CHUNK = 48, 63  # types in a frame's header


class OlderDaemon:
    """Passes everything between clients and a daemon, but says that the daemon is one minor version older."""

    def __init__(self, path: str, daemon_path: str) -> None:
        self.requests: list[int] = []  # the types of those that came alone and through the socket
        self._daemon_path = daemon_path
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._daemon_path)
                self._sockets += [client, server]
                threading.Thread(target=self._pass_on, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(server, client, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, replies: bool) -> None:
        with suppress(OSError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(source, 1 << 20, 16)
                if not data:
                    return target.shutdown(socket.SHUT_WR)
                if not replies and len(data) >= 6:
                    self.requests.append(struct.unpack_from("<H", data, 4)[0])
                if replies:  # the reply to Hello: a header of 24 bytes, then the major and the minor version
                    replies = False
                    data = data[:26] + struct.pack("<H", PROTOCOL[1] - 1) + data[28:]
                socket.send_fds(target, [data], descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)

    def close(self) -> None:
        for used in [self._listener, *self._sockets]:
            with suppress(OSError):
                used.shutdown(socket.SHUT_RDWR)
            used.close()


def test_it_is_used_without_what_it_lacks(daemon: Any, socket_folder: Path) -> None:
    older = OlderDaemon(f"{socket_folder}/older.sock", daemon.address.removeprefix("unix://"))
    try:
        with entrepot.connect(f"unix://{socket_folder}/older.sock", scope="tests") as store:
            array = np.arange(100_000)
            assert np.array_equal(store.get(store.put(array)), array)
            values = [f"value {number}".encode() for number in range(300)]
            oids = [store.put(value) for value in values]
            assert [store.get(oid) for oid in oids] == values
            assert store.get_many(store.put_many(values)) == values
            store.reserve(1 << 20).release()
            generation = raw_objects.generation_of(store, oids[0])
            assert generation is not None
            with pytest.raises(
                entrepot.VersionMismatch, match=r"one generation of an object only from 1\.8 on: run 'entrepot upgrade'"
            ):
                raw_objects.discard_generation(store, oids[0], generation)
            assert store.get(oids[0]) == values[0]
    finally:
        older.close()
    assert older.requests.count(OPEN_RINGS) == 1


def test_streams_work_with_it(daemon: Any, socket_folder: Path) -> None:
    older = OlderDaemon(f"{socket_folder}/older.sock", daemon.address.removeprefix("unix://"))
    try:
        with entrepot.connect(f"unix://{socket_folder}/older.sock", scope="tests") as store:
            with store.stream("x", capacity=2).writer() as writer:  # few requests: no rings yet
                writer.put(np.arange(100_000))
                writer.put("second")
                with pytest.raises(entrepot.Timeout):
                    writer.put("third", timeout=0)
            first, second = store.stream("x").reader("g")
            assert (first[-1], second) == (99_999, "second")
            assert store.status()["objects"] == 0
    finally:
        older.close()
    assert PUT_CHUNK in older.requests
