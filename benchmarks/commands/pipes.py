"""``python -m benchmarks pipes``: engines that hand a table to each other by a file, and by a pipe.

The table is the one of PipeGen's paper: a unique integer, and three pairs of an integer and a double. For each ordered
pair of engines: the time of an export to a CSV file and of its import after that, beside that of both at once through a
pipe; programs are started, and the table is in the engine, before. Files are in the temporary folder (TMPDIR).
Beside them, pandas hands the table to pandas by Arrow's stream over a Unix socket, in code that is written for it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.text import grid
from benchmarks.pipes.engines import (
    CommandEngine,
    Engine,
    EngineFailed,
    Setting,
    absent_reason,
    postgres_environment,
    start_engine,
)

if TYPE_CHECKING:
    from argparse import _SubParsersAction

ENGINES = ("pandas", "DuckDB", "SQLite", "PostgreSQL", "Spark", "Derby")
GOAL_AVERAGE, GOAL_BEST, GOAL_WORST = 3.2, 10.0, 0.95
_CAPACITY_MIB = 2048


def add_pipes(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``pipes``."""
    parser = commands.add_parser("pipes", help="engines that hand a table to each other by a file, and by a pipe")
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="of the table (default 1,000,000; goal: ten times that)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each pair (default 3)")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), help="which (default: all)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory(prefix="pp-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        store = stack.enter_context(own_store(folder / "store", _CAPACITY_MIB, "--spill-path", "none"))
        environment = {**os.environ, "ENTREPOT_ADDRESS": store.address}
        present = []
        for engine in arguments.engines:
            reason = absent_reason(engine)
            if reason is None:
                present.append(engine)
            else:
                print(f"{engine} is absent: {reason}")
        if "PostgreSQL" in present:
            environment |= stack.enter_context(postgres_environment())
        source = folder / "source.csv"
        table = _table(arguments.rows)
        table.to_csv(source, index=False)
        setting = Setting(folder, source, environment)
        engines: dict[str, Engine | CommandEngine] = {}
        for engine in present:
            engines[engine] = start_engine(engine, setting)
            stack.callback(engines[engine].close)
        expected = [arguments.rows, int(table["id"].sum())]
        ratios = _measured(engines, expected, folder, arguments.rounds)
        print(f"pandas to pandas by Arrow's stream over a Unix socket: {_by_hand(table, arguments.rounds):.2f} s")
    if ratios:
        print(
            f"{arguments.rows:,} rows, time by file over time by pipe: {statistics.mean(ratios):.2f} on average, "
            f"{max(ratios):.2f} at best, {min(ratios):.2f} at worst"
        )
        print(f"goals: {GOAL_AVERAGE:g} on average, {GOAL_BEST:g} at best, none below {GOAL_WORST:g}")
    return 0


def _measured(
    engines: dict[str, Engine | CommandEngine], expected: list[int], folder: Path, rounds: int
) -> list[float]:
    ratios: list[float] = []
    lines: list[list[str]] = []
    for source in engines.values():
        for target in engines.values():
            if source is target:
                continue
            try:
                files: list[tuple[float, float]] = []
                pipes: list[float] = []
                for number in range(rounds):
                    files.append(_by_file(source, target, folder, expected))
                    pipes.append(_by_pipe(source, target, f"db://{source.name}-{target.name}-{number}", expected))
            except EngineFailed as error:
                print(f"{source.name} to {target.name}: {error}", file=sys.stderr)
                lines.append([f"{source.name} to {target.name}", "failed", "", "", ""])
                continue
            exports, imports = (statistics.median(times) for times in zip(*files, strict=True))
            pipe = statistics.median(pipes)
            ratios.append((exports + imports) / pipe)
            lines.append(
                [
                    f"{source.name} to {target.name}",
                    f"{exports:.2f} s",
                    f"{imports:.2f} s",
                    f"{pipe:.2f} s",
                    f"{ratios[-1]:.2f}",
                ]
            )
            print(*lines[-1], sep="  ", file=sys.stderr)
    print(grid(["", "export to a file", "import", "by a pipe", "ratio"], lines))
    return ratios


def _by_file(
    source: Engine | CommandEngine, target: Engine | CommandEngine, folder: Path, expected: list[int]
) -> tuple[float, float]:
    path = folder / "exported.csv"
    times = []
    source.prepare("export", str(path), source.header)
    begin = time.perf_counter()
    source.begin()
    source.finish()
    times.append(time.perf_counter() - begin)
    _close_command(source)
    target.prepare("import", str(source.file(path)), source.header)
    begin = time.perf_counter()
    target.begin()
    _check(target.finish(), expected)
    times.append(time.perf_counter() - begin)
    _close_command(target)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return times[0], times[1]


def _by_pipe(source: Engine | CommandEngine, target: Engine | CommandEngine, name: str, expected: list[int]) -> float:
    source.prepare("export", name, source.header)
    target.prepare("import", name, source.header)
    begin = time.perf_counter()
    source.begin()
    target.begin()
    results: list[list[int]] = []
    errors: list[EngineFailed] = []
    for engine in (source, target):  # each answers, also if the other one failed
        try:
            results.append(engine.finish())
        except EngineFailed as error:
            errors.append(error)
    seconds = time.perf_counter() - begin
    _close_command(source)
    _close_command(target)
    if errors:
        raise errors[-1]
    _check(results[-1], expected)
    return seconds


def _check(result: list[int], expected: list[int]) -> None:
    if result != expected:
        raise EngineFailed(f"rows and sum of the first column are {result}, and not {expected}")


def _close_command(engine: Engine | CommandEngine) -> None:
    if isinstance(engine, CommandEngine):
        engine.close()


def _table(rows: int) -> Any:
    import numpy as np
    import pandas as pd

    random = np.random.default_rng(1)
    columns: dict[str, Any] = {"id": np.arange(rows)}
    for number in (1, 2, 3):
        columns[f"i{number}"] = random.integers(0, 1 << 31, rows)
        columns[f"d{number}"] = random.random(rows) * 1000
    return pd.DataFrame(columns)


def _by_hand(table: Any, rounds: int) -> float:
    context = multiprocessing.get_context("spawn")
    times = []
    for _ in range(rounds):
        ours, theirs = socket.socketpair()
        answers, answer = context.Pipe(duplex=False)
        process = context.Process(target=_receive, args=(theirs, answer))
        process.start()
        theirs.close()
        if answers.recv() != "ready":
            raise EngineFailed("the receiving process did not start")
        begin = time.perf_counter()
        _send(table, ours)
        if answers.recv() != len(table):
            raise EngineFailed("not all rows came by Arrow's stream")
        times.append(time.perf_counter() - begin)
        process.join()
        ours.close()
    return statistics.median(times)


def _send(table: Any, connection: socket.socket) -> None:
    import pyarrow as pa

    rows = pa.Table.from_pandas(table, preserve_index=False)
    with connection.makefile("wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=1 << 16)


def _receive(connection: socket.socket, answer: Any) -> None:
    import pandas as pd  # noqa: F401 imported before the time begins
    import pyarrow as pa

    answer.send("ready")
    with connection.makefile("rb") as file, pa.ipc.open_stream(file) as reader:
        answer.send(len(reader.read_all().to_pandas()))
