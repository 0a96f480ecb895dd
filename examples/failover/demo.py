"""The demo: the flights job on three orchestrators, with processes killed in the middle in three ways.

    python -m examples.failover [--orchestrators airflow,dagster,kedro] [--faults task,daemon,store] [--rows N]
        [--out FOLDER]

It fails unless every run finishes with the same answer as the undisturbed one. It prints a table and writes
``results.txt``, ``results.json``, ``events.txt`` and ``chart.png`` to the output directory. Every process it starts
ends with it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from examples.failover import on_airflow, on_dagster, on_kedro, present
from examples.failover.faults import FAULT_LABELS, FAULTS, FaultInjector, StoreProcess
from examples.failover.runs import ORCHESTRATORS, Row, RunConfig, RunJob, reloaded_tasks, rerun_tasks
from examples.failover.tasks import read_journal
from examples.flights import data, program
from examples.flights.processes import DemoError
from examples.flights.program import check_at_least_one, check_known, print_progress, split_names
from examples.flights.runs import ROOT
from examples.flights.store_process import capacity_bytes

_ORCHESTRATORS = {"airflow": on_airflow.running, "dagster": on_dagster.running, "kedro": on_kedro.running}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.failover", description="Inject faults into a running job."
    )
    parser.add_argument(
        "--orchestrators",
        type=split_names,
        default=list(ORCHESTRATORS),
        help="orchestrators: airflow, dagster, kedro; default: all",
    )
    parser.add_argument(  # its former name
        "--hosts", dest="orchestrators", type=split_names, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--faults", type=split_names, default=list(FAULTS[1:]), help="task, daemon, store; default: all"
    )
    parser.add_argument("--scale", type=int, default=1, help=f"years of {data.ROWS:,} flights; default %(default)s")
    parser.add_argument("--rows", type=int, help="number of flights of each year; default: all")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "failover", help="output folder; default build/failover"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="time limit of one run in seconds; default 600")
    parser.add_argument("--keep", action="store_true", help="keep the working folder with all logs")
    options = parser.parse_args(arguments)
    check_known(parser, options.orchestrators, ORCHESTRATORS, "orchestrator")
    check_known(parser, options.faults, FAULTS[1:], "fault")
    check_at_least_one(parser, options, ("scale", "rows", "timeout"))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 0 if all went well, 1 if a run failed or its answer is wrong, 130 if interrupted."""
    options = parse(arguments)

    def body(work: Path) -> bool:
        _run_all(options, work)
        return True

    return program.run(body, "failover-", keep=options.keep)


def _run_all(options: argparse.Namespace, work: Path) -> None:
    config = RunConfig(options.rows, options.scale, work, options.timeout, print_progress)
    rows: list[Row] = []
    for orchestrator in options.orchestrators:
        print_progress(f"{orchestrator:8} starting")
        with ExitStack() as stack:
            run = stack.enter_context(_ORCHESTRATORS[orchestrator](config))
            undisturbed_seconds = 0.0
            for fault in ("none", *options.faults):
                row = _run_with_fault(config, orchestrator, fault, run, undisturbed_seconds)
                undisturbed_seconds = undisturbed_seconds or row.seconds
                rows.append(row)
                _, _, seconds, _, reloaded, rerun = present.cells(row)
                print_progress(
                    f"{orchestrator:8} {FAULT_LABELS[fault]}: {seconds} s; reloaded: {reloaded}; rerun: {rerun}"
                )
    _write_results(rows, config, options)


def _run_with_fault(config: RunConfig, orchestrator: str, fault: str, run: RunJob, undisturbed_seconds: float) -> Row:
    config.journal.unlink(missing_ok=True)
    event_count = len(config.events())
    store = StoreProcess(config.work, config.address, capacity_bytes(config.scale) >> 20, config.environment())
    store.start()
    injector = FaultInjector(fault, config.journal, store)
    try:
        injector.start()
        begin = time.time()
        report = run(f"{orchestrator}-{fault}")
        seconds = time.time() - begin
        injector.finish()
    finally:
        store.stop()
    lines = read_journal(config.journal)
    until_fault = injector.injected_at - begin
    return Row(
        orchestrator=orchestrator,
        fault=fault,
        seconds=seconds,
        until_fault=until_fault,
        scratch=until_fault + undisturbed_seconds,
        reloaded=reloaded_tasks(config.events()[event_count:]),
        rerun=rerun_tasks(lines),
        report=report,
    )


def _write_results(rows: list[Row], config: RunConfig, options: argparse.Namespace) -> None:
    """Write the files and print the table.

    Raises:
        DemoError: an answer differs from that of the first run.
    """
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    text = present.text_table(rows)
    flights = (options.rows or data.ROWS) * options.scale
    wrong = [f"{row.orchestrator}, {FAULT_LABELS[row.fault]}" for row in rows if row.report != rows[0].report]
    (out / "results.txt").write_text(text + "\n", encoding="utf-8")
    results = {"flights": flights, "same_answers": not wrong, "runs": [asdict(row) for row in rows]}
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (out / "events.txt").write_text("".join(f"{event}\n" for event in config.events()), encoding="utf-8")
    print(f"\n{text}\n")
    if wrong:
        raise DemoError(
            f"answers differ from {rows[0].orchestrator}, {FAULT_LABELS[rows[0].fault]}: {'; '.join(wrong)}"
        )
    present.draw(rows, f"{flights:,} flights; policy: examples/failover/policy.yaml", out / "chart.png")
    print(f"All {len(rows)} runs gave the same answer. Table, events and chart: {out}")
