"""One hand-off on one orchestrator with one transport, as in the flights example, whose clocks and samples it uses."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.table_handoff import tasks
from examples.flights import on_airflow
from examples.flights.dagster_names import FILES_VARIABLE, TRANSPORT_VARIABLE
from examples.flights.measure.meter import CallTotals, Meter, read_calls
from examples.flights.processes import Child
from examples.flights.runs import ROOT, SCOPE, Outcome, RunConfig
from examples.flights.transports import Transport

HERE = Path(__file__).resolve().parent
PROJECT = HERE / "kedro_project"
ALLOCATE_VARIABLE = "ENTREPOT_ALLOCATE"
OBJECT_STRINGS_VARIABLE = "ENTREPOT_OBJECT_STRINGS"
PICKLES_VARIABLE = "HANDOFF_PICKLES"  # of pickle_xcom.py, which only Airflow's processes import
PICKLE_FILES = Transport("airflow", "pickle", "pickle file", "an XCom backend that pickles each value to a file")
AIRFLOW_BACKENDS = {**on_airflow.BACKENDS, PICKLE_FILES.name: "benchmarks.table_handoff.pickle_xcom.PickleFileXCom"}
Run = Callable[[Transport, int], Outcome]


@contextmanager
def runner(
    config: RunConfig, orchestrator: str, transports: Sequence[Transport], variables: Mapping[str, str]
) -> Iterator[Run]:
    """Context with a function that runs the hand-off of a table with one of the transports.

    Args:
        config: of all runs.
        orchestrator: ``airflow``, ``dagster`` or ``kedro``.
        transports: those that it has to run.
        variables: of the environment of all its processes.

    The function takes the transport and the table's MiB. It raises ``DemoError`` if the run fails, and ``ValueError``
    if the last task's number is wrong.
    """
    if orchestrator != "airflow":
        command = {"dagster": _dagster_command, "kedro": _kedro_command}[orchestrator]
        yield lambda transport, mib: _checked(mib, _run_command(config, transport, mib, variables, command))
        return
    settings = {
        **variables,
        "AIRFLOW__CORE__DAGS_FOLDER": str(HERE / "airflow_dags"),
        PICKLES_VARIABLE: str(config.folder(PICKLE_FILES) / "files"),
    }
    numbers = iter(range(1_000_000))
    with on_airflow.running(config, transports, settings=settings, backends=AIRFLOW_BACKENDS) as airflow:

        def run(transport: Transport, mib: int) -> Outcome:
            _clear_meter(config, transport)
            dag = on_airflow.dag_id(transport)
            finished = airflow.run_dag(dag, f"run-{next(numbers)}", {"mib": mib})
            report = json.loads(airflow.xcom_entry(finished.path, "report"))
            return _checked(
                mib,
                Outcome(transport, report, finished.seconds, finished.begin, finished.end, _sums(config, transport)),
            )

        yield run


def _checked(mib: int, outcome: Outcome) -> Outcome:
    expected = tasks.expected(mib)
    if outcome.report != expected:
        raise ValueError(f"{outcome.transport}: the last task got {outcome.report}, not {expected}")
    return outcome


def _clear_meter(config: RunConfig, transport: Transport) -> None:
    """Forget the calls of the run before."""
    shutil.rmtree(config.folder(transport) / "meter", ignore_errors=True)


def _sums(config: RunConfig, transport: Transport) -> CallTotals:
    return CallTotals.of(read_calls(config.folder(transport) / "meter"))


def _run_command(
    config: RunConfig,
    transport: Transport,
    mib: int,
    variables: Mapping[str, str],
    command_of: Callable[[Transport, int, Path], tuple[list[str], dict[str, str], Path]],
) -> Outcome:
    _clear_meter(config, transport)
    folder = config.folder(transport)
    command, own_variables, working_folder = command_of(transport, mib, folder)
    environment = {**config.environment(), **variables, **own_variables}
    environment |= Meter.variables(folder / "meter", blobs=transport.is_entrepot)
    begin, clock = time.time(), time.monotonic()
    name = transport.orchestrator.capitalize()
    with Child(name, command, log=folder / "run.log", environment=environment, folder=working_folder) as child:
        child.wait(config.timeout)
    end, seconds = time.time(), time.monotonic() - clock
    report: dict[str, Any] = json.loads(_answer(folder).read_text(encoding="utf-8"))
    return Outcome(transport, report, seconds, begin, end, _sums(config, transport))


def _answer(folder: Path) -> Path:
    return folder / "answer.json"


def _dagster_command(transport: Transport, mib: int, folder: Path) -> tuple[list[str], dict[str, str], Path]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    variables = {
        "DAGSTER_HOME": str(home),
        TRANSPORT_VARIABLE: transport.name,
        FILES_VARIABLE: str(folder / "files"),
    }
    command = [sys.executable, "-m", "benchmarks.table_handoff.dagster_job", "--mib", str(mib)]
    return [*command, "--answer", str(_answer(folder))], variables, ROOT


def _kedro_command(transport: Transport, mib: int, folder: Path) -> tuple[list[str], dict[str, str], Path]:
    files = folder / "files"
    files.mkdir(exist_ok=True)
    variables = {"KEDRO_DISABLE_TELEMETRY": "1", "KEDRO_LOGGING_CONFIG": str(PROJECT / "conf/logging.yml")}
    command = [sys.executable, "-m", "kedro", "run", "--env", transport.name, "--runner", "ParallelRunner"]
    parameters = f"mib={mib},answer={_answer(folder)},files={files}"
    return [*command, "--params", parameters], variables, PROJECT


def delete_values(address: str) -> None:
    """Delete all values of the runs so far, so that the store has their memory for the next one."""
    import entrepot

    with entrepot.connect(address, scope=SCOPE) as store:
        for session in store.sessions():
            for item in store.list(session=session.session):
                store.delete(item.id)


def with_work(config: RunConfig, name: str) -> RunConfig:
    """The same with a folder of its own below ``work``."""
    return replace(config, work=config.work / name)
