"""Subcommands ``entrepot mount`` and ``entrepot umount``."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from entrepot.errors import EntrepotError, InvalidArgument, Timeout

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

_START_SECONDS = 60.0


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this module's subcommands."""
    from entrepot._cli.common import add_connection_options

    mount = subparsers.add_parser("mount", help="show the objects of a session as files in a folder")
    add_connection_options(mount)
    mount.add_argument("folder", type=Path, metavar="DIR", help="an existing folder")
    mount.add_argument("--read-only", action="store_true", help="refuse all changes")
    mount.add_argument("--bytes", action="store_true", help="store every file as bytes, never as a table or an array")
    mount.add_argument("--foreground", action="store_true", help="stay, and log to standard error, until unmounted")
    mount.add_argument("--log", type=Path, metavar="FILE", help="append the log to FILE (default: in the user's state)")
    mount.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    mount.set_defaults(run=run_mount)

    umount = subparsers.add_parser("umount", help="end a mount")
    umount.add_argument("folder", type=Path, metavar="DIR", help="where it is")
    umount.add_argument("--lazy", action="store_true", help="even if programs have files open there")
    umount.set_defaults(run=run_umount)


def run_mount(arguments: argparse.Namespace) -> int:
    """``entrepot mount``."""
    from entrepot_mount.mounting import check_possible, prepare

    folder = Path(os.path.abspath(arguments.folder))
    if arguments.ready_fd is not None:
        return _serve_for_parent(arguments, folder)
    check_possible()
    prepare(folder)
    if arguments.foreground:
        _configure_log(arguments.log)
        _serve(arguments, folder, None)
        return 0
    log = arguments.log or _log_file(folder)
    pid = _start(_options(arguments, folder), Path(os.path.abspath(log)))
    print(f"mounted at {folder} by process {pid}; its log is {log}")
    return 0


def run_umount(arguments: argparse.Namespace) -> int:
    """``entrepot umount``."""
    from entrepot_mount.mounting import unmount

    unmount(Path(os.path.abspath(arguments.folder)), lazy=arguments.lazy)
    return 0


def _serve(arguments: argparse.Namespace, folder: Path, ready_fd: int | None) -> None:
    from entrepot._cli.common import connect

    from entrepot_mount.mounting import serve
    from entrepot_mount.session_files import MountOptions

    with connect(arguments, create_session=not arguments.read_only) as store:
        options = MountOptions(
            store.address, store.scope, store.session_name, read_only=arguments.read_only, decode=not arguments.bytes
        )

        def ready() -> None:
            if ready_fd is not None:
                os.write(ready_fd, b"{}\n")
                os.close(ready_fd)

        serve(folder, options, ready)


def _serve_for_parent(arguments: argparse.Namespace, folder: Path) -> int:
    """Serve in a process of its own; whether it could be mounted is written to a descriptor, as a line of JSON."""
    _configure_log(arguments.log)
    try:
        _serve(arguments, folder, arguments.ready_fd)
    except EntrepotError as error:
        logging.getLogger("entrepot.mount").error("%s", error)
        answer = {"error": type(error).__name__, "message": str(error)}
        try:
            os.write(arguments.ready_fd, json.dumps(answer).encode() + b"\n")
        except OSError:  # it was mounted: nobody reads any more
            raise error from None
        return 1
    return 0


def _options(arguments: argparse.Namespace, folder: Path) -> list[str]:
    """The arguments of the process that serves the mount."""
    options = ["mount"]
    for name in ("address", "scope", "session"):
        value = getattr(arguments, name)
        if value is not None:
            options += [f"--{name}", value]
    options += ["--read-only"] * arguments.read_only + ["--bytes"] * arguments.bytes
    return [*options, "--", str(folder)]


def _start(options: list[str], log: Path) -> int:
    """Start the process that serves the mount, wait until it does, and return its ID."""
    reading, writing = os.pipe()
    own = ["--log", str(log), "--ready-fd", str(writing)]
    command = [sys.executable, "-m", "entrepot", options[0], *own, *options[1:]]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output, os.fdopen(reading, "rb") as answers:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(writing)
        line = _line_within(answers.fileno(), _START_SECONDS)
    if line is None:
        process.terminate()
        raise Timeout(f"the mount did not begin within {_START_SECONDS:g} s; see {log}")
    if not line:
        raise InvalidArgument(f"the mount ended at once, with exit code {process.wait(_START_SECONDS)}; see {log}")
    answer = json.loads(line)
    if answer:
        process.wait(_START_SECONDS)
        _raise(answer["error"], answer["message"])
    return process.pid


def _line_within(descriptor: int, seconds: float) -> bytes | None:
    """A line from a pipe; empty: its writer has ended without one; None: it took longer."""
    import select
    import time

    end, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([descriptor], [], [], max(end - time.monotonic(), 0.0))
        if not readable:
            return None
        data = os.read(descriptor, 4096)
        if not data:
            return b""
        line += data
    return line


def _raise(kind: str, message: str) -> NoReturn:
    from entrepot import errors

    error: type[Exception] = getattr(errors, kind, EntrepotError)
    raise error(message)


def _configure_log(file: Path | None) -> None:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=None if file is None else str(file),
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _log_file(folder: Path) -> Path:
    from entrepot._daemon.settings import state_folder

    return state_folder() / f"mount-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}.log"
