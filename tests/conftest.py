"""Fixtures shared by all tests: an isolated environment, short socket paths, waits with a timeout."""

from __future__ import annotations

import gc
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import entrepot
    from control_plane import ControlPlane

# Helper modules that are not tests: the control plane (also used by the demo and the benchmarks), Airflow's databases,
# programs that run several DAGs or jobs, the tables of what a put shares, the matrix of environments,
# Plasma's messages, pyarrow 11, and hosts as namespaces.
sys.path.insert(0, str(Path(__file__).with_name("kubecp")))
sys.path.insert(0, str(Path(__file__).with_name("databases")))
sys.path.insert(0, str(Path(__file__).with_name("run_programs")))
sys.path.insert(0, str(Path(__file__).with_name("resharing")))
sys.path.insert(0, str(Path(__file__).with_name("environments")))
sys.path.insert(0, str(Path(__file__).with_name("plasma") / "wire"))
sys.path.insert(0, str(Path(__file__).with_name("plasma_python") / "stock"))
sys.path.insert(0, str(Path(__file__).with_name("cluster") / "network"))

import kubecp_build

# Where more threads are runnable than there are cores, as here, scikit-learn's threads spend most of their time in the
# busy loops in which they wait for each other. OpenMP reads this when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# How long an example takes depends on what else the machine does.
with suppress(ImportError):  # some environments of the tests have no Hypothesis
    from hypothesis import HealthCheck, settings

    settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy machine")

# Longer than any test needs, shorter than pytest's own timeout.
WATCHDOG_SECONDS = 60.0


# Modules whose tests share no fixtures: under pytest-xdist their tests are distributed one by one.
ONE_BY_ONE = frozenset(
    {
        "dagster_integration/test_jobs.py",
        "examples/test_demo.py",
        "examples/test_failover.py",
        "failover/test_kedro.py",
        "kedro_dataset/test_project.py",
        "kedro_dataset/test_run_ends.py",
    }
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under ``--dist loadscope``, keep each module in one process for the sake of its fixtures, except ONE_BY_ONE."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return nodeid if module.removeprefix("tests/") in ONE_BY_ONE else module

    return ByModule(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--begin-within SECONDS``: tests that have not begun by then are skipped, and named."""
    parser.addoption("--begin-within", type=float, default=math.inf, metavar="SECONDS")


_IMPORTED_AT = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that would begin after ``--begin-within``."""
    limit: Any = item.config.getoption("--begin-within")
    if time.monotonic() - _IMPORTED_AT > limit:
        pytest.skip(f"not begun within {limit:g} s (--begin-within)")


# Collecting the tests imports everything that they test, and most of a million objects stay. Looking for garbage among
# them takes more than half of that time; frozen, they are not searched again by tests that collect garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, but not what the collected tests and their modules consist of."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the soak test as slow, and tests that use the control plane as ``cluster``, ``e2e`` and ``slow``."""
    for item in items:
        if "soak" in item.path.parts:
            item.add_marker(pytest.mark.slow)
        if "control_plane" in getattr(item, "fixturenames", ()):
            for mark in (pytest.mark.cluster, pytest.mark.e2e, pytest.mark.slow):
                item.add_marker(mark)


@pytest.fixture(scope="session", autouse=True)
def _nobodys_environment() -> Iterator[None]:
    """Hide the settings, runtime directory and configuration of the user who runs the tests.

    A private daemon that a test starts by accident then lives in a temporary directory of this run, ends with it, and
    no test ever connects to the user's store.
    """
    folder = Path(tempfile.mkdtemp(prefix="ent-"))
    saved_environment = dict(os.environ)
    for name in list(os.environ):
        if name.startswith("ENTREPOT_") and not name.startswith("ENTREPOT_SOAK_"):
            del os.environ[name]
    for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        subfolder = folder / name.removeprefix("XDG_").lower()
        subfolder.mkdir(mode=0o700)
        os.environ[name] = str(subfolder)
    yield
    _stop_private_stores(folder)
    os.environ.clear()
    os.environ.update(saved_environment)
    shutil.rmtree(folder, ignore_errors=True)


def _stop_private_stores(folder: Path) -> None:
    """End the daemons whose sockets are in a folder."""
    from entrepot._daemon import launcher

    for socket_file in folder.rglob("*.sock"):
        for pid in launcher.listening_pids(f"unix://{socket_file}"):
            launcher.stop(pid)


# Signal handlers at startup, before any library has changed them.
_SIGNALS = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    """Restore signal handlers after each test; otherwise a process started by a later test could inherit an ignored
    SIGTERM, which orchestrators leave behind."""
    yield
    for number, handler in _SIGNALS.items():
        if handler is not None:
            signal.signal(number, handler)


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """Temporary directory for this test, with a path short enough for the kernel's 107-byte limit on socket paths."""
    folder = Path(tempfile.mkdtemp(prefix="es-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """``wait_until(condition, what, seconds=60)``: wait until the condition holds.

    On timeout, the test fails with a message that names ``what``.
    """

    def wait(condition: Callable[[], object], what: str, seconds: float = WATCHDOG_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                pytest.fail(f"gave up waiting for {what} after {seconds:g} s")
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
        # Lazily: a store that briefly outlives the test still has files open there.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def small_disk() -> Callable[[Path, int], AbstractContextManager[str]]:
    """``with small_disk(folder, nbytes) as refused``: mount a real file system of that size.

    ``refused`` is empty, or the reason why nothing could be mounted.
    """
    return _small_disk


def _answers(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(address.removeprefix("unix://")) == 0


@pytest.fixture(scope="session")
def answers() -> Callable[[str], bool]:
    """``answers(address)``: whether a store accepts connections; the socket file appears slightly earlier."""
    return _answers


class Daemon:
    """An ``entrepotd`` that runs in the foreground and belongs to one test.

    Attributes:
        address: the address it listens on.
    """

    def __init__(self, folder: Path, size: str = "256MiB", *options: str) -> None:
        from entrepot._daemon.launcher import daemon_binary

        self.address = f"unix://{folder}/store.sock"
        self._log = folder / "entrepotd.log"
        # What the console script executes: some thousand tests start a daemon, and Python takes 0.1 s of CPU time each.
        self._command = [str(daemon_binary()), "--address", self.address, "--size", size]
        self._command += options
        if not any(option.startswith("--spill-path") for option in options):
            self._command += ["--spill-path", "none"]  # the default directory does not belong to the test
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What keeper and daemon have logged."""
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        """Start it and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + WATCHDOG_SECONDS
        while not _answers(self.address):
            if self._process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the daemon does not listen:\n{self._log.read_text()}")
            time.sleep(0.005)

    def kill(self, store: entrepot.Store) -> None:
        """Kill keeper and daemon at once, so that only what is on disk is left, and close the connection ``store``."""
        from suspension import suspend

        status = store.status()
        suspend(status["keeper_pid"])  # so that neither restarts the other
        os.kill(status["pid"], signal.SIGKILL)
        os.kill(status["keeper_pid"], signal.SIGKILL)
        store.close()
        self.was_killed(status["pid"])

    def was_killed(self, daemon_pid: int) -> None:
        """Wait for the end of a keeper and daemon that the test killed, so that :meth:`start` can be called again."""
        from entrepot._daemon import launcher

        if self._process is not None:
            self._process.wait(WATCHDOG_SECONDS)
            self._process = None
        end = time.monotonic() + WATCHDOG_SECONDS
        while launcher.is_running(daemon_pid):  # until it exits, it holds the listening socket
            if time.monotonic() > end:
                pytest.fail(f"the daemon {daemon_pid} is still there")
            time.sleep(0.005)

    def stop(self) -> None:
        """Terminate it and wait until it has exited; its objects are lost. No-op if it is not running."""
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
        self._stop_successors()

    def _stop_successors(self) -> None:
        """Terminate the keeper that a daemon started because the test had killed the first, and that daemon."""
        from entrepot._daemon import launcher

        remaining = [pid for pid in launcher.listening_pids(self.address) if not launcher.stop(pid)]
        if remaining:
            pytest.fail(f"processes {remaining} did not end on SIGTERM:\n{self._log.read_text()}")


@pytest.fixture
def daemon(socket_folder: Path) -> Iterator[Daemon]:
    """Running store for this test only."""
    running = Daemon(socket_folder)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def new_daemon(socket_folder: Path) -> Iterator[Callable[..., Daemon]]:
    """``new_daemon(size, *options)``: start this test's only store, with custom options."""
    started: list[Daemon] = []

    def start(size: str, *options: str) -> Daemon:
        running = Daemon(socket_folder, size, *options)
        started.append(running)
        running.start()
        return running

    yield start
    for running in started:
        running.stop()


@pytest.fixture(scope="session")
def daemon_in() -> Callable[..., Daemon]:
    """``daemon_in(folder, size, *options)``: start a store with its socket in a folder; whoever calls this stops it."""

    def start(folder: Path, size: str, *options: str) -> Daemon:
        running = Daemon(folder, size, *options)
        running.start()
        return running

    return start


@pytest.fixture(scope="module")
def module_daemon() -> Iterator[Daemon]:
    """Store shared by the tests of one module, because the data they examine is expensive to produce."""
    folder = Path(tempfile.mkdtemp(prefix="em-"))
    running = Daemon(folder)
    running.start()
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def start_daemon() -> Iterator[Callable[..., Daemon]]:
    """``start_daemon(size, *options)``: start an additional store that runs until the module's last test."""
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
    """``airflow_database()``: create an empty Airflow database in PostgreSQL; returns environment variables.

    SQLite allows one writer at a time, and Airflow's API server responds with 500 if it waits too long for the lock.
    """
    from airflow_databases import AirflowDatabases
    from postgres_server import run_server

    with run_server() as server:
        yield AirflowDatabases(server).new


@pytest.fixture(scope="session")
def control_plane(_nobodys_environment: None) -> Iterator[ControlPlane]:
    """Real Kubernetes control plane (tests/kubecp), shared by all tests that use it; each creates its own namespace.

    Tests that use it are marked ``cluster`` and ``e2e``. If it cannot be built, they fail in continuous integration and
    are skipped elsewhere.
    """
    from control_plane import create_control_plane

    try:
        plane = create_control_plane()
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
