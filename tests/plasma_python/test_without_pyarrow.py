"""Without pyarrow, buffers are memoryviews."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

PROGRAM = """
import sys
sys.modules["pyarrow"] = None  # importing it raises ImportError
import entrepot.plasma as plasma
client = plasma.connect(sys.argv[1])
oid = plasma.ObjectID.from_random()
buffer = client.create(oid, 100_000, b"m")
assert isinstance(buffer, plasma.PlasmaBuffer) and type(buffer) is memoryview
buffer[:] = b"x" * 100_000
client.seal(oid)
[(metadata, data)] = client.get_buffers([oid], with_meta=True)
assert metadata == b"m" and data == b"x" * 100_000 and data.readonly
assert client.get(client.put({"a": [1, 2], "b": bytearray(50_000)})) == {"a": [1, 2], "b": bytearray(50_000)}
assert bytes(client.get_metadata([client.put_raw_buffer(memoryview(b"raw"), metadata=b"q")])[0]) == b"q"
part = buffer[10:20]
del buffer, data
client.delete([oid])
for _ in range(20):
    client.put_raw_buffer(b"y" * 100_000)
assert part == b"x" * 10
try:
    client.put(lambda: None)
except plasma.PlasmaSerializationError as error:
    print(issubclass(plasma.PlasmaObjectExists, Exception), "cannot be put" in str(error))
assert sys.modules["pyarrow"] is None
"""


def test_everything_works_on_bytes(socket_name: str) -> None:
    command = [sys.executable, "-c", PROGRAM, socket_name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


def test_importing_entrepot_loads_none_of_it(daemon: Any) -> None:
    program = (
        "import entrepot, sys; entrepot.connect(sys.argv[1]).put(b'x')\n"
        "print([name for name in sys.modules if 'plasma' in name or name == 'pyarrow'])"
    )
    done: Any = subprocess.run(
        [sys.executable, "-c", program, daemon.address], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
