"""Encrypted spill files: no plaintext on disk, restored only with the same key, and no store without a key."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.cli import main

MIB = 1 << 20
PATTERN = b"thirty-two bytes of plain text.."


def value(number: int) -> bytes:
    return (b"%08d" % number + PATTERN) * (MIB // 40)


def key_file(folder: Path, name: str = "key") -> Path:
    path = folder / name
    path.write_text(secrets.token_hex(32) + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def spill(tmp_path: Path) -> tuple[str, ...]:
    """Options for a separate spill directory."""
    return "--spill-path", str(tmp_path / "spill"), "--spill-quota", "1GiB"


def disk_content(tmp_path: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((tmp_path / "spill").rglob("*")) if path.is_file())


def spill_some(store: entrepot.Store, wait_until: Callable[..., None], count: int = 4) -> list[entrepot.ObjectID]:
    oids = [store.put(value(number), name=f"v{number}") for number in range(count)]
    store.evict(*oids)
    wait_until(lambda: all(store.info(oid).state == "spilled" for oid in oids), "the values to leave")
    wait_until(lambda: store.status()["spill"]["unrecorded"] == 0, "the manifest to tell of them")
    return oids


def refused_start(address: str, *options: str) -> str:
    """Reason why a daemon does not start."""
    command = [sys.executable, "-m", "entrepot.daemon_main", "--address", address, "--size", "64MiB", *options]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1, result.stderr
    return result.stderr


@pytest.mark.parametrize("packing", ["none", "zstd"])
def test_spilled_values_are_restored_only_with_the_key(
    packing: str,
    tmp_path: Path,
    spill: tuple[str, ...],
    new_daemon: Callable[..., Any],
    wait_until: Callable[..., None],
) -> None:
    key = key_file(tmp_path)
    daemon = new_daemon("64MiB", *spill, "--spill-compression", packing, "--spill-key-file", str(key))
    store = entrepot.connect(daemon.address, scope="tests")
    oids = spill_some(store, wait_until)
    status = store.status()["spill"]
    assert status["encrypted"] is True
    daemon.kill(store)
    disk_bytes = disk_content(tmp_path)
    assert len(disk_bytes) > 4 * MIB or packing == "zstd"
    assert PATTERN not in disk_bytes
    assert b"bytes" not in disk_bytes, "what the values are is not told either"

    stderr = refused_start(daemon.address, *spill, "--spill-key-file", str(key_file(tmp_path, "other")))
    assert "encrypted with key " + status["key_id"] in stderr
    assert "but no key was given" in refused_start(daemon.address, *spill)
    assert disk_content(tmp_path) == disk_bytes, "and nothing was touched"

    daemon.start()
    with entrepot.connect(daemon.address, scope="tests") as reconnected:
        for number in range(len(oids)):
            assert bytes(reconnected.get_by_name(f"v{number}")) == value(number)


def test_without_a_key_values_are_spilled_as_plaintext(
    tmp_path: Path, spill: tuple[str, ...], new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    daemon = new_daemon("64MiB", *spill)
    with entrepot.connect(daemon.address, scope="tests") as store:
        spill_some(store, wait_until, 1)
        assert store.status()["spill"]["encrypted"] is False
        assert PATTERN in disk_content(tmp_path), "else the other tests here look for nothing"


def test_a_changed_byte_is_an_error(
    tmp_path: Path, spill: tuple[str, ...], new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    command = f"cat {key_file(tmp_path)}"
    daemon = new_daemon("64MiB", *spill, "--spill-key-command", command)
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = spill_some(store, wait_until, 1)
        (path,) = (tmp_path / "spill").rglob("spill-*")
        with path.open("r+b") as file:
            file.seek(4096 + 500_000)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(entrepot.ObjectLost):
            store.get(oids[0])


def test_a_dead_daemon_is_not_noticed(
    tmp_path: Path, spill: tuple[str, ...], new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    daemon = new_daemon("64MiB", *spill, "--spill-key-command", f"cat {key_file(tmp_path)}")
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = spill_some(store, wait_until)
        os.kill(store.status()["pid"], signal.SIGKILL)
        for number, oid in enumerate(oids):
            assert bytes(store.get(oid)) == value(number)


def lose_the_key(
    key: Path, store: entrepot.Store, oids: list[entrepot.ObjectID], wait_until: Callable[..., None]
) -> str:
    """Kill the daemon and hide the key from its successor; return what it then reports about the values."""
    key.rename(f"{key}.away")
    pid = store.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: store.status()["pid"] != pid, "another daemon")
    assert store.status()["spill"]["enabled"] is False
    message = ""
    for oid in oids:
        with pytest.raises(entrepot.ObjectLost) as lost:
            store.get(oid)
        message = str(lost.value)
    Path(f"{key}.away").rename(key)
    return message


@pytest.mark.parametrize("comes_back", ["with the store", "with the daemon", "by an upgrade"])
def test_without_its_key_a_daemon_leaves_what_is_on_disk(
    comes_back: str,
    tmp_path: Path,
    spill: tuple[str, ...],
    new_daemon: Callable[..., Any],
    wait_until: Callable[..., None],
) -> None:
    key = key_file(tmp_path)
    daemon = new_daemon("64MiB", *spill, "--spill-key-file", str(key))
    store = entrepot.connect(daemon.address, scope="tests")
    oids = spill_some(store, wait_until)
    message = lose_the_key(key, store, oids, wait_until)
    assert "its only copy is on disk" in message
    assert "--spill-key-file" in message
    assert "damaged" not in message
    pid = store.status()["pid"]
    if comes_back == "with the store":
        daemon.kill(store)
        daemon.start()
    elif comes_back == "with the daemon":
        os.kill(pid, signal.SIGKILL)
    else:
        assert main(["upgrade", "--address", daemon.address]) == 0
    with entrepot.connect(daemon.address, scope="tests") as reconnected:
        assert reconnected.status()["pid"] != pid
        for number, oid in enumerate(oids):
            assert bytes(reconnected.get(oid)) == value(number)
            assert bytes(reconnected.get_by_name(f"v{number}")) == value(number)
    store.close()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sleep 1000", "did not finish within"),
        ("exit 3", "exit status 3"),
        ("echo rubbish", "hexadecimal digits"),
        ("true", "hexadecimal digits"),
    ],
)
def test_a_command_that_gives_no_key_is_no_store(
    command: str, why: str, socket_folder: Path, spill: tuple[str, ...]
) -> None:
    stderr = refused_start(f"unix://{socket_folder}/store.sock", *spill, "--spill-key-command", command)
    assert "--spill-key-command" in stderr
    assert why in stderr
    assert "rubbish" not in stderr


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_key_that_others_may_see_is_refused(
    mode: int, tmp_path: Path, socket_folder: Path, spill: tuple[str, ...]
) -> None:
    key = key_file(tmp_path)
    key.chmod(mode)
    stderr = refused_start(f"unix://{socket_folder}/store.sock", *spill, "--spill-key-file", str(key))
    assert f"chmod 600 {key}" in stderr
    assert key.read_text().strip() not in stderr
