"""What the module needs of the extension."""

from __future__ import annotations

from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import _core, plasma


@pytest.mark.parametrize("size", [0, 100, 300_000, 5 << 20])
def test_bytes_are_copied(size: int) -> None:
    source, target = np.arange(size, dtype="uint8").tobytes(), bytearray(size)
    _core.copy_bytes(target, source)
    assert bytes(target) == source


def test_bytes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(entrepot.InvalidArgument, match="5 bytes do not fit a range of 4 bytes"):
        _core.copy_bytes(bytearray(4), b"12345")
    with pytest.raises(BufferError):
        _core.copy_bytes(b"1234", b"5678")


def test_lengths_of_buffers_are_told_without_loading(new_daemon: Any, socket_folder: Any, wait_until: Any) -> None:
    daemon = new_daemon("64MiB", "--spill-path", str(socket_folder / "spill"), "--spill-quota", "64MiB")
    client, store = plasma.connect(daemon.address), entrepot.connect(daemon.address)
    oid = client.put_raw_buffer(bytes(1 << 20), metadata=b"12345")
    store.evict(oid.binary())
    wait_until(lambda: store.info(oid.binary()).state == "spilled", "the object to be on disk")
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    tree, lengths, generation = raw.buffer_lengths(oid.binary())
    assert (lengths, generation) == ([1 << 20, 5], store.generation_of(oid.binary()))
    assert tree == raw.tree(oid.binary())[0]
    assert client.list()[oid]["metadata_size"] == 5
    assert store.info(oid.binary()).state == "spilled"
    assert client.evict(1) == 0  # it takes no memory
    with pytest.raises(entrepot.ObjectNotFound):
        raw.buffer_lengths(bytes(20))
    store.close()
    client.disconnect()


def test_info_tells_of_the_last_read(new_daemon: Any, socket_folder: Any) -> None:
    daemon = new_daemon("64MiB", "--spill-path", str(socket_folder / "spill"), "--spill-quota", "64MiB")
    with entrepot.connect(daemon.address) as store:
        oid = store.put(np.zeros(100_000))
        assert store.info(oid).eviction["was_read"] is False
        store.get(oid)
        assert store.info(oid).eviction["was_read"] is True
