"""The session of a running run is in use while a node computes: it does not expire, and commands leave it alone."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import entrepot
import kedro_runs
import pytest
from entrepot.errors import StoreUnavailable
from entrepot.garbage import unused_sessions
from entrepot_io.connections import close_all
from entrepot_io.scopes import folder_scope
from entrepot_kedro import EntrepotDataset, catalog_config
from kedro.io import DataCatalog
from kedro.pipeline import node, pipeline
from kedro_projects import kedro, kedro_environment, write_project

# In one process, and in several. The others hold sessions in the same way: test_run_ends.py has our own in `make test`.
RUNNERS = [
    "SequentialRunner",
    "ParallelRunner",
    pytest.param("ThreadRunner", marks=pytest.mark.exhaustive),
    pytest.param("entrepot_kedro.EntrepotParallelRunner", marks=pytest.mark.exhaustive),
]
PROJECT_FILES = {
    "conf/base/entrepot.yml": "intermediates: '*'\n",
    "src/held/nodes.py": """
import os
import time
from pathlib import Path

import numpy as np


def make():
    return np.arange(100_000)


def compute(values):
    if "DO_NOT_WAIT" not in os.environ:
        Path("computing").write_text(str(os.getpid()))
        while not Path("go").exists():
            time.sleep(0.02)
    return values * 2


def total(values, doubled):
    Path("answer").write_text(str(int(values.sum()) + int(doubled.sum())))
""",
    "src/held/pipeline_registry.py": """
from kedro.pipeline import node, pipeline

from held import nodes


def register_pipelines():
    return {
        "__default__": pipeline(
            [
                node(nodes.make, None, "values", name="make"),
                node(nodes.compute, "values", "doubled", name="compute"),
                node(nodes.total, ["values", "doubled"], None, name="total"),
            ]
        )
    }
""",
}
ANSWER = str(3 * sum(range(100_000)))


class Run:
    """A run of a project whose node ``compute`` waits until ``go`` is called.

    Args:
        folder: the project.
        address: of the store.
        arguments: of the command.
        command: of ``kedro``.
        variables: its environment variables.
    """

    def __init__(self, folder: Path, address: str, *arguments: str, command: str = "run", **variables: str) -> None:
        self.folder = folder
        self.variables = {"ENTREPOT_ADDRESS": address}
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kedro", command, *arguments],
                cwd=folder,
                env=kedro_environment() | self.variables | variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_computing(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        return (self.folder / "computing").exists() and bool((self.folder / "computing").read_text())

    def command(self, *arguments: str, **variables: str) -> str:
        """Run ``kedro entrepot ...`` in the project; return its output."""
        return kedro(self.folder, "entrepot", *arguments, variables=self.variables | variables).stdout

    def go(self) -> None:
        (self.folder / "go").touch()

    def answer(self) -> str:
        """Wait for the run's end; return what its last node has written."""
        assert self.process.wait(100) == 0, (self.folder / "log").read_text()
        return (self.folder / "answer").read_text()


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path, daemon: Any, wait_until: Any) -> Iterator[Start]:
    """``start(*arguments, **variables)``: a run whose node ``compute`` is running."""
    write_project(tmp_path, "held", PROJECT_FILES)
    runs: list[Run] = []

    def begin(*arguments: str, **variables: str) -> Run:
        runs.append(Run(tmp_path, daemon.address, *arguments, **variables))
        wait_until(runs[-1].is_computing, "a node that computes")
        return runs[-1]

    yield begin
    (tmp_path / "go").touch()
    for run in runs:
        with suppress(ProcessLookupError):
            os.killpg(run.process.pid, signal.SIGKILL)  # with workers that a killed run has left
        run.process.wait(60)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(700)
@pytest.mark.parametrize("runner", RUNNERS)
def test_commands_leave_a_running_run_alone(start: Start, runner: str) -> None:
    run = start("--runner", runner)
    assert ": in use, " in run.command("status")
    assert "nothing to remove" in run.command("gc")
    assert "Error: no failed run of this project" in run.command("resume")
    assert "Error: no failed run of this project" in run.command("checkpoint", str(run.folder / "checkpoint"))
    run.go()
    assert run.answer() == ANSWER
    assert "nothing is stored" in run.command("status")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(700)
@pytest.mark.parametrize("runner", ["SequentialRunner", "ParallelRunner"])
@pytest.mark.parametrize("session", [None, "nightly"])
def test_a_node_may_take_longer_than_the_sessions_time_to_live(
    start: Start, daemon: Any, wait_until: Any, runner: str, session: str | None
) -> None:
    variables = {} if session is None else {"ENTREPOT_SESSION": session}
    run = start("--runner", runner, ENTREPOT_SESSION_TTL="1s", **variables)
    with entrepot.connect(daemon.address) as store:
        store.session("began when the node did", ttl=1).put(b"x")
        wait_until(lambda: not [each for each in store.sessions() if each.session], "a session that expires")
    run.go()
    assert run.answer() == ANSWER


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(700)
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_run_stays_in_use_over_a_daemons_death(start: Start, daemon: Any, wait_until: Any, start_method: str) -> None:
    """The parent of ParallelRunner's workers does not use the store while they compute, so it does not reconnect."""
    run = start("--runner", "ParallelRunner", KEDRO_MP_CONTEXT=start_method, ENTREPOT_SESSION_TTL="1s")
    with entrepot.connect(daemon.address) as store:
        killed = store.status()["pid"]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: store.status()["pid"] != killed, "another daemon")
        store.session("began after it", ttl=1).put(b"x")
        wait_until(lambda: "began after it" not in {each.session for each in store.sessions()}, "its expiry")
    assert ": in use, " in run.command("status")
    assert "nothing to remove" in run.command("gc")
    run.go()
    assert run.answer() == ANSWER


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(700)
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_of_a_killed_run_do_not_keep_its_session(start: Start, wait_until: Any, start_method: str) -> None:
    run = start("--runner", "ParallelRunner", KEDRO_MP_CONTEXT=start_method)
    worker = int((run.folder / "computing").read_text())
    run.process.kill()
    run.process.wait(60)
    wait_until(lambda: ": ended, " in run.command("status"), "the run's end")
    (run.folder / "computing").unlink()
    resumed = run.command("resume", DO_NOT_WAIT="1")
    assert "Running 2 out of 3 nodes" in resumed, resumed
    assert (run.folder / "answer").read_text() == ANSWER
    os.kill(worker, 0)  # it has computed until now, to no end


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(700)
def test_only_one_run_goes_on_in_a_session(start: Start, wait_until: Any, tmp_path: Path) -> None:
    killed = start()
    killed.process.kill()
    killed.process.wait(60)
    (tmp_path / "computing").unlink()
    resumed = start("resume", command="entrepot")
    fresh = kedro(tmp_path, "run", "--only-missing-outputs", variables=killed.variables | {"DO_NOT_WAIT": "1"})
    assert fresh.returncode == 0, fresh.stdout
    assert "Continuing in" not in fresh.stdout
    assert (tmp_path / "answer").read_text() == ANSWER
    (tmp_path / "answer").unlink()
    resumed.go()
    assert resumed.answer() == ANSWER


def unused(daemon: Any) -> tuple[set[str], set[str]]:
    """All named sessions of the tests' scope, and those that nobody has open."""
    with entrepot.connect(daemon.address, scope="tests") as store:
        return {info.session for info in store.sessions() if info.session}, set(unused_sessions(store, "tests"))


STORED = {"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}


def test_outputs_of_a_run_are_in_use_as_long_as_something_holds_them(daemon: Any, in_scope_tests: None) -> None:
    outputs, catalog = kedro_runs.run(pipeline([node(lambda: b"x", None, "out", name="make")]), STORED)
    del catalog
    gc.collect()
    (session,), unheld = unused(daemon)
    assert not unheld, session
    assert outputs["out"].load() == b"x"
    outputs.clear()
    gc.collect()
    assert unused(daemon) == (set(), set())


def test_sessions_of_catalogs_made_in_python_are_in_use(daemon: Any, in_scope_tests: None) -> None:
    catalog = DataCatalog.from_config(catalog_config(STORED))
    catalog["table"].save(b"x")
    (session,), unheld = unused(daemon)
    assert not unheld
    del catalog
    gc.collect()
    assert unused(daemon) == ({session}, {session})


def test_a_run_that_was_interrupted_is_continued_in_the_same_process(
    daemon: Any, in_scope_tests: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As by a notebook's stop button: Kedro calls no hook for it."""
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path / "events"))
    made: list[str] = []

    def make() -> bytes:
        made.append("make")
        return b"x"

    def use(value: bytes) -> bytes:
        made.append("use")
        if made == ["make", "use"]:
            raise KeyboardInterrupt
        return value

    job = pipeline([node(make, None, "a", name="make"), node(use, "a", "b", name="use")])
    # As in a notebook, the traceback is kept, and with it the catalog.
    with pytest.raises(KeyboardInterrupt) as caught:
        kedro_runs.run(job, STORED)
    assert caught.tb is not None
    outputs, _ = kedro_runs.run(job, STORED, only_missing_outputs=True)
    assert made == ["make", "use", "use"]
    assert outputs["b"].load() == b"x"


def test_runs_that_begin_in_the_same_millisecond_do_not_mix(daemon: Any, in_scope_tests: None) -> None:
    """Kedro's run IDs are times, and two threads of a process may run at once."""
    together = threading.Barrier(4)

    def one_run(number: int) -> list[int]:
        def make() -> int:
            together.wait(60)
            return number

        def add(value: int) -> int:
            together.wait(60)
            return value + 1

        job = pipeline([node(make, None, "a", name="make"), node(add, "a", "b", name="add")])
        outputs, _ = kedro_runs.run(job, STORED, run_id="2026-01-01T00.00.00.000Z")
        together.wait(60)
        return [outputs["b"].load()]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(one_run, range(4))) == [[1], [2], [3], [4]]


@pytest.mark.parametrize("arguments", [{"run_id": "killed"}, {"session": ""}, {"session": "nightly"}], ids=str)
def test_a_worker_that_outlives_its_run_saves_nothing(
    daemon: Any, in_scope_tests: None, arguments: dict[str, Any]
) -> None:
    """Another run may go on in the session by then, and its values are not to be replaced by those of a killed one."""
    code = """
import json, os, sys, time
from entrepot_kedro import EntrepotDataset

dataset = EntrepotDataset(name="value", **json.loads(sys.argv[1]))
dataset.begin_run(None)
dataset.save("of the run")
run = os.getpid()
if os.fork() == 0:
    dataset.save("of a worker")
    print("saved", flush=True)
    while os.getppid() == run:
        time.sleep(0.01)
    try:
        dataset.save("of a worker that is left")
    except Exception as error:
        print(type(error.__cause__).__name__, error, flush=True)
    os._exit(0)
assert sys.stdin.readline().strip() == "end"
os._exit(9)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "saved\n"
    process.stdin.write("end\n")
    process.stdin.flush()
    # It is a zombie until it is waited for, and counts as exited nevertheless.
    refused = process.stdout.read()
    assert refused.startswith("RunEnded "), refused
    assert f"the process of its run, {process.pid}, has exited" in refused
    assert process.wait(60) == 9
    assert EntrepotDataset(name="value", **arguments).load() == "of a worker"


def test_values_of_a_process_are_in_use_until_it_exits(daemon: Any, in_scope_tests: None) -> None:
    """As in a notebook."""
    scope = folder_scope("kedro", Path.cwd())
    EntrepotDataset(name="table", scope=scope).save(b"x")
    with entrepot.connect(daemon.address, scope=scope) as store:
        (info,) = (each for each in store.sessions() if each.session)
        assert info.objects == 1
        assert not unused_sessions(store, scope)
        daemon.kill(store)
        daemon.start()
        EntrepotDataset(name="table", scope=scope).save(b"x")
    with entrepot.connect(daemon.address, scope=scope) as store:
        assert [each.session for each in store.sessions() if each.session] == [info.session]
        assert not unused_sessions(store, scope)


def test_a_run_without_a_store_fails_before_its_first_node(
    tmp_path: Path, in_scope_tests: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_ADDRESS", f"unix://{tmp_path}/nothing.sock")
    close_all()
    began: list[str] = []
    job = pipeline([node(lambda: began.append("compute"), None, "x", name="compute")])
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        kedro_runs.run(job, {"x": {"type": "entrepot_kedro.EntrepotDataset"}})
    assert began == []
