"""The demo: the flights job on three orchestrators, with processes killed in the middle in three ways.

    python -m examples.failover [--hosts airflow,dagster,kedro] [--faults task,daemon,store] [--rows N] [--out FOLDER]

It fails unless every run finishes with the same answer as the undisturbed one. It prints a table and writes
``results.txt``, ``results.json``, ``events.txt`` and ``chart.png`` to the output directory. Every process it starts
ends with it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from examples.failover import on_airflow, on_dagster, on_kedro, present
from examples.failover.faults import FAULTS, WHAT, Plug, Store
from examples.failover.runs import HOSTS, Asked, Row, Run, came_back, made_again
from examples.failover.tasks import read_journal
from examples.flights import data, processes
from examples.flights.processes import DemoError
from examples.flights.runs import ROOT
from examples.flights.store_process import capacity_bytes

_HOSTS = {"airflow": on_airflow.running, "dagster": on_dagster.running, "kedro": on_kedro.running}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.failover", description="The plug pulled in a running job."
    )
    parser.add_argument("--hosts", type=_names, default=list(HOSTS), help="airflow, dagster, kedro; default: all")
    parser.add_argument("--faults", type=_names, default=list(FAULTS[1:]), help="task, daemon, store; default: all")
    parser.add_argument("--scale", type=int, default=1, help=f"years of {data.ROWS:,} flights; default %(default)s")
    parser.add_argument("--rows", type=int, help="only so many flights of each year; default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "failover", help="folder; default build/failover")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds that one run may take; default 600")
    parser.add_argument("--keep", action="store_true", help="keep the working folder with all logs")
    options = parser.parse_args(arguments)
    for given, known, kind in ((options.hosts, HOSTS, "host"), (options.faults, FAULTS[1:], "fault")):
        for wrong in (name for name in given if name not in known):
            parser.error(f"there is no {kind} {wrong!r}; there are {', '.join(known)}")
    for name in ("scale", "rows", "timeout"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} is 1 or more, not {value}")
    return options


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 0 if all went well, 1 if a run failed or its answer is wrong, 130 if interrupted."""
    options = parse(arguments)
    processes.adopt_orphans()
    previous = signal.signal(signal.SIGTERM, _interrupt)
    work = Path(tempfile.mkdtemp(prefix="failover-"))  # a short path: a socket's is limited to 107 bytes
    keep = True
    try:
        _run_all(options, work)
        keep = options.keep
        return 0
    except (DemoError, data.DataMissing) as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        keep = options.keep
        return 130
    finally:
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        processes.end_orphans()
        if keep:
            print(f"The working folder with all logs is {work}", file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, previous)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def _run_all(options: argparse.Namespace, work: Path) -> None:
    asked = Asked(options.rows, options.scale, work, options.timeout, _tell)
    rows: list[Row] = []
    for host in options.hosts:
        _tell(f"{host:8} starts")
        with ExitStack() as stack:
            run = stack.enter_context(_HOSTS[host](asked))
            undisturbed = 0.0
            for fault in ("none", *options.faults):
                row = _one(asked, host, fault, run, undisturbed)
                undisturbed = undisturbed or row.seconds
                rows.append(row)
                _, _, seconds, _, reloaded, rerun = present.cells(row)
                _tell(f"{host:8} {WHAT[fault]}: {seconds} s; reloaded: {reloaded}; rerun: {rerun}")
    _leave(rows, asked, options)


def _one(asked: Asked, host: str, fault: str, run: Run, undisturbed: float) -> Row:
    asked.journal.unlink(missing_ok=True)
    known = len(asked.events())
    store = Store(asked.work, asked.address, capacity_bytes(asked.scale) >> 20, asked.environment())
    store.start()
    plug = Plug(fault, asked.journal, store)
    try:
        plug.start()
        begin = time.time()
        report = run(f"{host}-{fault}")
        seconds = time.time() - begin
        plug.end()
    finally:
        store.stop()
    lines = read_journal(asked.journal)
    until = plug.pulled - begin
    return Row(
        host=host,
        fault=fault,
        seconds=seconds,
        until_fault=until,
        scratch=until + undisturbed,
        reloaded=came_back(asked.events()[known:]),
        rerun=made_again(lines),
        report=report,
    )


def _leave(rows: list[Row], asked: Asked, options: argparse.Namespace) -> None:
    """Write the files and print the table.

    Raises:
        DemoError: an answer differs from that of the first run.
    """
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    text = present.text_table(rows)
    flights = (options.rows or data.ROWS) * options.scale
    wrong = [f"{row.host}, {WHAT[row.fault]}" for row in rows if row.report != rows[0].report]
    (out / "results.txt").write_text(text + "\n", encoding="utf-8")
    whole = {"flights": flights, "same_answers": not wrong, "runs": [asdict(row) for row in rows]}
    (out / "results.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    (out / "events.txt").write_text("".join(f"{event}\n" for event in asked.events()), encoding="utf-8")
    print(f"\n{text}\n")
    if wrong:
        raise DemoError(f"another answer than {rows[0].host}, {WHAT[rows[0].fault]}: {'; '.join(wrong)}")
    present.draw(rows, f"{flights:,} flights; policy: examples/failover/policy.yaml", out / "chart.png")
    print(f"All {len(rows)} runs gave the same answer. Table, events and chart: {out}")
