"""Record what Plasma's own client and its own server say to each other: ``record_session.py PYTHON FILE``.

PYTHON is the interpreter of the environment with pyarrow 11. A relay between the two passes everything on, descriptors
included, and writes each message down. What the client writes to shared memory does not pass here. The recorded file
is replayed by test_recorded_session.py.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

from plasma_wire import HEADER, NAMES, receive_piece

CAPACITY_BYTES = 16 << 20

SESSION = r"""
import sys
import pyarrow.plasma as plasma

def oid(number):
    return plasma.ObjectID(b"recorded-object-%04d" % number)

def fails(error, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except error:
        return
    raise AssertionError(f"{call} did not fail")

client = plasma.connect(sys.argv[1])
buffer = client.create(oid(1), 1000, metadata=b"meta")
fails(plasma.PlasmaObjectExists, client.create, oid(1), 5)
fails(plasma.PlasmaObjectExists, client.create_and_seal, oid(1), b"x", b"")
client.seal(oid(1))
del buffer
assert client.contains(oid(1))
client.delete([oid(1)])
client.put_raw_buffer(b"raw" * 100, oid(2), metadata=b"of the second")
client.create_and_seal(oid(3), b"whole" * 10, b"m")
client.create_and_seal(oid(4), b"", b"only metadata")
client.create_and_seal(oid(5), b"", b"")
fails(plasma.PlasmaObjectExists, client.create_and_seal, oid(3), b"again", b"")
fails(plasma.PlasmaObjectExists, client.create, oid(3), 5)
held = client.get_buffers([oid(2), oid(3)], with_meta=True)
assert held[1][1].to_pybytes() == b"whole" * 10
assert client.get_buffers([oid(9), oid(4)], timeout_ms=0)[0] is None
assert client.get_buffers([oid(9)], timeout_ms=20) == [None]
assert client.get_metadata([oid(5)])[0].to_pybytes() == b""
assert client.contains(oid(2)) and not client.contains(oid(9))
client.hash(oid(4))
assert len(client.list()) == 4
client.delete([oid(2), oid(9)])  # one is held, the other was never there
assert client.contains(oid(2))
del held
assert not client.contains(oid(2))
assert client.evict(1) > 0
client.create_and_seal(oid(6), b"6" * 700, b"")
client.create_and_seal(oid(7), b"7" * 600, b"")
assert client.evict(650) > 0
client.list()
client.delete([oid(7)])  # it would be evicted in vain by the next one
fails(plasma.PlasmaStoreFull, client.create, oid(8), 20 << 20)
client.set_client_options("recorded", 4 << 20)
fails(plasma.PlasmaStoreFull, client.create, oid(8), 5 << 20)
big = client.create(oid(8), 3 << 20)
client.seal(oid(8))
del big
client.create_and_seal(oid(10), b"10", b"")
client.debug_string()
client.delete([oid(8), oid(10)])
client.disconnect()
"""


class Relay:
    """Between one client and the server; ``lines`` is what passed, each message in one of them."""

    def __init__(self, path: Path, server: Path) -> None:
        self.lines: list[str] = []
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen(1)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.connect(str(server))

    def run(self) -> None:
        """Accept the client and pass on everything until it has gone."""
        client, _ = self._listening.accept()
        back = threading.Thread(target=self._pass_on, args=(self._server, client, "<"))
        back.start()
        self._pass_on(client, self._server, ">")
        self._server.shutdown(socket.SHUT_RDWR)
        back.join()
        client.close()

    def _pass_on(self, source: socket.socket, target: socket.socket, sign: str) -> None:
        while piece := receive_piece(source):
            data, descriptor = piece
            if descriptor is None:
                self.lines.append(f"{sign} {NAMES[HEADER.unpack_from(data)[1]]} {data.hex(' ', 8)}")
                target.sendall(data)
            else:
                self.lines.append(f"{sign} descriptor {data.hex()}")
                socket.send_fds(target, [data], [descriptor])
                os.close(descriptor)


def main(python: str, recorded: str) -> None:
    """Run the session and write the file."""
    (package,) = Path(python).parent.parent.glob("lib/python*/site-packages/pyarrow")
    with tempfile.TemporaryDirectory() as folder:
        server_path, relay_path = Path(folder) / "server", Path(folder) / "relay"
        command = [str(package / "plasma-store-server"), "-s", str(server_path), "-m", str(CAPACITY_BYTES)]
        server = subprocess.Popen(command)
        try:
            while not server_path.exists():
                assert server.poll() is None, "plasma-store-server exited"
                time.sleep(0.01)
            relay = Relay(relay_path, server_path)
            thread = threading.Thread(target=relay.run)
            thread.start()
            subprocess.run([python, "-W", "ignore", "-c", SESSION, str(relay_path)], check=True, timeout=60)
            thread.join()
        finally:
            server.terminate()
            server.wait()
    head = [
        "# What pyarrow 11.0.0's Plasma client (>) and its plasma-store-server -m 16777216 (<) said to each other,",
        "# recorded by wire/record_session.py: the table, then the whole message in hexadecimal digits.",
    ]
    wrapped = [part for line in relay.lines for part in textwrap.wrap(line, 120, subsequent_indent="  ")]
    Path(recorded).write_text("\n".join(head + wrapped) + "\n", encoding="ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
