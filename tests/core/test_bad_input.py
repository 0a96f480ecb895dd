"""Bad input raises typed errors that name what was wrong, the value, and a remedy."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.errors import (
    AccessDenied,
    EntrepotError,
    InvalidArgument,
    ObjectExists,
    ObjectNotFound,
    StoreFull,
    StoreUnavailable,
    Timeout,
    UnsupportedType,
    VersionMismatch,
)

MIB = 1 << 20


def test_unknown_id_is_an_error_at_once(store: entrepot.Store) -> None:
    oid = entrepot.ObjectID.random()
    before = time.monotonic()
    with pytest.raises(ObjectNotFound, match=str(oid)) as caught:
        store.get(oid)
    assert time.monotonic() - before < 5
    assert isinstance(caught.value, KeyError)
    assert "timeout" in str(caught.value)
    with pytest.raises(ObjectNotFound):
        store.info(oid)
    with pytest.raises(ObjectNotFound):
        store.generation_of(oid)
    assert not store.exists(oid)
    assert store.delete(oid) is False


def test_one_unknown_of_many_is_named(store: entrepot.Store) -> None:
    existing, unknown = store.put(1), entrepot.ObjectID.random()
    with pytest.raises(ObjectNotFound, match=str(unknown)):
        store.get_many([existing, unknown, existing])


@pytest.mark.parametrize("bad", ["", "00", "0" * 39, "g" * 40, b"", b"x" * 19, b"x" * 21, 7, None, 1.5])
def test_ids_of_wrong_form(store: entrepot.Store, bad: Any) -> None:
    with pytest.raises(InvalidArgument):
        store.get(bad)
    with pytest.raises(InvalidArgument):
        store.delete(bad)
    if bad is not None:
        with pytest.raises(InvalidArgument):
            store.put(1, id=bad)


@pytest.mark.parametrize("size", [10, 100_000])
def test_sealed_twice_with_other_content(store: entrepot.Store, size: int) -> None:
    oid = store.derive("key")
    store.put(b"a" * size, id=oid)
    with pytest.raises(ObjectExists, match=f"(?s){oid}.*replace"):
        store.put(b"b" * size, id=oid)
    assert store.get(oid) == b"a" * size


@pytest.mark.parametrize("size", [10, 100_000])
def test_sealed_twice_with_other_content_by_another_client(store: entrepot.Store, python: Any, size: int) -> None:
    oid = store.derive("key")
    done = python(f"store.put(b'a' * {size}, id=sys.argv[1])", oid)
    assert done.returncode == 0, done.stderr
    with pytest.raises(ObjectExists, match=str(oid)):
        store.put(b"b" * size, id=oid)
    assert store.put(b"a" * size, id=oid) == oid


def test_get_waits_for_the_seal(store: entrepot.Store, spawn: Callable[..., Any]) -> None:
    oid = store.derive("later")
    writer = spawn("print('ready', flush=True); sys.stdin.readline(); store.put([1, 2], id=sys.argv[1])", oid)
    assert writer.stdout.readline() == "ready\n"
    values: list[Any] = []
    reader = threading.Thread(target=lambda: values.append(store.get(oid, timeout=30)))
    reader.start()
    writer.stdin.write("\n")
    writer.stdin.flush()
    reader.join(30)
    assert values == [[1, 2]]


def test_get_times_out(store: entrepot.Store) -> None:
    oid = entrepot.ObjectID.random()
    before = time.monotonic()
    with pytest.raises(Timeout, match=str(oid)) as caught:
        store.get(oid, timeout=0.2)
    assert 0.15 < time.monotonic() - before < 20
    assert isinstance(caught.value, TimeoutError)


def test_an_unsealed_blob_is_not_found_by_others_nor_its_creator(store: entrepot.Store, python: Any) -> None:
    with store.create(100_000) as blob:
        with pytest.raises(ObjectNotFound):
            store.get(blob.id)
        done = python("store.get(sys.argv[1])", blob.id)
        assert "ObjectNotFound" in done.stderr
        blob.view[:] = b"x" * 100_000
    assert bytes(store.get(blob.id)) == b"x" * 100_000


@pytest.mark.parametrize("bad", [-1, float("nan"), "1", -0.001])
def test_timeouts_of_wrong_form(store: entrepot.Store, bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        store.get(store.put(1), timeout=bad)


def test_unknown_copy_mode(store: entrepot.Store) -> None:
    with pytest.raises(InvalidArgument, match="'sometimes'"):
        store.get(store.put(1), copy="sometimes")  # type: ignore[arg-type]  # the error is the test


def test_object_larger_than_the_store_names_both(store: entrepot.Store) -> None:
    with pytest.raises(StoreFull) as caught:
        store.put(np.zeros(300 * MIB, dtype=np.uint8))
    assert isinstance(caught.value, MemoryError)
    assert "300 MiB" in str(caught.value)
    assert "256 MiB" in str(caught.value)
    assert store.status()["leased_bytes"] == 0 or store.status()["objects"] == 0


def test_full_store_says_who_pins_what(store: entrepot.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 3.0)
    kept: list[Any] = []

    def fill() -> None:
        while len(kept) < 40:
            kept.append(store.get(store.put(np.ones(8 * MIB, dtype=np.uint8))))

    with pytest.raises(StoreFull) as caught:
        fill()
    assert len(kept) >= 20
    text = str(caught.value)
    assert "256 MiB" in text
    assert "pinned" in text
    assert str(os.getpid()) in text


def test_room_comes_back_after_delete(store: entrepot.Store, wait_until: Any) -> None:
    for _ in range(60):
        store.delete(store.put(np.ones(16 * MIB, dtype=np.uint8)))
    wait_until(lambda: store.status()["payload_bytes"] == 0, "deleted objects to be freed")


def test_session_over_its_limit(store: entrepot.Store) -> None:
    limited = store.session("limited", limit_bytes=MIB)
    limited.put(np.zeros(MIB // 2, dtype=np.uint8))
    with pytest.raises(StoreFull, match="limited"):
        limited.put(np.zeros(MIB, dtype=np.uint8))


def test_socket_of_another_user(socket_folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a socket that belongs to somebody else")
    path = socket_folder / "theirs.sock"
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chmod(socket_folder, 0o777)
            os.setuid(65534)
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(str(path))
            listening.listen()
            os.write(go, b"1")
            listening.accept()
            time.sleep(60)
        finally:
            os._exit(0)
    try:
        assert os.read(ready, 1) == b"1"
        with pytest.raises(AccessDenied, match="65534") as caught:
            entrepot.connect(f"unix://{path}")
        assert isinstance(caught.value, PermissionError)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(go)


def test_another_user_is_refused_by_the_daemon(daemon: Any, python: Any) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    path = daemon.address.removeprefix("unix://")
    done = python(
        """
        os.setuid(65534)
        try:
            entrepot._store.connection._core.connect(sys.argv[1], "", "0", 5, 5)
        except entrepot.AccessDenied as error:
            print(error)
        """,
        path,
    )
    assert "user" in done.stdout, done.stderr


def hello_reply(major: int, minor: int) -> bytes:
    text = b"9.9.9"
    body = struct.pack("<HHIQ", major, minor, 1, 0) + struct.pack("<I", len(text)) + text
    body += b"\0" * 16 + struct.pack("<IQI", 0, 1, 1) + struct.pack("<I", 0) + struct.pack("<QIB", 0, 0, 0)
    return struct.pack("<IHHIIQ", 0x31545045, 1, 0, len(body), 0, 1) + body


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """Something that listens at the path and sends this to its first client."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answer)
                peer.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(20)


@pytest.mark.parametrize(("answer", "error"), [("version", VersionMismatch), ("noise", StoreUnavailable)])
def test_daemon_of_another_version_or_no_daemon_at_all(
    socket_folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str, error: type
) -> None:
    monkeypatch.setattr("entrepot._store.connection.CONNECT_SECONDS", 1.0)
    path = socket_folder / "other.sock"
    reply = hello_reply(7, 3) if answer == "version" else b"HTTP/1.1 400 Bad Request\r\n\r\n" * 2
    with answering(path, reply), pytest.raises(error) as caught:
        entrepot.connect(f"unix://{path}")
    if error is VersionMismatch:
        assert "7.3" in str(caught.value)
        assert "9.9.9" in str(caught.value)


@pytest.mark.parametrize("message", [b"session 'ab\xff' of \xc3\xbc", b"\xed\xa0\x80", b"cut \xe2\x82"])
def test_what_a_store_says_that_is_no_utf8_can_be_read(socket_folder: Path, message: bytes) -> None:
    path = socket_folder / "other.sock"
    body = struct.pack("<HBI", 14, 0, len(message)) + message
    refusal = struct.pack("<IHHIIQ", 0x31545045, 2, 0, len(body), 0, 1) + body
    with answering(path, refusal), pytest.raises(InvalidArgument) as caught:
        entrepot.connect(f"unix://{path}")
    assert message.decode(errors="backslashreplace") in str(caught.value)


def test_the_error_of_a_removed_session_names_it(daemon: Any) -> None:
    with (
        entrepot.connect(daemon.address, scope="tests", session="run-9") as store,
        entrepot.connect(daemon.address, scope="tests", session="other") as other,
    ):
        store.put(1)
        other.remove_session("run-9")
        with pytest.raises(InvalidArgument, match="session 'run-9' of scope 'tests' is not open: it was removed"):
            store.put(2)


def test_nobody_listens(socket_folder: Path) -> None:
    with pytest.raises(StoreUnavailable, match="entrepot start") as caught:
        entrepot.connect(f"unix://{socket_folder}/none.sock")
    assert isinstance(caught.value, ConnectionError)


@pytest.mark.parametrize("address", ["/tmp/x", "unix://relative", "http://localhost", "unix:///" + "x" * 200, ""])
def test_addresses_of_wrong_form(address: str) -> None:
    with pytest.raises(InvalidArgument):
        entrepot.connect(address)


@pytest.mark.slow
def test_daemon_gone(daemon: Any, store: entrepot.Store) -> None:
    oid = store.put(np.arange(50_000))
    value = store.get(oid)
    daemon.stop()
    before = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"entrepot (status|start)"):
        store.put(1)
    assert time.monotonic() - before < 25
    assert value.sum() == 50_000 * 49_999 // 2
    store.close()
    assert value[7] == 7


def test_store_replaced_by_a_new_one(daemon: Any, store: entrepot.Store) -> None:
    store.put(1)
    daemon.stop()
    daemon.start()
    assert store.status()["objects"] == 0
    with entrepot.connect(daemon.address) as reconnected:
        assert reconnected.status()["objects"] == 0


def test_closed_store(store: entrepot.Store) -> None:
    oid = store.put(1)
    store.close()
    store.close()
    assert store.closed
    for call in (lambda: store.get(oid), lambda: store.put(1), store.status, lambda: store.session("x")):
        with pytest.raises(StoreUnavailable, match="closed"):
            call()


def test_name_taken(store: entrepot.Store) -> None:
    first = store.put(b"1" * 20_000, name="orders")
    with pytest.raises(ObjectExists, match="orders"):
        store.put(b"2" * 20_000, name="orders")
    assert store.resolve("orders") == first
    second = store.put(b"2" * 20_000, name="orders", replace=True)
    assert store.resolve("orders") == second
    assert store.get(first) == b"1" * 20_000
    with pytest.raises(ObjectExists):
        store.set_name("orders", first)
    store.set_name("orders", first, replace=True)
    assert store.get_by_name("orders") == b"1" * 20_000
    store.unset_name("orders")
    with pytest.raises(ObjectNotFound, match="orders"):
        store.resolve("orders")
    with pytest.raises(ObjectNotFound):
        store.set_name("nothing", entrepot.ObjectID.random())


@pytest.mark.parametrize("name", ["", "x" * 256, 7])
def test_names_of_wrong_form(store: entrepot.Store, name: Any) -> None:
    with pytest.raises(InvalidArgument):
        store.put(1, name=name)


def test_a_type_that_no_codec_takes(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_ALLOW_PICKLE", "0")
    with entrepot.connect(daemon.address) as strict, pytest.raises(UnsupportedType, match="object") as caught:
        strict.put(object())
    assert isinstance(caught.value, TypeError)


def test_what_cannot_even_be_pickled(store: entrepot.Store) -> None:
    with pytest.raises(UnsupportedType):
        store.put(threading.Lock())


def test_pickled_data_where_pickling_is_off(
    daemon: Any, store: entrepot.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = store.put(ValueError("pickled"))
    monkeypatch.setenv("ENTREPOT_ALLOW_PICKLE", "0")
    with entrepot.connect(daemon.address) as strict, pytest.raises(UnsupportedType, match="ENTREPOT_ALLOW_PICKLE"):
        strict.get(oid)


def test_put_many_needs_an_id_a_value(store: entrepot.Store) -> None:
    with pytest.raises(InvalidArgument, match="2 values and 1 ids"):
        store.put_many([1, 2], ids=[entrepot.ObjectID.random()])


def test_put_many_names_the_value_that_failed(store: entrepot.Store) -> None:
    oids = [store.derive(str(number)) for number in range(3)]
    store.put("other", id=oids[1])
    with pytest.raises(ObjectExists, match="value 1 of 3"):
        store.put_many(["a", "b", "c"], ids=oids)
    assert store.get_many(oids) == ["a", "other", "c"]


def test_lengths_of_blobs(store: entrepot.Store) -> None:
    for bad in (-1, 1.5, "7"):
        with pytest.raises(InvalidArgument):
            store.create(bad)  # type: ignore[arg-type]  # the error is the test
    with pytest.raises(StoreFull):
        store.create(1 << 40)
    with pytest.raises((StoreFull, InvalidArgument)):
        store.create((1 << 64) - 1)
    with store.create(0) as blob:
        pass
    assert len(store.get(blob.id)) == 0


def test_a_store_is_made_by_connect() -> None:
    with pytest.raises(InvalidArgument, match="connect"):
        entrepot.Store()


def test_every_error_derives_from_one() -> None:
    for name in entrepot.__all__:
        exported = getattr(entrepot, name)
        if isinstance(exported, type) and issubclass(exported, Exception):
            assert issubclass(exported, EntrepotError)
            assert isinstance(exported.code, str)


def test_metadata_that_no_object_may_have_are_refused_before_the_blob_is_filled(store: entrepot.Store) -> None:
    before = store.status()["objects"]
    with pytest.raises(InvalidArgument, match=r"metadata of a blob can have at most 335544.* bytes, but got 73400320"):
        store.create(10, metadata=b"x" * (70 << 20))
    assert store.status()["objects"] == before
