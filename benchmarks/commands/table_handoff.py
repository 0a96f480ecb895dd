"""``python -m benchmarks handoff``: three tasks hand on a table, on each orchestrator.

Task 1 makes a table of int64 columns (or of strings: ``--columns``), task 2 replaces one of its eight columns, task 3
sums all of them; the sum is checked. Airflow, Dagster and Kedro run it as in the flights example, with Entrepot and
with transports of their own. With Entrepot, it runs with values made in ordinary memory and in the store
(``ENTREPOT_ALLOCATE`` 0 and 1), each once in a store started a moment ago, and once more after the first run's values
are deleted.

*Sharing* is the time in the orchestrator's save and load calls, *peak* the memory of all processes and the store. A
run with a table of 1 MiB precedes: what its peak was is what the orchestrator, the tasks' processes and their libraries
take without data. *Above it* is the difference.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.machine import ROOT, commit, machine
from benchmarks.reports.table_handoff import goal_table, sections
from benchmarks.table_handoff import tasks
from examples.flights.transports import ORCHESTRATORS, Transport
from examples.flights.transports import TRANSPORTS as FLIGHTS_TRANSPORTS

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from benchmarks.table_handoff.runs import Run
    from examples.flights.processes import Child
    from examples.flights.runs import Figures, RunConfig

MIB = 1 << 20
TRANSPORTS = ("entrepot", "objectstorage", "files", "parquet", "pickle", "memory")
SAMPLE_SECONDS = 0.1
RUN_SECONDS = 600.0


def add_handoff(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``handoff``."""
    parser = commands.add_parser("handoff", help="three tasks that hand on a table, on each orchestrator")
    parser.add_argument("--mib", type=int, default=1024, help="of the table (default 1024)")
    parser.add_argument("--columns", choices=tasks.KINDS, default=tasks.INT64, help="default int64")
    parser.add_argument(
        "--object-strings",
        choices=("object", "arrow"),
        default="object",
        help="what columns of Python's strings are read as from the store (default object: as they were put)",
    )
    parser.add_argument("--rounds", type=int, default=1, help="default 1; medians are printed")
    parser.add_argument("--orchestrators", nargs="+", choices=ORCHESTRATORS, default=ORCHESTRATORS)
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=TRANSPORTS, help="default: all")
    parser.add_argument("--keep", action="store_true", help="keep the working folder with all logs")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print the tables."""
    from benchmarks.table_handoff.runs import PICKLE_FILES
    from examples.flights import processes

    candidates = [*FLIGHTS_TRANSPORTS, PICKLE_FILES]
    if "dagster" in arguments.orchestrators:
        from benchmarks.table_handoff.parquet_io_manager import PARQUET

        candidates.append(PARQUET)
    transports = [
        transport
        for transport in candidates
        if transport.orchestrator in arguments.orchestrators and transport.name in arguments.transports
    ]
    if not transports:
        raise SystemExit(f"{' and '.join(arguments.orchestrators)} have none of these transports")
    os.environ[tasks.KIND_VARIABLE] = arguments.columns  # for the tasks' processes, and for what is expected of them
    processes.adopt_orphans()
    work = Path(tempfile.mkdtemp(prefix="handoff-"))  # a short path: a socket's is limited to 107 bytes
    try:
        lines = _Measurement(work, arguments.mib, arguments.object_strings).measure(transports, arguments.rounds)
    finally:
        processes.kill_orphans()
        if arguments.keep:
            print(f"The logs are in {work}", file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)
    figures = {"bytes": arguments.mib * MIB, "columns": arguments.columns, "rounds": arguments.rounds, "lines": lines}
    figures["object_strings"] = arguments.object_strings
    print("\n\n".join([*sections(figures), goal_table(figures)]))
    if arguments.json:
        result = {"machine": machine(), "commit": commit(), "handoff": figures}
        arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


class _Measurement:
    """All runs, with one process that samples the memory."""

    def __init__(self, work: Path, mib: int, object_strings: str) -> None:
        from examples.flights.runs import RunConfig

        self._object_strings = object_strings
        self._mib = mib
        self._samples = work / "memory.jsonl"
        self._address = f"unix://{work}/store.sock"
        self._config = RunConfig(1, None, work, self._address, RUN_SECONDS, _print_progress)
        self._sampler: Child | None = None

    def measure(self, transports: list[Transport], rounds: int) -> list[dict[str, Any]]:
        """One line for each case, with the medians of its rounds."""
        from examples.flights.processes import Child

        command = [sys.executable, "-m", "examples.flights.measure.memory", "--out", str(self._samples)]
        command += ["--interval", str(SAMPLE_SECONDS), "--store", self._address, str(os.getpid())]
        cases: dict[tuple[str, str, bool, str], list[dict[str, Any]]] = {}
        environment = self._config.environment()
        log = self._config.work / "memory.log"
        with Child("the memory sampler", command, log=log, environment=environment, folder=ROOT) as self._sampler:
            for number in range(rounds):
                for orchestrator in dict.fromkeys(transport.orchestrator for transport in transports):
                    own = [transport for transport in transports if transport.orchestrator == orchestrator]
                    for allocate in (False, True):
                        chosen = [transport for transport in own if transport.is_entrepot or not allocate]
                        if chosen:
                            for line in self._orchestrator(orchestrator, chosen, allocate, number):
                                case = (line["orchestrator"], line["name"], line["allocate"], line["store"])
                                cases.setdefault(case, []).append(line)
        return [_medians(lines) for lines in cases.values()]

    def _orchestrator(
        self, orchestrator: str, transports: list[Transport], allocate: bool, number: int
    ) -> list[dict[str, Any]]:
        from benchmarks.table_handoff.runs import (
            ALLOCATE_VARIABLE,
            OBJECT_STRINGS_VARIABLE,
            delete_values,
            runner,
            with_work,
        )

        config = with_work(self._config, f"{number}-{orchestrator}-{'store' if allocate else 'process'}")
        config.work.mkdir()
        lines: list[dict[str, Any]] = []
        settings = {ALLOCATE_VARIABLE: "1" if allocate else "0", OBJECT_STRINGS_VARIABLE: self._object_strings}
        with runner(config, orchestrator, transports, settings) as run_once:
            for transport in transports:
                facts = {"orchestrator": orchestrator, "name": transport.name, "label": transport.label}
                with ExitStack() as stack:
                    self._start_store(config, transport, stack)
                    empty = self._run(config, transport, run_once, 1)
                with ExitStack() as stack:
                    self._start_store(config, transport, stack)
                    for store in ("fresh", "used") if transport.is_entrepot else ("",):
                        figures = self._run(config, transport, run_once, self._mib)
                        if store == "fresh":
                            delete_values(self._address)
                        lines.append(facts | {"allocate": allocate, "store": store} | _line(figures, empty))
                        _print_progress(f"{orchestrator}, {transport.label} {store}: {figures.sharing_seconds:.2f} s")
                shutil.rmtree(config.folder(transport) / "files", ignore_errors=True)
        return lines

    def _start_store(self, config: RunConfig, transport: Transport, stack: ExitStack) -> None:
        """Start the store of a transport that uses one; values made in the store may take half of it."""
        from examples.flights import store_process

        if transport.is_entrepot:
            size = (4 * self._mib + 256) * MIB
            stack.enter_context(store_process.running(config, self._address, size=size))

    def _run(self, config: RunConfig, transport: Transport, run_once: Run, mib: int) -> Figures:
        from examples.flights.measure import memory, stored
        from examples.flights.runs import Figures

        assert self._sampler is not None
        count = len(memory.read_samples(self._samples))
        self._sampler.wait_for(lambda: len(memory.read_samples(self._samples)) > count + 1, "a sample of memory", 30)
        outcome = run_once(transport, mib)
        copied = stored.copied_bytes(stored.read_blobs(config.folder(transport) / "meter"))
        return Figures.of(outcome, memory.read_samples(self._samples), copied)


def _line(figures: Figures, empty: Figures) -> dict[str, Any]:
    parts = asdict(figures.peak)
    return {
        "sharing": figures.sharing_seconds,
        "writing": figures.write_seconds,
        "seconds": figures.run_seconds,
        "stored_bytes": figures.bytes_stored,
        "moved_bytes": figures.bytes_written + figures.bytes_read,
        "peak": figures.peak_bytes,
        "idle": figures.idle_bytes,
        "empty": empty.peak_bytes,
        "peak_stored": parts["stored"],
        "peak_leased": parts["leased"],
        "peak_kept": parts["kept"],
        "peak_own": figures.peak.own,
    }


def _medians(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        key: value if isinstance(value, str | bool) else statistics.median(line[key] for line in lines)
        for key, value in lines[0].items()
    }


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
