"""Programs of an environment with another version of Dagster, its web server, and source distributions with tests."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
NEWEST, OLDEST = ".venv-dagster", ".venv-dagster-oldest"
SECONDS = 300.0


def python_of(environment: str) -> Path:
    """The environment's interpreter."""
    python = ROOT / environment / "bin/python"
    if sys.version_info >= (3, 13):
        pytest.skip("`make environments` leaves them out for this Python")
    if not python.exists():
        pytest.fail(f"the environment {environment} is not there: `make {environment}/.developed` makes it")
    return python


def variables(environment: str, folder: Path, address: str) -> dict[str, str]:
    """Environment variables for its programs.

    Args:
        environment: name of its folder.
        folder: DAGSTER_HOME.
        address: of the store.
    """
    programs = ROOT / environment / "bin"
    return {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DAGSTER_HOME")},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(ROOT / environment),
        "DAGSTER_HOME": str(folder),
        "ENTREPOT_ADDRESS": address,
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }


def run(command: list[str], cwd: Path, environment: Mapping[str, str]) -> str:
    """Run a program and return its output; it must succeed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def source_distribution(package: str, tests: str, folder: Path) -> Path:
    """Download a package's source distribution, of the version in the lock file, and unpack its tests.

    Args:
        package: its name.
        tests: name of the package with its tests.
        folder: a new one is created here.

    Returns:
        The folder that has the tests' package.
    """
    lock = (ROOT / "tests/environments/dagster.lock").read_text()
    requirement = re.search(rf"^{package}==(\S+) \\\n(?: +--hash=\S+(?: \\)?\n)+", lock, re.MULTILINE)
    assert requirement is not None
    (folder / "requirement.txt").write_text(requirement[0])
    pip = [str(Path(sys.base_prefix) / "bin/python3"), "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, timeout=SECONDS).returncode != 0:
        pytest.skip(f"{pip[0]} has no pip to download the source distribution of {package} with")
    download = ["download", "--quiet", "--no-deps", "--no-binary", package, "--require-hashes", "-d", str(folder)]
    done = subprocess.run(
        [*pip, *download, "-r", str(folder / "requirement.txt")], capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode != 0:
        pytest.skip(f"the source distribution of {package} could not be downloaded: {done.stderr[-400:]}")
    (file,) = folder.glob("*.tar.gz")
    top = file.name.removesuffix(".tar.gz")
    with tarfile.open(file) as archive:
        wanted = [each for each in archive.getmembers() if each.name.startswith(f"{top}/{tests}/")]
        archive.extractall(folder, wanted, filter="data")
    return folder / top


class WebServer:
    """A running ``dagster dev``: its web server, and the daemon.

    Attributes:
        url: of the web server.
    """

    def __init__(self, port: int, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log, self._process = log, process

    def query(self, text: str, **values: Any) -> Any:
        """Send a GraphQL query, and return its data."""
        request = urllib.request.Request(
            f"{self.url}/graphql",
            json.dumps({"query": text, "variables": values}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        return answer["data"]

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition holds, and return it; the test fails, with the server's log, if it does not."""
        end = time.monotonic() + SECONDS
        while True:
            try:
                if result := condition():
                    return result
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass  # it does not listen yet
            if time.monotonic() > end or self._process.poll() is not None:
                pytest.fail(f"gave up waiting for {what}:\n{self._log.read_text(errors='replace')[-8000:]}")
            time.sleep(0.2)


@contextmanager
def dagster_dev(arguments: list[str], cwd: Path, environment: Mapping[str, str]) -> Iterator[WebServer]:
    """Run ``dagster dev``, until the end of the block.

    Args:
        arguments: further ones.
        cwd: working directory.
        environment: variables, with DAGSTER_HOME.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = Path(environment["DAGSTER_HOME"]) / "dev.log"
    command = ["dagster", "dev", "--host", "127.0.0.1", "--port", str(port), *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield WebServer(port, log, process)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the processes of a session that this module has started."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # ends its web server, its daemon and their code servers
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what is left of its session
