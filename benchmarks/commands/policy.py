"""``python -m benchmarks policy``: what checkpoints by policy cost the task that writes a value.

Interleaved, in one process, on one store: the put alone; the same through a policy that never checkpoints, one that
checkpoints synchronously (sync), one that does it in the background (async); and a plain write of the same bytes to the
same disk, file and directory synced. What a mode adds is its time minus the put's of the same round. A run's first
checkpoint also creates the directories of its target: it is listed separately, beside the next one of the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store

if TYPE_CHECKING:
    from argparse import _SubParsersAction

FIRST = "first sync"
MODES = {"never": "{when: never}", "sync": "{mode: sync}", "async": "{mode: async}"}


def add_policy(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``policy``."""
    parser = commands.add_parser("policy", help="what checkpoints by a policy add to a task")
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 64, 512], help="of a value (default 1 64 512)")
    parser.add_argument("--rounds", type=int, default=15, help="default 15; medians are printed")
    parser.add_argument(
        "--folder", type=Path, help="on the disk that is measured (default: the system's temporary one)"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    print(
        "| value | put | plain write | never adds | first sync adds | sync adds | over the plain | async adds | worst |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    figures = []
    for mib in arguments.mib:
        with ExitStack() as stack:
            scratch = Path(tempfile.mkdtemp(prefix="entrepot-bench-", dir=arguments.folder))
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
            os.environ["ENTREPOT_EVENTS"] = str(scratch / "events")
            store = stack.enter_context(own_store(scratch / "a", max(256, 8 * mib)))
            row = _measure(store.address, scratch, mib << 20, arguments.rounds) | {"mib": mib}
        figures.append(row)
        cells = [f"{mib} MiB"]
        cells += [f"{1e3 * row[what]:.2f} ms" for what in ("put", "plain", "never", FIRST, "sync")]
        cells += [f"{row['sync'] / row['plain']:.2f}", f"{1e3 * row['async']:.2f} ms", f"{1e3 * row['worst']:.2f} ms"]
        print(f"| {' | '.join(cells)} |", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures), encoding="utf-8")
    return 0


def _plain_write(path: Path, value: Any) -> None:
    with path.open("wb") as file:
        file.write(value)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _measure(address: str, folder: Path, nbytes: int, rounds: int) -> dict[str, float]:
    import numpy as np
    from entrepot_io.values import put_value
    from entrepot_policy import PolicyRuntime, Task, parse_policy

    runtimes = {}
    for mode, rule in MODES.items():
        text = f"version: 1\ncheckpoint: {{target: '{folder}/{mode}/{{run}}', rules: [{rule}]}}"
        runtimes[mode] = PolicyRuntime(parse_policy(text, mode, {}), scope=f"bench-{mode}", address=address)
    taken: dict[str, list[float]] = {what: [] for what in ("put", "plain", FIRST, *MODES)}

    def timed(what: str, work: Callable[[], Any]) -> None:
        begin = time.perf_counter()
        work()
        taken[what].append(time.perf_counter() - begin)

    for number in range(rounds + 1):
        run = f"run-{number}"
        value = np.random.default_rng(number).integers(0, 1 << 62, nbytes // 8)
        (folder / "plain").mkdir()

        def put() -> None:
            put_value(runtimes["never"].session(run), "plain", value)  # noqa: B023

        def plain() -> None:
            _plain_write(folder / "plain" / run, value)  # noqa: B023

        def through(mode: str) -> None:
            runtime, session = runtimes[mode], runtimes[mode].session(run)  # noqa: B023
            for what in (FIRST, mode) if mode == "sync" else (mode,):
                np.add(value, 1, out=value)  # noqa: B023 - so that none of its chunks exist yet
                with runtime.task(Task("kedro", "bench", run, what)) as task:  # noqa: B023
                    timed(what, lambda: task.write(session, lambda: put_value(session, what, value)))  # noqa: B023
            runtime.run_ended(session, 120.0)
            session.remove_session(run)  # noqa: B023

        works: list[Callable[[], None]] = [lambda: timed("put", put), lambda: timed("plain", plain)]
        works += [partial(through, mode) for mode in MODES]
        # Rotate the order: whoever writes first after files were removed finds their pages warm.
        for work in works[number % len(works) :] + works[: number % len(works)]:
            work()
        runtimes["never"].session(run).remove_session(run)
        for mode in (*MODES, "plain"):
            shutil.rmtree(folder / mode, ignore_errors=True)
    puts = taken["put"][1:]  # the first round is a warm-up
    kinds = (FIRST, *MODES)
    added = {what: [took - put for took, put in zip(taken[what][1:], puts, strict=True)] for what in kinds}
    return {
        "put": statistics.median(puts),
        "plain": statistics.median(taken["plain"][1:]),
        **{what: statistics.median(values) for what, values in added.items()},
        "worst": max(added["async"]),
    }
