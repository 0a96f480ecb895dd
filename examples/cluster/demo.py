"""The demo: the flights job on two hosts, with Entrepot and with files in a shared folder, and with one host killed.

    python -m examples.cluster [--runs entrepot,files,killed] [--rounds N] [--rows N] [--out FOLDER]

It fails unless every run gives the answer that the job gives in this process, without any orchestrator. It prints a
table and writes ``results.txt``, ``results.json`` and ``events.txt`` to the output directory. Every process it starts
ends with it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from examples.cluster import on_celery, present, services
from examples.cluster.on_celery import CeleryCluster
from examples.cluster.present import Row
from examples.failover.faults import VictimWatcher
from examples.failover.runs import RunConfig, reloaded_tasks, rerun_tasks
from examples.failover.tasks import JournalLine, read_journal
from examples.flights import data, job, program
from examples.flights.measure.meter import CallTotals
from examples.flights.processes import DemoError
from examples.flights.program import check_at_least_one, check_known, print_progress, split_names
from examples.flights.runs import ROOT

RUNS = ("entrepot", "files", "killed")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.cluster", description="Run the flights job on two hosts, and kill one of them."
    )
    parser.add_argument(
        "--runs",
        type=split_names,
        default=list(RUNS),
        help="entrepot, files, killed; default: all",
    )
    parser.add_argument("--rounds", type=int, default=3, help="undisturbed runs of each transport; default 3")
    parser.add_argument("--scale", type=int, default=1, help=f"years of {data.ROWS:,} flights; default %(default)s")
    parser.add_argument("--rows", type=int, help="number of flights of each year; default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "build/cluster", help="output folder; default build/cluster")
    parser.add_argument("--timeout", type=float, default=600.0, help="time limit of one run in seconds; default 600")
    parser.add_argument("--keep", action="store_true", help="keep the working folder with all logs")
    options = parser.parse_args(arguments)
    check_known(parser, options.runs, RUNS, "run")
    check_at_least_one(parser, options, ("rounds", "scale", "rows", "timeout"))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 0 if all went well, 1 if a run failed or its answer is wrong, 130 if interrupted."""
    options = parse(arguments)

    def body(work: Path) -> bool:
        _run_all(options, work)
        return True

    return program.run(body, "clu-", keep=options.keep)


def expected_answer(scale: int, rows: int | None) -> dict[str, Any]:
    """The job's report, computed in this process."""
    joined = job.join(job.load(scale, rows))
    featured = job.features(joined)
    report: dict[str, Any] = job.report(joined, job.score(job.train(featured), featured))
    return report


def _run_all(options: argparse.Namespace, work: Path) -> None:
    config = RunConfig(options.rows, options.scale, work, options.timeout, print_progress)
    expected = expected_answer(options.scale, options.rows)
    rows: list[Row] = []
    undisturbed = [name for name in ("entrepot", "files") if name in options.runs]
    print_progress("starting Redis, PostgreSQL, Airflow, and two hosts with stores, gateways and Celery workers")
    with services.running() as servers, on_celery.running(config, servers) as cluster:
        for number in range(1, options.rounds + 1):
            for name in undisturbed if number % 2 else reversed(undisturbed):
                rows.append(_run(config, cluster, name, f"{name}-{number}"))
        if "killed" in options.runs:
            rows.append(_run(config, cluster, "entrepot", "killed", kill=True))
    _write_results(rows, config, options, expected)


def _run(config: RunConfig, cluster: CeleryCluster, transport: str, name: str, *, kill: bool = False) -> Row:
    config.journal.unlink(missing_ok=True)
    event_count = len(config.events())
    call_count = len(cluster.calls(transport))
    if kill:
        config.hold.touch()

    def inject(line: JournalLine) -> None:
        cluster.workers[line.host].kill()
        config.hold.unlink()

    watcher = VictimWatcher(inject, config.journal)
    if kill:
        watcher.start()
    begin = time.monotonic()
    report = cluster.run(transport, name)
    seconds = time.monotonic() - begin
    if kill:
        watcher.finish()
    lines = read_journal(config.journal)
    row = Row(
        transport=transport,
        killed=watcher.victim.host if watcher.victim is not None else "",
        seconds=seconds,
        totals=CallTotals.of(cluster.calls(transport)[call_count:]),
        hosts=tuple(sorted({line.host for line in lines})),
        reloaded=reloaded_tasks(config.events()[event_count:]),
        rerun=rerun_tasks(lines),
        report=report,
    )
    config.print_progress(
        f"{present.LABELS[transport]}, {row.run}: {seconds:.1f} s, {row.sharing_seconds:.2f} s of it sharing"
    )
    return row


def _write_results(rows: list[Row], config: RunConfig, options: argparse.Namespace, expected: dict[str, Any]) -> None:
    """Write the files and print the table.

    Raises:
        DemoError: an answer is not the expected one.
    """
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    text = f"{present.text_table(rows)}\n\n{present.comparison(rows)}".rstrip()
    wrong = [f"{present.LABELS[row.transport]}, {row.run}" for row in rows if row.report != expected]
    results = {
        "flights": (options.rows or data.ROWS) * options.scale,
        "same_answers": not wrong,
        "runs": [asdict(row) | {"sharing_seconds": row.sharing_seconds} for row in rows],
    }
    (out / "results.txt").write_text(text + "\n", encoding="utf-8")
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (out / "events.txt").write_text("".join(f"{event}\n" for event in config.events()), encoding="utf-8")
    print(f"\n{text}\n")
    if wrong:
        raise DemoError(f"answers differ from that of the job in one process: {'; '.join(wrong)}")
    print(f"All {len(rows)} runs gave the answer of the job in one process. Table and events: {out}")
