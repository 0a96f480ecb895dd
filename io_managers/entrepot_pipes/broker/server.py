"""The broker's socket, and its connections."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from entrepot import Store

from entrepot_pipes.broker.frames import FrameSocket
from entrepot_pipes.broker.serving import serve

SOCKET_VARIABLE = "ENTREPOT_PIPES_SOCKET"
MAX_CONNECTIONS = 256
_BACKLOG = 128
_END_SECONDS = 10.0


class Broker:
    """Listens on a socket in a folder that only this user can enter; a thread for each connection. A context manager.

    States::

        listening ──close──▶ closed: its connections were shut down, which aborts the ends of pipes that they had open
    """

    def __init__(self, path: Path, store: Store, timeout: float | None, verify: int | None = None) -> None:
        self.path = path
        self._store = store
        self._timeout = timeout
        self._verify = verify
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, socket.socket] = {}  # guarded by _lock
        self._closed = False  # guarded by _lock
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(path))
        self._listener.listen(_BACKLOG)
        self._acceptor = threading.Thread(target=self._accept, name="broker", daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                with self._lock:
                    if self._closed:
                        return
                threading.Event().wait(0.05)  # out of descriptors: until a connection ends
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="broker connection", daemon=True)
            with self._lock:
                full = self._closed or len(self._connections) >= MAX_CONNECTIONS
                if not full:
                    self._connections[thread] = connection
            if full:
                _refuse(connection)
            else:
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            serve(connection, self._store, self._timeout, self._verify)
        finally:
            with self._lock:
                del self._connections[threading.current_thread()]

    def close(self) -> None:
        """Stop listening, and end all connections."""
        with self._lock:
            self._closed = True
            threads = dict(self._connections)
        self._shut(self._listener)
        self._listener.close()
        for connection in threads.values():
            self._shut(connection)
        for thread in [self._acceptor, *threads]:
            thread.join(_END_SECONDS)
        self.path.unlink(missing_ok=True)

    @staticmethod
    def _shut(connection: socket.socket) -> None:
        with suppress(OSError):  # it ended by itself
            connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse(connection: socket.socket) -> None:
    stream = FrameSocket(connection)
    try:
        connection.settimeout(1.0)
        message = f"the broker serves at most {MAX_CONNECTIONS} connections at a time: close some"
        stream.send_line({"ok": False, "error": "TooManyConnections", "message": message})
    except OSError:
        pass  # the program is gone
    finally:
        stream.close()
