"""The demo: three workflows on four hosts, with Entrepot, an S3 server, and files in memory.

    python -m examples.workflows [--transports entrepot,s3,mapped,parquet] [--workflows citation,revenue,fraud]
        [--scale N] [--rounds N] [--hosts N] [--workers N] [--network auto|namespaces|loopback] [--out FOLDER]

It fails unless each workflow gives the same answer with all transports. It prints a table and writes ``results.txt``
and ``results.json`` to the output directory. Every process it starts ends with it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from examples.flights import program
from examples.flights.processes import DemoError
from examples.flights.program import check_at_least_one, check_known, print_progress, split_names
from examples.flights.runs import MIB, ROOT
from examples.workflows import hosts, present, s3_server
from examples.workflows.measure import Figures, run_workflow, tmpfs_folder
from examples.workflows.registry import WORKFLOWS
from examples.workflows.transports import LABELS, NAMES

# A store's usual segment is a sixteenth of it, and each process that writes gets one: the store is as large as needed.
# What is alive at most, at scale 1: on each host all features of the citation graph or all predictions, and several
# values of the parts that are worked on there.
STORE_BYTES = 32 * MIB
STORE_BYTES_PER_PART = 4 * MIB
STORE_BYTES_PER_OWN_PART = 14 * MIB
TOLERANCE = 1e-9


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.workflows", description="Run three workflows on four hosts, with each transport."
    )
    for name, names in (("transports", NAMES), ("workflows", tuple(WORKFLOWS))):
        parser.add_argument(
            f"--{name}", type=split_names, default=list(names), help=f"{', '.join(names)}; default: all"
        )
    parser.add_argument("--scale", type=float, default=4.0, help="amount of data; default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, of which medians are shown; default 3")
    parser.add_argument("--hosts", type=int, default=4, help="number of hosts; default %(default)s")
    parser.add_argument("--workers", type=int, default=2, help="workers of each host; default %(default)s")
    parser.add_argument(
        "--network",
        choices=("auto", "namespaces", "loopback"),
        default="auto",
        help="hosts as network and UTS namespaces, or all on loopback; auto: namespaces where they can be made",
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build/workflows", help="output folder; default build/workflows"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="time limit of a task in seconds; default 300")
    options = parser.parse_args(arguments)
    check_known(parser, options.transports, NAMES, "transport")
    check_known(parser, options.workflows, tuple(WORKFLOWS), "workflow")
    check_at_least_one(parser, options, ("rounds", "hosts", "workers", "timeout"))
    if options.scale <= 0:
        parser.error(f"--scale must be more than 0, not {options.scale}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 0 if all went well, 1 if a run failed or answers differ, 130 if interrupted."""
    options = parse(arguments)

    def body(work: Path) -> bool:
        _run_all(options, work)
        return True

    return program.run(body, "wf-", keep=False)


def environment() -> dict[str, str]:
    """Environment of every process: this one's, without settings of Entrepot that the shell happens to have."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ENTREPOT_")}
    path = [str(ROOT), variables.get("PYTHONPATH", "")]
    return variables | {"PYTHONPATH": os.pathsep.join(part for part in path if part), "PYTHONUNBUFFERED": "1"}


def store_bytes(scale: float, host_count: int, workers: int) -> int:
    """Capacity of each host's store, given the number of hosts and of workers on each."""
    parts = host_count * workers
    return STORE_BYTES + int(scale * (STORE_BYTES_PER_PART * parts + STORE_BYTES_PER_OWN_PART * workers))


def _run_all(options: argparse.Namespace, work: Path) -> None:
    if "s3" in options.transports:
        s3_server.prepare()
    isolated = options.network != "loopback"
    if isolated and (reason := hosts.refusal()):
        if options.network == "namespaces":
            raise DemoError(f"hosts cannot be namespaces here: {reason}")
        print_progress(f"hosts on loopback, because they cannot be namespaces here: {reason}")
        isolated = False
    rows: list[Figures] = []
    with hosts.network(options.hosts, isolated=isolated) as net:
        for number in range(1, options.rounds + 1):
            # In turn from both ends, so that none of them always comes first.
            for transport in options.transports if number % 2 else reversed(options.transports):
                rows += _run_transport(options, net, transport, number, work)
    _write_results(rows, options, isolated)


def _run_transport(
    options: argparse.Namespace, net: hosts.Network, transport: str, number: int, work: Path
) -> list[Figures]:
    folder = Path(tempfile.mkdtemp(prefix="", dir=work))
    tmpfs = Path(tempfile.mkdtemp(prefix="entrepot-workflows-", dir=tmpfs_folder()))
    rows = []
    try:
        nbytes = store_bytes(options.scale, options.hosts, options.workers)
        with hosts.running(transport, net, options.workers, nbytes, folder, tmpfs, environment()) as site:
            for name in options.workflows:
                run = f"{name}-{number}"
                rows.append(run_workflow(WORKFLOWS[name], transport, site, options.scale, run, options.timeout))
                print_progress(
                    f"{WORKFLOWS[name].label}, {LABELS[transport]}: {rows[-1].sharing_seconds:.2f} s sharing"
                )
    finally:
        shutil.rmtree(tmpfs, ignore_errors=True)
    return rows


def same_answer(first: Any, second: Any) -> bool:
    """Whether two answers are the same, but for the last digits of sums."""
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(same_answer(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same_answer, first, second))
    return math.isclose(first, second, rel_tol=TOLERANCE)


def _write_results(rows: list[Figures], options: argparse.Namespace, isolated: bool) -> None:
    """Write the files and print the table.

    Raises:
        DemoError: answers differ.
    """
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    text = "\n".join([present.text_table(rows), "", *present.summary(rows)]).rstrip()
    answers = {row.workflow: row.answer for row in reversed(rows)}
    wrong = sorted(
        {f"{row.workflow}, {row.transport}" for row in rows if not same_answer(row.answer, answers[row.workflow])}
    )
    results = {
        "scale": options.scale,
        "hosts": options.hosts,
        "workers": options.hosts * options.workers,
        "namespaces": isolated,
        "same_answers": not wrong,
        "runs": [asdict(row) | {"sharing_seconds": row.sharing_seconds} for row in rows],
    }
    (out / "results.txt").write_text(text + "\n", encoding="utf-8")
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"\n{text}\n")
    if wrong:
        raise DemoError(f"answers differ from those of the first transport: {'; '.join(wrong)}")
    print(f"Each workflow gave the same answer with all transports. Table: {out}")
