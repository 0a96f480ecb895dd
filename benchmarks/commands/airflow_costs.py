"""``python -m benchmarks airflow``: what the Airflow provider costs beside the values.

*Imports* are those of a task's process, in fresh interpreters, in turn with and without the provider; the median of the
rounds' differences counts. *Mapped tables* are read in order by a task of a real Airflow; its own clock counts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.machine import commit, machine
from benchmarks.harness.text import bytes_text, grid, time_text

if TYPE_CHECKING:
    from argparse import _SubParsersAction

IMPORT_SECONDS = 0.15
MAPPED_SECONDS = 0.1
ROW_BYTES = 2048


def add_airflow_costs(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``airflow``."""
    parser = commands.add_parser("airflow", help="what the Airflow provider costs beside the values")
    parser.add_argument("--imports", type=int, default=15, help="rounds of imports (default 15; 0: none)")
    parser.add_argument("--tables", type=int, default=100, help="mapped tables (default 100)")
    parser.add_argument("--runs", type=int, default=3, help="runs that read them (default 3; 0: none)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    from benchmarks.airflow_costs.measure import measure_imports, measure_mapped
    from examples.flights import processes

    figures: dict[str, object] = {}
    rows: list[list[str]] = []
    if arguments.imports:
        imports = measure_imports(arguments.imports)
        figures["imports"] = asdict(imports)
        what = f"import of the provider, on top of Airflow's {time_text(statistics.median(imports.without))}"
        rows.append(_row(what, imports.added, IMPORT_SECONDS))
    if arguments.runs:
        processes.adopt_orphans()
        work = Path(tempfile.mkdtemp(prefix="mapped-"))  # a short path: a socket's is limited to 107 bytes
        try:
            mapped = measure_mapped(work, arguments.tables, arguments.runs)
        finally:
            processes.kill_orphans()
            shutil.rmtree(work, ignore_errors=True)
        figures["mapped"] = asdict(mapped) | {"tables": arguments.tables}
        seconds = statistics.median(mapped.seconds)
        rows.append(_row(f"{arguments.tables} mapped tables, read in order", seconds, MAPPED_SECONDS))
        reached = "yes" if mapped.row_bytes < ROW_BYTES else "no"
        rows.append(
            ["row in Airflow's database", f"below {bytes_text(ROW_BYTES)}", bytes_text(mapped.row_bytes), reached]
        )
    print(grid(["what", "goal", "measured", "reached"], rows))
    if arguments.json:
        result = {"machine": machine(), "commit": commit(), "airflow": figures}
        arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


def _row(what: str, seconds: float, goal: float) -> list[str]:
    return [what, f"at most {time_text(goal)}", time_text(seconds), "yes" if seconds <= goal else "no"]
