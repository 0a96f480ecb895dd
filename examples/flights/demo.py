"""The demo: the flights job on three orchestrators, with Entrepot and with each orchestrator's own transports.

    python -m examples.flights [--orchestrators airflow,dagster,kedro] [--transports entrepot,...] [--scale N]
        [--out FOLDER]

It reports progress, checks that all runs give the same answer, prints a table, and writes ``results.txt``,
``results.json``, ``chart.png`` and ``index.html`` to the output directory. Every process it starts ends with it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from examples.flights import data, on_airflow, on_dagster, on_kedro, program, store_process
from examples.flights.measure import memory, stored
from examples.flights.present import chart, page, table
from examples.flights.processes import Child
from examples.flights.program import check_at_least_one, print_progress, split_names
from examples.flights.runs import ROOT, Figures, Outcome, RunConfig
from examples.flights.transports import Transport, select_transports

DEFAULT_SCALE = 3
_COMMAND_RUNNERS = {"dagster": on_dagster.run, "kedro": on_kedro.run}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights", description="Run the flights job on three orchestrators with each transport."
    )
    parser.add_argument(
        "--orchestrators",
        type=split_names,
        help="comma-separated orchestrators: airflow, dagster, kedro; default: all",
    )
    parser.add_argument(  # its former name
        "--hosts", dest="orchestrators", type=split_names, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--transports",
        type=split_names,
        help="comma-separated transports: entrepot, objectstorage, files, pickle, memory; default: all",
    )
    parser.add_argument(
        "--scale", type=int, default=DEFAULT_SCALE, help=f"years of {data.ROWS:,} flights; default %(default)s"
    )
    parser.add_argument("--rows", type=int, help="number of flights of each year; default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "demo", help="output folder; default build/demo")
    parser.add_argument("--timeout", type=float, default=600.0, help="time limit of one run in seconds; default 600")
    parser.add_argument("--keep", action="store_true", help="keep the working folder with all logs")
    options = parser.parse_args(arguments)
    check_at_least_one(parser, options, ("scale", "rows", "timeout"))
    try:
        options.transports = select_transports(options.orchestrators, options.transports)
    except ValueError as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 0 if all went well, 1 if a run failed or the answers differ, 130 if interrupted."""
    options = parse(arguments)

    def body(work: Path) -> bool:
        return _write_results(_run_all(options, work), options)

    return program.run(body, "flights-", keep=options.keep)


def _run_all(options: argparse.Namespace, work: Path) -> list[Figures]:
    for name in ("flights", *data.LOOKUPS):
        data.data_file(name).read_bytes()  # fails early if data is missing, and warms the page cache for all runs
    uses_entrepot = any(transport.is_entrepot for transport in options.transports)
    address = f"unix://{work}/store.sock" if uses_entrepot else None
    config = RunConfig(options.scale, options.rows, work, address, options.timeout, print_progress)
    flights = (options.rows or data.ROWS) * options.scale
    print_progress(f"{flights:,} flights, {len(options.transports)} runs")
    samples = work / "memory.jsonl"
    command = [sys.executable, "-m", "examples.flights.measure.memory", "--out", str(samples), str(os.getpid())]
    command += ["--store", address] if address is not None else []
    rows: list[Figures] = []
    with Child(
        "the memory sampler", command, log=work / "memory.log", environment=config.environment(), folder=ROOT
    ) as sampler:
        sampler.wait_for(lambda: bool(memory.read_samples(samples)), "its first sample", 30)
        for orchestrator in dict.fromkeys(transport.orchestrator for transport in options.transports):
            transports = [transport for transport in options.transports if transport.orchestrator == orchestrator]
            with _runner(config, orchestrator, transports) as run:
                for transport in transports:
                    figures = _measure_run(config, transport, run, sampler, samples)
                    print_progress(
                        f"{orchestrator:8} {transport.label}: {figures.run_seconds:.1f} s, including "
                        f"{figures.sharing_seconds:.2f} s of data sharing; peak {figures.peak_bytes / 1e6:,.0f} MB"
                    )
                    rows.append(figures)
    return rows


@contextmanager
def _runner(config: RunConfig, orchestrator: str, transports: Sequence[Transport]) -> Iterator[Any]:
    """Yields a function that runs one transport of an orchestrator; Airflow is started once for all of them."""
    if orchestrator != "airflow":
        run = _COMMAND_RUNNERS[orchestrator]
        yield lambda transport: run(config, transport)
        return
    print_progress("airflow  starting")
    with on_airflow.running(config, transports) as airflow:
        yield airflow.run


def _measure_run(config: RunConfig, transport: Transport, run: Any, sampler: Child, samples: Path) -> Figures:
    with ExitStack() as stack:
        if transport.is_entrepot:
            assert config.address is not None
            stack.enter_context(store_process.running(config, config.address))
        sample_count = len(memory.read_samples(samples))
        # Sample the memory before the run, to tell it from what the run takes.
        sampler.wait_for(lambda: len(memory.read_samples(samples)) > sample_count + 1, "a sample of memory", 30)
        outcome: Outcome = run(transport)
    copied = stored.copied_bytes(stored.read_blobs(config.folder(transport) / "meter"))
    return Figures.of(outcome, memory.read_samples(samples), copied)


def answer_differences(rows: Sequence[Figures]) -> list[str]:
    """Differences between the runs' reports; empty if there are none."""
    first = rows[0]
    return [
        f"{name}: {first.orchestrator} with {first.label} reports {first.report.get(name)!r}, "
        f"{row.orchestrator} with {row.label} reports {row.report.get(name)!r}"
        for row in rows[1:]
        for name in sorted({*first.report, *row.report})
        if row.report.get(name) != first.report.get(name)
    ]


def _write_results(rows: list[Figures], options: argparse.Namespace) -> bool:
    """Write the files and print the table; returns whether all answers are the same."""
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    differences = answer_differences(rows)
    about = about_machine(options)
    text = f"{table.text_table(rows)}\n\nMemory at the peak, in MB:\n\n{table.memory_table(rows)}"
    summary = "\n".join(table.comparison_sentences(rows))
    (out / "results.txt").write_text(f"{text}\n\n{summary}\n", encoding="utf-8")
    results = table.as_json(rows, about) | {"same_answers": not differences}
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"\n{text}\n\n{summary}\n")
    if differences:
        print("demo: the runs gave different answers:\n" + "\n".join(differences), file=sys.stderr)
        return False
    subtitle = ", ".join(f"{name} {value}" for name, value in about.items() if name != "sample seconds")
    chart.draw(rows, subtitle, out / "chart.png")
    (out / "index.html").write_text(page.page(rows, about), encoding="utf-8")
    print("The answer, the same for all runs:" if len(rows) > 1 else "The answer:")
    print(json.dumps(rows[0].report, indent=2))
    print(f"\nTable, chart and page: {out}/results.txt, results.json, chart.png, index.html")
    return True


def about_machine(options: argparse.Namespace) -> dict[str, Any]:
    """The context needed to interpret the figures."""
    from importlib.metadata import version

    return {
        "flights": f"{(options.rows or data.ROWS) * options.scale:,}",
        "scale": options.scale,
        "processors": len(os.sched_getaffinity(0)),
        "Python": sys.version.split()[0],
        "pandas": version("pandas"),
        "Airflow": version("apache-airflow"),
        "Dagster": version("dagster"),
        "Kedro": version("kedro"),
        "sample seconds": memory.INTERVAL_SECONDS,
    }


if __name__ == "__main__":
    sys.exit(main())
