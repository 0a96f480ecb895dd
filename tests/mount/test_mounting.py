"""How mounts begin and end, and what happens when the store or the mount's process dies."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.errors import AccessDenied, InvalidArgument
from entrepot_mount import mounting

pa = pytest.importorskip("pyarrow")


def _entrepot(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "entrepot", *arguments], capture_output=True, text=True, timeout=60)


def test_the_command_ends_a_mount(new_mount: Callable[..., Any], store: entrepot.Store) -> None:
    store.put(b"content", name="f")
    mount = new_mount()
    assert mounting.mounted_at(mount.folder) == mounting.FILE_SYSTEM
    with (mount.folder / "f").open("rb"):
        refused = _entrepot("umount", str(mount.folder))
        assert refused.returncode != 0
        assert "add --lazy" in refused.stderr
    assert _entrepot("umount", str(mount.folder)).returncode == 0
    mount.wait()
    assert os.listdir(mount.folder) == []
    again = _entrepot("umount", str(mount.folder))
    assert again.returncode != 0
    assert f"no store is mounted at {mount.folder}" in again.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_mount(number: signal.Signals, new_mount: Callable[..., Any], store: entrepot.Store) -> None:
    store.put(b"content", name="f")
    mount = new_mount()
    assert (mount.folder / "f").read_bytes() == b"content"
    os.kill(mount.pid, number)
    mount.wait()
    assert mounting.mounted_at(mount.folder) is None
    assert os.listdir(mount.folder) == []
    assert f"ending because of signal {number.name}" in mount.log()


@pytest.mark.skipif(shutil.which("fusermount3") is None, reason="fusermount3 is not installed")
def test_fusermount_ends_a_mount(new_mount: Callable[..., Any], store: entrepot.Store) -> None:
    mount = new_mount()
    subprocess.run(["fusermount3", "-u", str(mount.folder)], check=True, timeout=60)
    mount.wait()
    assert mounting.mounted_at(mount.folder) is None


def test_a_folder_whose_mount_was_killed_can_be_mounted_again(
    new_mount: Callable[..., Any], store: entrepot.Store, module_daemon: Any
) -> None:
    store.put(b"content", name="f")
    mount = new_mount()
    mount.kill()
    with pytest.raises(OSError, match="not connected") as caught:
        os.listdir(mount.folder)
    assert caught.value.errno == errno.ENOTCONN
    mount.start(module_daemon.address, "--session", store.session_name)
    assert (mount.folder / "f").read_bytes() == b"content"


def test_without_a_store_programs_get_eio_and_the_mount_comes_back_with_it(
    daemon: Any, new_mount: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    session = entrepot.connect(daemon.address, session="mounted")
    session.put(b"x" * 100_000, name="f")
    mount = new_mount(address=daemon.address)
    with (mount.folder / "f").open("rb", buffering=0) as file:
        daemon.kill(session)
        for use in (lambda: os.listdir(mount.folder), lambda: (mount.folder / "f").read_bytes()):
            with pytest.raises(OSError, match="Input/output error") as caught:
                use()
            assert caught.value.errno == errno.EIO
        assert file.read() == b"x" * 100_000  # what is open stays whole
    daemon.start()
    with entrepot.connect(daemon.address, session="mounted") as anew:
        anew.put(b"new", name="g")

        def is_back() -> bool:
            try:
                return os.listdir(mount.folder) == ["g"]
            except OSError:
                return False

        wait_until(is_back, "the mount to use the new store")
        assert (mount.folder / "g").read_bytes() == b"new"
        (mount.folder / "h.csv").write_text("a\n1\n")
        assert anew.get_by_name("h").to_pydict() == {"a": [1]}


def test_what_cannot_be_mounted_says_why(
    new_mount: Callable[..., Any], store: entrepot.Store, module_daemon: Any, tmp_path: Path
) -> None:
    mount = new_mount()
    address = ("--address", module_daemon.address)
    for folder, options, message in (
        (mount.folder, address, "is mounted already: entrepot umount"),
        (tmp_path / "missing", address, "make it first"),
        (tmp_path, (*address, "--session", "no such session", "--read-only"), "no session 'no such session'"),
        (tmp_path, ("--address", f"unix://{tmp_path}/no.sock"), "no store listens at"),
    ):
        refused = _entrepot("mount", *options, "--log", str(tmp_path / "refused.log"), str(folder))
        assert refused.returncode != 0
        assert message in refused.stderr
    assert mounting.mounted_at(tmp_path) is None


def test_without_fuse_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mounting, "_DEVICE", str(tmp_path / "fuse"))
    with pytest.raises(AccessDenied, match="does not exist: load the kernel module"):
        mounting.check_possible()
    monkeypatch.setattr(mounting, "_DEVICE", str(tmp_path))
    with pytest.raises(AccessDenied, match=r"cannot be opened .*chmod 666"):
        mounting.check_possible()
    monkeypatch.setitem(sys.modules, "pyfuse3", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'entrepot\[mount\]'"):
        mounting.check_possible()


def test_a_folder_with_blanks_in_its_name(new_mount: Callable[..., Any], store: entrepot.Store) -> None:
    store.put(b"content", name="f")
    mount = new_mount(name="a folder\twith\\blanks")
    assert mounting.mounted_at(mount.folder) == mounting.FILE_SYSTEM
    assert (mount.folder / "f").read_bytes() == b"content"
    (mount.folder / "g").write_bytes(b"x")
    assert store.get_by_name("g") == b"x"
