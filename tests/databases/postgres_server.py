"""PostgreSQL server for the tests: in its own directory, on a Unix socket without a port, removed with the tests.

With fsync=off, a crash of the machine can lose committed data, which does not matter here.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

START_SECONDS = 60.0
END_SECONDS = 60.0
USER = "airflow"
ACCOUNTS = ("postgres", "nobody")  # accounts to run as when root, because PostgreSQL refuses to run as root
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "300",  # each Airflow process has a connection pool
    "shared_buffers": "64MB",
    "autovacuum": "off",
}


class NoPostgres(RuntimeError):
    """No server can be started on this machine; the message says why."""


class Server:
    """Running server, created by :func:`run_server`.

    Args:
        folder: directory of its socket.
        programs: directory of its client programs.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._programs = programs

    def url(self, name: str, driver: str = "psycopg2") -> str:
        """SQLAlchemy URL of a database."""
        return f"postgresql+{driver}://{USER}@/{name}?host={self._folder}"

    def create(self, name: str, template: str = "template0") -> None:
        """Create a database as a copy of a template to which nobody is connected.

        Raises:
            NoPostgres: the server refuses.
        """
        self._sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')

    def answers(self) -> bool:
        """Whether it accepts connections."""
        command = [str(self._programs / "pg_isready"), "-q", "-h", str(self._folder), "-U", USER, "-d", "postgres"]
        return subprocess.run(command, check=False).returncode == 0

    def _sql(self, statement: str) -> None:
        options = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", str(self._folder), "-U", USER]
        command = [str(self._programs / "psql"), *options]
        done = subprocess.run([*command, "-d", "postgres", "-c", statement], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise NoPostgres(f"{statement}: {done.stderr.strip()}")


def programs_folder() -> Path:
    """Directory of PostgreSQL's programs, of the newest installed version.

    Raises:
        NoPostgres: PostgreSQL is not installed.
    """
    candidates = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3].split(".")[0])
    )
    if candidates:
        return candidates[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise NoPostgres("PostgreSQL is not on this machine; `make setup` says which package has it")
    return Path(on_path).resolve().parent


@contextmanager
def run_server() -> Iterator[Server]:
    """Run a server without user databases until the end of the block.

    Raises:
        NoPostgres: it does not start; the message contains its log.
    """
    program_folder = programs_folder()
    account = _account()
    # The path has to be short, because of the socket.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    log = folder / "log"
    try:
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        data = folder / "data"
        _run(
            [str(program_folder / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"],
            account,
        )
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(program_folder / "postgres"), "-D", str(data), "-k", str(folder), *settings],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                **_run_as(account),
            )
        try:
            server = Server(folder, program_folder)
            end = time.monotonic() + START_SECONDS
            while not server.answers():
                if process.poll() is not None or time.monotonic() > end:
                    raise NoPostgres(f"PostgreSQL does not come up:\n{log.read_text(errors='replace')}")
                time.sleep(0.05)
            yield server
        finally:
            _end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[Any]) -> None:
    # Fast shutdown, which disconnects clients; then immediate shutdown, without a checkpoint.
    for number in (signal.SIGINT, signal.SIGQUIT):
        if process.poll() is None:
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()


def _account() -> pwd.struct_passwd | None:
    """Account to run the server as; None: the user who runs the tests."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgres(f"PostgreSQL does not run as root, and there is none of the accounts {', '.join(ACCOUNTS)}")


def _run_as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _run(command: list[str], account: pwd.struct_passwd | None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, cwd="/", **_run_as(account))
    if done.returncode != 0:
        raise NoPostgres(f"{' '.join(command)}: {done.stderr.strip()}")
