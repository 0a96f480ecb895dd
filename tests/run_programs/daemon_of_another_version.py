"""A daemon of another version, as a client sees it: a socket that passes everything on, but the version."""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import suppress

HELLO_VERSION = slice(24, 28)  # of the reply to Hello, after the frame's header: the major and the minor version


class DaemonOfAnotherVersion:
    """Passes everything between clients and a daemon, but says that the daemon has this version.

    Attributes:
        address: where clients reach it.
        requests: the types of requests that came alone and through the socket.
    """

    def __init__(self, path: str, daemon_address: str, version: tuple[int, int]) -> None:
        self.address = f"unix://{path}"
        self.requests: list[int] = []
        self._daemon_path = daemon_address.removeprefix("unix://")
        self._version = struct.pack("<HH", *version)
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
                if replies:
                    replies = False
                    data = data[: HELLO_VERSION.start] + self._version + data[HELLO_VERSION.stop :]
                socket.send_fds(target, [data], descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)

    def close(self) -> None:
        for used in [self._listener, *self._sockets]:
            with suppress(OSError):
                used.shutdown(socket.SHUT_RDWR)
            used.close()
