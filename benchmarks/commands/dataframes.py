"""``python -m benchmarks dataframes``: a pipeline and its operators, beside Dask DataFrame and Polars.

Two frames of two int64 columns, 90 % of whose keys are distinct, lie in the memory of the processes that work on them
before the clock starts. The pipeline joins them, adds a scalar to a column, groups by the key with a sum, and sorts by
it; its result stays where it is, and its number of rows is compared. Each operator is measured by itself as well. Dask
runs with several numbers of partitions on as many workers of one thread as there are ranks, on the same cores, and the
best counts; Polars is one process with all cores. Rounds of all alternate in one run, and only ratios are meaningful.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.machine import commit, machine
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from entrepot_frames import Env, Frame

STEPS = ("pipeline", "join", "group by", "sort", "drop duplicates")
DISTINCT = 0.9
PARTITIONS = (2, 4)  # of Dask, for each worker
GOALS = {"pipeline": 6.0, **dict.fromkeys(STEPS[1:], 2.0)}
POLARS_GOAL = 1.4


def add_dataframes(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``dataframes``."""
    parser = commands.add_parser("dataframes", help="a pipeline on several ranks, beside Dask DataFrame and Polars")
    parser.add_argument("--rows", type=int, default=20_000_000, help="of each of the two frames (default 20,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default 3); medians are printed")
    parser.add_argument("--ranks", type=int, default=len(os.sched_getaffinity(0)), help="default: the cores")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    seconds: dict[str, dict[str, list[float]]] = {step: {} for step in STEPS}
    rows: dict[str, set[int]] = {step: set() for step in STEPS}

    def note(step: str, system: str, measure: Callable[[], tuple[float, int]], *, counts: bool) -> None:
        took, count = measure()
        rows[step].add(count)
        if counts:
            seconds[step].setdefault(system, []).append(took)

    with ExitStack() as stack:
        ours = stack.enter_context(_Ours(arguments.rows, arguments.ranks))
        dask = stack.enter_context(_Dask(arguments.rows, arguments.ranks))
        polars = _Polars(arguments.rows)
        for turn in range(-1, arguments.rounds):  # the first one warms up
            for step in STEPS:
                note(step, "entrepot", partial(ours.measure, step), counts=turn >= 0)
                note(step, "Polars", partial(polars.measure, step), counts=turn >= 0)
                if turn >= 0:
                    for partitions in PARTITIONS:
                        note(step, f"Dask, {partitions}", partial(dask.measure, step, partitions), counts=True)
    for step, counts in rows.items():
        if len(counts) != 1:
            print(f"{step}: the results have different numbers of rows: {sorted(counts)}")
            return 1
    medians = {step: {name: statistics.median(times) for name, times in by.items()} for step, by in seconds.items()}
    table = []
    for step, by in medians.items():
        best = min(value for name, value in by.items() if name.startswith("Dask"))
        table.append(
            [
                step,
                f"{by['entrepot']:.2f}",
                f"{best:.2f}",
                f"{best / by['entrepot']:.1f}",
                f"{GOALS[step]:g}",
                f"{by['Polars']:.2f}",
                f"{by['entrepot'] / by['Polars']:.2f}",
            ]
        )
    print(f"Seconds, two frames of {arguments.rows} rows, {arguments.ranks} ranks, medians of {arguments.rounds}:")
    print(grid(["what", "entrepot", "Dask at its best", "ratio", "goal", "Polars", "of Polars'"], table))
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"machine": machine(), "commit": commit(), "seconds": medians}), encoding="utf-8"
        )
    return 0


def columns(rows: int, seed: int, value: str) -> dict[str, Any]:
    """Keys, most of which occur once, and a small number."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return {"k": rng.integers(0, int(rows / DISTINCT), rows), value: rng.integers(0, 100, rows)}


class _Ours:
    """Ranks on processes of this host, with a store of their own."""

    def __init__(self, rows: int, ranks: int) -> None:
        from entrepot_frames import Executor

        self._stack = ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="df-"))
        store = self._stack.enter_context(own_store(Path(folder, "store"), 8192, "--spill-path", "none"))
        self._executor = self._stack.enter_context(Executor(ranks, store=store))
        self._executor.start(_RankFrames, rows).result()

    def measure(self, step: str) -> tuple[float, int]:
        results = self._executor.execute(_RankFrames.measure, step).result()
        return max(seconds for seconds, _ in results), results[0][1]

    def __enter__(self) -> _Ours:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _RankFrames:
    """The frames of one rank."""

    def __init__(self, env: Env, rows: int) -> None:
        import polars as pl

        self._env = env
        share = slice(rows * env.rank // env.size, rows * (env.rank + 1) // env.size)
        self._left, self._right = (
            pl.DataFrame({name: column[share].copy() for name, column in columns(rows, seed, value).items()})
            for seed, value in ((1, "v"), (2, "w"))
        )

    def measure(self, step: str) -> tuple[float, int]:
        env = self._env
        left, right = env.from_local(self._left), env.from_local(self._right)
        env.communicator.barrier()
        begin = time.perf_counter()
        result = _STEPS[step](left, right)
        result.to_polars()
        env.communicator.barrier()
        return time.perf_counter() - begin, result.count_rows()


def _pipeline(left: Frame, right: Frame) -> Frame:
    import polars as pl

    joined = left.merge(right, on="k").with_columns(v=pl.col("v") + 1)
    return joined.groupby("k").agg(v=("v", "sum")).sort_values("k")


_STEPS: dict[str, Callable[[Frame, Frame], Frame]] = {
    "pipeline": _pipeline,
    "join": lambda left, right: left.merge(right, on="k"),
    "group by": lambda left, _: left.groupby("k").agg(v=("v", "sum")),
    "sort": lambda left, _: left.sort_values("k"),
    "drop duplicates": lambda left, _: left.drop_duplicates("k"),
}


class _Polars:
    """One process with all cores."""

    def __init__(self, rows: int) -> None:
        import polars as pl

        self._left, self._right = pl.DataFrame(columns(rows, 1, "v")), pl.DataFrame(columns(rows, 2, "w"))

    def measure(self, step: str) -> tuple[float, int]:
        import polars as pl

        left, right = self._left.lazy(), self._right.lazy()
        queries = {
            "pipeline": left.join(right, on="k")
            .with_columns(pl.col("v") + 1)
            .group_by("k")
            .agg(pl.col("v").sum())
            .sort("k"),
            "join": left.join(right, on="k"),
            "group by": left.group_by("k").agg(pl.col("v").sum()),
            "sort": left.sort("k"),
            "drop duplicates": left.unique("k"),
        }
        begin = time.perf_counter()
        result = queries[step].collect()
        return time.perf_counter() - begin, result.height


def _partition(number: int, *, rows: int, count: int, seed: int, value: str) -> Any:
    import pandas as pd

    share = slice(rows * number // count, rows * (number + 1) // count)
    return pd.DataFrame({name: column[share].copy() for name, column in columns(rows, seed, value).items()})


class _Dask:
    """Dask DataFrame on a cluster of worker processes of one thread."""

    def __init__(self, rows: int, ranks: int) -> None:
        dd: Any = import_module("dask.dataframe")
        distributed: Any = import_module("distributed")
        self._stack = ExitStack()
        cluster = self._stack.enter_context(
            distributed.LocalCluster(
                n_workers=ranks,
                threads_per_worker=1,
                memory_limit=None,
                dashboard_address=None,
                host="127.0.0.1",
                silence_logs=40,
            )
        )
        self._stack.enter_context(distributed.Client(cluster))
        self._frames = {}
        for partitions in PARTITIONS:
            pair = [
                dd.from_map(
                    _partition, range(partitions * ranks), rows=rows, count=partitions * ranks, seed=seed, value=value
                ).persist()
                for seed, value in ((1, "v"), (2, "w"))
            ]
            distributed.wait(pair)
            self._frames[partitions] = pair

    def measure(self, step: str, partitions: int) -> tuple[float, int]:
        distributed: Any = import_module("distributed")
        left, right = self._frames[partitions]
        count = left.npartitions
        begin = time.perf_counter()
        if step == "pipeline":
            joined = left.merge(right, on="k")
            joined = joined.assign(v=joined.v + 1)
            result = joined.groupby("k").agg({"v": "sum"}, split_out=count).reset_index().sort_values("k")
        elif step == "join":
            result = left.merge(right, on="k")
        elif step == "group by":
            result = left.groupby("k").agg({"v": "sum"}, split_out=count)
        elif step == "sort":
            result = left.sort_values("k")
        else:
            result = left.drop_duplicates("k", split_out=count)
        result = result.persist()
        distributed.wait(result)
        took = time.perf_counter() - begin
        return took, len(result)

    def __enter__(self) -> _Dask:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
