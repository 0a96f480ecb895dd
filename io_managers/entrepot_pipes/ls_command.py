"""``entrepot pipe ls``: who is at which pipe, and who waits for whom."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from entrepot._cli.common import age, connect, table

from entrepot_pipes.names import parse
from entrepot_pipes.worker_directory import Record, Role, list_pipes

if TYPE_CHECKING:
    from entrepot import Store

_COLUMNS = ["pipe", "query", "end", "worker", "program", "pid", "since", "state"]


def print_pipes(arguments: argparse.Namespace) -> int:
    """Print all workers of the session's pipes."""
    with connect(arguments) as store:
        workers = pipe_workers(store)
    if arguments.json:
        print(json.dumps(workers, indent=2))
        return 0
    rows = [
        [
            worker["pipe"],
            worker["query"],
            worker["role"],
            f"{worker['worker'] + 1} of {worker['workers']}",
            worker["program"],
            str(worker["pid"]),
            age(worker["since"]),
            worker["state"] if worker["state"] != "waiting" else f"waits for {worker['waits_for']}",
        ]
        for worker in workers
    ]
    print(table(rows, _COLUMNS))
    return 0


def pipe_workers(store: Store) -> list[dict[str, Any]]:
    """All workers, with ``state`` (``waiting``, ``open``, ``ended``, or why it failed) and whom they wait for."""
    listed = list(list_pipes(store))
    present: dict[tuple[str, Role], list[Record]] = {}
    for key, role, _, record, _ in listed:
        present.setdefault((key, role), []).append(record)
    workers = []
    for key, role, rank, record, state in listed:
        missing = _missing(role, rank, record, present.get((key, "import" if role == "export" else "export"), []))
        pipe = parse(key)
        workers.append(
            {
                "pipe": f"db://{pipe.name}",
                "query": pipe.query,
                "role": role,
                "worker": rank,
                "workers": record.workers,
                "form": record.form,
                "program": record.program,
                "pid": record.pid,
                "since": record.since,
                "state": "waiting" if state == "open" and missing else state,
                "waits_for": missing if state == "open" else "",
            }
        )
    return workers


def _missing(role: Role, rank: int, record: Record, others: list[Record]) -> str:
    """Whom a worker waits for; empty: nobody."""
    if role == "export":
        target = rank % others[0].workers if others else 0
        return "" if target < len(others) else f"importer {target + 1}" if others else "an importer"
    if not others:
        return "an exporter"
    missing = [
        str(exporter + 1) for exporter in range(rank, others[0].workers, record.workers) if exporter >= len(others)
    ]
    return f"exporter {', '.join(missing)}" if missing else ""
