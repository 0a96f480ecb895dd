"""Mounting, serving until the end, and unmounting."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot.errors import AccessDenied, InvalidArgument, StoreUnavailable, Timeout

if TYPE_CHECKING:
    from entrepot_mount.session_files import MountOptions, SessionFiles

FILE_SYSTEM = "fuse.entrepot"
_DEVICE = "/dev/fuse"
_SWEEP_SECONDS = 2.0
_UNMOUNT_SECONDS = 60.0
_READ_AHEAD_KIB = 1024
_log = logging.getLogger("entrepot.mount")


def check_possible() -> None:
    """Check that this process can mount.

    Raises:
        InvalidArgument: something is not installed.
        AccessDenied: it may not use FUSE.
    """
    try:
        import pyfuse3  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise InvalidArgument(
            f"entrepot mount needs libfuse3 and the package pyfuse3 ({error}): apt-get install fuse3 libfuse3-dev "
            "pkg-config, then pip install 'entrepot[mount]'"
        ) from error
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        raise InvalidArgument("fusermount3 is missing, with which users mount: apt-get install fuse3")
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError as error:
        raise AccessDenied(
            f"{_DEVICE} does not exist: load the kernel module (modprobe fuse); in a container, pass --device "
            f"{_DEVICE} --cap-add SYS_ADMIN; or read objects through fsspec (entrepot://) instead"
        ) from error
    except OSError as error:
        raise AccessDenied(
            f"{_DEVICE} cannot be opened ({error.strerror}): its owner has to allow it (chmod 666 {_DEVICE}, as udev "
            "does), or read objects through fsspec (entrepot://) instead"
        ) from error


def mounted_at(folder: Path) -> str | None:
    """The type of the file system that is mounted at a folder; None: none is."""
    mount = _mount(folder)
    return None if mount is None else mount.kind


def prepare(folder: Path) -> None:
    """Check that a folder can be mounted on; a mount whose process was killed is removed from it.

    Raises:
        InvalidArgument: it is no folder, or something is mounted there.
    """
    if mounted_at(folder) == FILE_SYSTEM:
        try:
            folder.stat()
        except OSError as error:
            if error.errno not in (errno.ENOTCONN, errno.ECONNABORTED):
                raise InvalidArgument(f"{folder} cannot be mounted on: {error}") from error
            unmount(folder, lazy=True)
        else:
            raise InvalidArgument(f"{folder} is mounted already: entrepot umount {folder}")
    try:
        is_folder = folder.is_dir()
    except OSError as error:
        raise InvalidArgument(f"{folder} cannot be mounted on: {error}") from error
    if not is_folder:
        raise InvalidArgument(f"there is no folder {folder}: make it first (mkdir)")


def unmount(folder: Path, *, lazy: bool = False) -> None:
    """Unmount a folder.

    Args:
        folder: where it is mounted.
        lazy: even if programs have files open there; for them it ends when they close these.

    Raises:
        InvalidArgument: no store is mounted there, or programs use it.
        Timeout: the kernel did not do it.
    """
    kind = mounted_at(folder)
    if kind != FILE_SYSTEM:
        raise InvalidArgument(f"no store is mounted at {folder}" + (f", but a {kind}" if kind else ""))
    program = shutil.which("fusermount3")
    command = [program, "-u", *(["-z"] if lazy else []), "--"] if program else ["umount", *(["-l"] if lazy else [])]
    try:
        done = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=_UNMOUNT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Timeout(f"{folder} was not unmounted within {_UNMOUNT_SECONDS:g} s: {' '.join(command)}") from error
    if done.returncode != 0:
        raise InvalidArgument(
            f"{folder} cannot be unmounted: {done.stderr.strip()}; if programs use it, end them, or add --lazy"
        )


def serve(folder: Path, options: MountOptions, ready: Callable[[], None]) -> None:
    """Mount a session at a folder, and serve it until it is unmounted, or this process gets SIGTERM or SIGINT.

    Args:
        folder: where.
        options: what, and how.
        ready: called once it is mounted.

    Raises:
        InvalidArgument, AccessDenied: it cannot be mounted.
        StoreUnavailable: there is no store.
    """
    check_possible()
    prepare(folder)
    import pyfuse3
    import trio

    from entrepot_mount.operations import Operations
    from entrepot_mount.session_files import SessionFiles

    files = SessionFiles(options)
    files.store()
    kernel = {"default_permissions", "fsname=entrepot", "subtype=entrepot"} | ({"ro"} if options.read_only else set())
    try:
        pyfuse3.init(Operations(files), str(folder), kernel)
    except RuntimeError as error:
        raise AccessDenied(
            f"the kernel refused to mount at {folder} ({error}): it needs the permission to mount, in a container "
            "--cap-add SYS_ADMIN and an AppArmor profile that allows it; or read objects through fsspec (entrepot://)"
        ) from error
    try:
        mount = _mount(folder)  # not stat, which would wait for this process
        if mount is not None:
            files.mount_id = mount.number
            _read_ahead(mount.device)

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                await nursery.start(_terminate_on_signals)
                nursery.start_soon(_sweep, files)
                _log.info("mounted at %s", folder)
                ready()
                await pyfuse3.main()
                nursery.cancel_scope.cancel()

        trio.run(main)
    finally:
        pyfuse3.close(unmount=True)
        _log.info("unmounted from %s", folder)


async def _terminate_on_signals(task_status: Any) -> None:
    import pyfuse3
    import trio

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            _log.info("ending because of signal %s", signal.Signals(number).name)
            pyfuse3.terminate()
            return


async def _sweep(files: SessionFiles) -> None:
    import trio

    while True:
        await trio.sleep(_SWEEP_SECONDS)
        try:
            await trio.to_thread.run_sync(files.sweep)
        except StoreUnavailable:  # every program that uses the mount is told
            pass
        except Exception:  # the mount works without it
            _log.exception("what is not needed any more could not be removed")


def _read_ahead(device: str) -> None:
    """Let the kernel read ahead by its largest request, where this process may set that; by default it is an eighth."""
    with suppress(OSError):
        Path(f"/sys/class/bdi/{device}/read_ahead_kb").write_text(str(_READ_AHEAD_KIB))


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mount: its number, the device as ``major:minor``, and the type of its file system."""

    number: int
    device: str
    kind: str


def _mount(folder: Path) -> _Mount | None:
    wanted = os.fsencode(os.path.abspath(folder))
    topmost = None
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        fields, _, rest = line.partition(b" - ")
        number, _, device, _, point, *_ = fields.split()
        if _unescaped(point) == wanted:
            topmost = _Mount(int(number), device.decode(), rest.split()[0].decode())
    return topmost


def _unescaped(text: bytes) -> bytes:
    """A path of mountinfo, where blanks and the like are octal escapes."""
    for character in (b" ", b"\t", b"\n", b"\\"):
        text = text.replace(b"\\%03o" % character[0], character)
    return text
