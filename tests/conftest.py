"""What all tests share: an environment that is nobody's, sockets with short paths, waiting with a watchdog."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from control_plane import ControlPlane

# Modules that are no tests: the control plane, as the demonstration and the benchmarks use it too; Airflow's databases.
sys.path.insert(0, str(Path(__file__).with_name("kubecp")))
sys.path.insert(0, str(Path(__file__).with_name("databases")))

import kubecp_build

# Longer than any test's own need, short of pytest's timeout.
WATCHDOG_SECONDS = 60.0


# Modules whose tests share nothing: where processes share out the modules, these tests go one by one.
ONE_BY_ONE = frozenset(
    {
        "dagster_integration/test_jobs.py",
        "examples/test_demo.py",
        "examples/test_failover.py",
        "failover/test_kedro.py",
        "kedro_dataset/test_project.py",
    }
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under ``--dist loadscope`` a module is one process's, for its fixtures, unless it is named above."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return nodeid if module.removeprefix("tests/") in ONE_BY_ONE else module

    return ByModule(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The soak test is never part of the fast tier; tests of the control plane are a stage of their own."""
    for item in items:
        if "soak" in item.path.parts:
            item.add_marker(pytest.mark.slow)
        if "control_plane" in getattr(item, "fixturenames", ()):
            for mark in (pytest.mark.cluster, pytest.mark.e2e, pytest.mark.slow):
                item.add_marker(mark)


@pytest.fixture(scope="session", autouse=True)
def _nobodys_environment() -> Iterator[None]:
    """Hides the settings, run-time folder and configuration of whoever runs the tests.

    A private daemon that a test starts by accident then lives in a folder of this run, and no test ever meets the
    store of the user.
    """
    folder = Path(tempfile.mkdtemp(prefix="ent-"))
    kept = dict(os.environ)
    for name in list(os.environ):
        if name.startswith("ENTREPOT_") and not name.startswith("ENTREPOT_SOAK_"):
            del os.environ[name]
    for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        place = folder / name.removeprefix("XDG_").lower()
        place.mkdir(mode=0o700)
        os.environ[name] = str(place)
    yield
    os.environ.clear()
    os.environ.update(kept)
    shutil.rmtree(folder, ignore_errors=True)


# What this process does about them when it starts, before any library has had a hand in it.
_SIGNALS = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    """Undoes what hosts leave: a process that a later test starts would inherit that SIGTERM is ignored."""
    yield
    for number, handler in _SIGNALS.items():
        if handler is not None:
            signal.signal(number, handler)


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder of this test alone, its path short enough for the kernel's limit of 107 bytes on socket names."""
    folder = Path(tempfile.mkdtemp(prefix="es-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """``wait_until(condition, what, seconds=60)``: waits till the condition holds; fails saying what was waited for."""

    def wait(condition: Callable[[], object], what: str, seconds: float = WATCHDOG_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                pytest.fail(f"waited {seconds:g} s in vain for {what}")
            time.sleep(0.005)

    return wait


@contextmanager
def _small_disk(folder: Path, nbytes: int) -> Iterator[str]:
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={nbytes},mode=0700", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        yield f"no small disk can be mounted here: {mounted.stderr.strip()}"
        return
    try:
        yield ""
    finally:
        # Lazily: a store that outlives the test by a moment still has files open there.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def small_disk() -> Callable[[Path, int], AbstractContextManager[str]]:
    """``with small_disk(folder, nbytes) as refused``: a real file system of so many bytes, or why there is none."""
    return _small_disk


def _answers(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(address.removeprefix("unix://")) == 0


@pytest.fixture(scope="session")
def answers() -> Callable[[str], bool]:
    """``answers(address)``: whether a store listens there; its socket is a file a moment before that."""
    return _answers


class Daemon:
    """An ``entrepotd`` in the foreground that belongs to one test.

    Attributes:
        address: where it listens.
    """

    def __init__(self, folder: Path, size: str = "256MiB", *options: str) -> None:
        self.address = f"unix://{folder}/store.sock"
        self._log = folder / "entrepotd.log"
        self._command = [sys.executable, "-m", "entrepot.daemon_main", "--address", self.address, "--size", size]
        self._command += options
        if not any(option.startswith("--spill-path") for option in options):
            self._command += ["--spill-path", "none"]  # the default folder is not the test's own
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + WATCHDOG_SECONDS
        while not _answers(self.address):
            if self._process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the daemon does not listen:\n{self._log.read_text()}")
            time.sleep(0.005)

    def was_killed(self, daemon_pid: int) -> None:
        """Somebody else ended it, and the daemon with it: wait for that, so that it can be started again."""
        from entrepot import _launcher

        if self._process is not None:
            self._process.wait(WATCHDOG_SECONDS)
            self._process = None
        end = time.monotonic() + WATCHDOG_SECONDS
        while _launcher.runs(daemon_pid):  # till then it holds the listening socket
            if time.monotonic() > end:
                pytest.fail(f"the daemon {daemon_pid} is still there")
            time.sleep(0.005)

    def stop(self) -> None:
        """End it and wait for its end; what it stored is gone. Nothing if it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(WATCHDOG_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            pytest.fail(f"the daemon did not end on SIGTERM:\n{self._log.read_text()}")
        self._process = None


@pytest.fixture
def daemon(socket_folder: Path) -> Iterator[Daemon]:
    """A store of this test's own, running."""
    running = Daemon(socket_folder)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def new_daemon(socket_folder: Path) -> Iterator[Callable[..., Daemon]]:
    """``new_daemon(size, *options)``: the one store of this test, running, with options of its own."""
    started: list[Daemon] = []

    def start(size: str, *options: str) -> Daemon:
        running = Daemon(socket_folder, size, *options)
        started.append(running)
        running.start()
        return running

    yield start
    for running in started:
        running.stop()


@pytest.fixture(scope="module")
def module_daemon() -> Iterator[Daemon]:
    """A store that the tests of one module share, because what they look at is expensive to make."""
    folder = Path(tempfile.mkdtemp(prefix="em-"))
    running = Daemon(folder)
    running.start()
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def start_daemon() -> Iterator[Callable[..., Daemon]]:
    """``start_daemon(size, *options)``: one more store, running till the module's last test."""
    started: list[tuple[Daemon, Path]] = []

    def start(size: str, *options: str) -> Daemon:
        folder = Path(tempfile.mkdtemp(prefix="ed-"))
        running = Daemon(folder, size, *options)
        started.append((running, folder))
        running.start()
        return running

    yield start
    for running, folder in started:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_database(_nobodys_environment: None) -> Iterator[Callable[[], dict[str, str]]]:
    """``airflow_database()``: an empty database of Airflow's in PostgreSQL, as variables of the environment.

    SQLite takes one writer at a time, and Airflow's API answers 500 when it has waited long enough for its turn.
    """
    from airflow_databases import AirflowDatabases
    from postgres_server import running

    with running() as server:
        yield AirflowDatabases(server).new


@pytest.fixture(scope="session")
def control_plane(_nobodys_environment: None) -> Iterator[ControlPlane]:
    """A real Kubernetes control plane (tests/kubecp), one for all tests that ask for it; each makes its own namespace.

    Tests that use it are marked ``cluster`` and ``e2e``. Where it cannot be built they are skipped, but in a continuous
    integration they fail.
    """
    from control_plane import running

    try:
        plane = running()
    except kubecp_build.NoControlPlane as error:
        if os.environ.get("CI"):
            pytest.fail(f"no control plane: {error}")
        pytest.skip(f"no control plane: {error}")
    with plane:
        yield plane


@pytest.fixture(scope="session")
def entrepot_cluster(control_plane: ControlPlane) -> ControlPlane:
    """The control plane, with the CRDs installed and served."""
    from entrepot_operator import crds

    control_plane.install(crds.definitions())
    return control_plane
