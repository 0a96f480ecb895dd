"""A relay between a client and a server that delays, cuts, drops and corrupts, where the kernel cannot.

In a process of its own (``python tcp_relay.py LISTEN TARGET DELAY_SECONDS``), it only delays.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress

TO_SERVER, TO_CLIENT = "to server", "to client"
_PART = 64 << 10


class TcpRelay:
    """Passes bytes between whoever connects to ``address`` and a target. A context manager; thread-safe.

    Args:
        target: ``host:port`` of the server.
        listen: ``host:port`` to listen on; default: any free port of loopback.

    Attributes:
        address: ``host:port`` that it listens on.
        delay: seconds by which bytes arrive later, in each direction; may be changed.
        passed: bytes passed so far, by direction.
    """

    def __init__(self, target: str, listen: str = "127.0.0.1:0") -> None:
        host, _, port = listen.rpartition(":")
        target_host, _, target_port = target.rpartition(":")
        self._target = (target_host, int(target_port))
        self._listener = socket.create_server((host, int(port)))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self.delay = 0.0
        self.passed = {TO_SERVER: 0, TO_CLIENT: 0}
        self._changed = threading.Condition()
        self._cut: set[str] = set()
        self._corrupt_at: dict[str, int] = {}
        self._corrupts: set[str] = set()
        self._drop_at: dict[str, int] = {}
        self._hold_over: int | None = None
        self._held = 0
        self._sockets: list[socket.socket] = []
        self._ended = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, direction: str) -> None:
        """From now on, swallow what goes in a direction; connections stay open."""
        with self._changed:
            self._cut.add(direction)

    def heal(self) -> None:
        """Pass bytes again."""
        with self._changed:
            self._cut.clear()

    def corrupt(self, direction: str, after: int) -> None:
        """Change one byte: that which is passed next in a direction once ``after`` more have been."""
        with self._changed:
            self._corrupt_at[direction] = self.passed[direction] + after

    def corrupt_all(self, direction: str) -> None:
        """From now on, change a byte of each part that is passed in a direction."""
        with self._changed:
            self._corrupts.add(direction)

    def drop_after(self, direction: str, after: int) -> None:
        """End all connections once ``after`` more bytes were passed in a direction."""
        with self._changed:
            self._drop_at[direction] = self.passed[direction] + after

    def hold_over(self, nbytes: int | None) -> None:
        """From now on, a connection on which more than that has been passed in one direction passes nothing more.

        None: all pass everything again.
        """
        with self._changed:
            self._hold_over = nbytes
            self._changed.notify_all()

    @property
    def held(self) -> int:
        """How many connections are held, in either direction."""
        with self._changed:
            return self._held

    def forget_faults(self) -> None:
        """Pass everything unchanged from now on, on new connections: what was swallowed is missing on the old ones."""
        with self._changed:
            self._cut.clear()
            self._corrupt_at.clear()
            self._corrupts.clear()
            self._drop_at.clear()
            self.delay = 0.0
            self._hold_over = None
            self._changed.notify_all()
        self.drop_connections()

    def drop_connections(self) -> None:
        """End all connections now."""
        with self._changed:
            sockets, self._sockets = self._sockets, []
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def __enter__(self) -> TcpRelay:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()

    def _accept(self) -> None:
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            try:
                server = socket.create_connection(self._target, 10)
            except OSError:
                client.close()
                continue
            with self._changed:
                self._sockets += [client, server]
            for source, sink, direction in ((client, server, TO_SERVER), (server, client, TO_CLIENT)):
                threading.Thread(target=self._pass, args=(source, sink, direction), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        passed = 0
        try:
            while data := bytearray(source.recv(_PART)):
                passed += len(data)
                self._hold(passed)
                if self.delay:
                    time.sleep(self.delay)
                if self._is_last(direction, data):
                    self.drop_connections()
                elif direction not in self._cut:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # one end is gone: the other one is told, as by its host's kernel
            for connection in (source, sink):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _hold(self, passed: int) -> None:
        with self._changed:
            if self._hold_over is not None and passed > self._hold_over:
                self._held += 1
                self._changed.wait_for(lambda: self._ended or self._hold_over is None)
                self._held -= 1

    def _is_last(self, direction: str, data: bytearray) -> bool:
        """Count the bytes, change the one that is to be changed; returns whether to end all connections."""
        with self._changed:
            begin = self.passed[direction]
            self.passed[direction] = end = begin + len(data)
            if direction in self._corrupts:
                data[len(data) // 2] ^= 0x40
            at = self._corrupt_at.get(direction, -1)
            if begin <= at < end:
                data[at - begin] ^= 0x40
                del self._corrupt_at[direction]
            if begin <= self._drop_at.get(direction, -1) < end:
                del self._drop_at[direction]
                return True
            return False


if __name__ == "__main__":
    with TcpRelay(sys.argv[2], sys.argv[1]) as relay:
        relay.delay = float(sys.argv[3])
        print("ready", flush=True)
        sys.stdin.read()
