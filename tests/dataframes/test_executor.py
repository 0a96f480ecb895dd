"""Programs on processes: results, errors, and deaths of ranks and of the executor's process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import polars as pl
import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument, ObjectNotFound
from entrepot_frames import Env, Executor, RankFailed
from polars.testing import assert_frame_equal


@pytest.fixture(scope="module")
def executor(store: entrepot.Store) -> Iterator[Executor]:
    """Two ranks."""
    with Executor(2, store=store) as opened:
        yield opened


def test_results_come_in_the_order_of_ranks(executor: Executor) -> None:
    def program(env: Env, factor: int, *, plus: int) -> tuple[int, int]:
        return env.rank * factor + plus, os.getpid()

    results = executor.run(program, 10, plus=1).result(60)
    assert [value for value, _ in results] == [1, 11]
    assert len({pid for _, pid in results} | {os.getpid()}) == 3


def test_tables_come_back_as_they_are(executor: Executor) -> None:
    tables = executor.run(lambda env: env.from_local({"n": [env.rank] * 3}).to_arrow()).result(60)
    assert [table.to_pydict() for table in tables] == [{"n": [0] * 3}, {"n": [1] * 3}]
    assert isinstance(tables[0], pa.Table)


def test_an_object_on_each_rank_lives_from_task_to_task(executor: Executor) -> None:
    class Counter:
        def __init__(self, env: Env, start: int) -> None:
            self.env, self.count = env, start

        def add(self, n: int) -> int:
            self.count += n
            return int(self.env.communicator.all_reduce(self.count))

    executor.start(Counter, 100).result(60)
    assert executor.execute(lambda counter, n: counter.add(n), 1).result(60) == [202, 202]
    assert executor.execute(lambda counter, n: counter.add(n), 4).result(60) == [210, 210]


def test_tasks_are_done_one_after_another(executor: Executor) -> None:
    futures = [executor.run(lambda env, n: env.communicator.all_reduce(n), number) for number in range(8)]
    assert [future.result(60) for future in futures] == [[2 * number] * 2 for number in range(8)]


def test_an_exception_is_raised_with_rank_and_phase(executor: Executor) -> None:
    def program(env: Env) -> int:
        env.communicator.barrier()
        if env.rank == 1:
            raise ArithmeticError("no luck")
        return env.from_local({"k": [1]}).repartition("k").count_rows()

    with pytest.raises(ArithmeticError, match="no luck") as caught:
        executor.run(program).result(60)
    if sys.version_info >= (3, 11):
        # The number counts the operations of all programs since the last failure.
        assert re.match(r"on rank 1 in operation \d+:", "".join(caught.value.__notes__))
    assert executor.run(lambda env: env.communicator.all_reduce(1)).result(60) == [2, 2]


def test_an_error_of_all_ranks_is_raised_as_it_is(executor: Executor) -> None:
    with pytest.raises(InvalidArgument, match="'nope'"):
        executor.run(lambda env: env.from_local({"k": [1]}).repartition("nope").to_polars()).result(60)
    with pytest.raises(InvalidArgument, match=r"to_arrow\(\)"):
        executor.run(lambda env: env.from_local({"k": [1]})).result(60)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_rank_fails_the_program_and_is_started_again(store: entrepot.Store, number: signal.Signals) -> None:
    def program(env: Env, victim: int) -> int:
        rows = env.from_local({"k": list(range(1000))}).repartition("k")
        rows.to_polars()
        if env.rank == victim:
            os.kill(os.getpid(), number)
        return rows.drop_duplicates().sort_values("k").count_rows()

    with Executor(3, store=store) as executor:
        began = time.monotonic()
        with pytest.raises(RankFailed, match=f"rank 1 failed in .*killed by {number.name}") as caught:
            executor.run(program, 1).result(60)
        assert caught.value.rank == 1
        assert caught.value.phase
        assert time.monotonic() - began < 50  # a watchdog: it does not wait for the time-out of operations
        assert executor.run(program, -1).result(60) == [1000] * 3


def test_a_rank_that_does_not_react_to_a_failure_is_ended(store: entrepot.Store, monkeypatch: Any) -> None:
    monkeypatch.setattr("entrepot_frames.executors.executor.FAIL_SECONDS", 0.5)

    def program(env: Env) -> None:
        if env.rank == 0:
            raise ArithmeticError("no luck")
        time.sleep(600)

    with Executor(2, store=store) as executor:
        with pytest.raises(RankFailed, match="did not react"):
            executor.run(program).result(60)
        assert executor.run(lambda env: env.rank).result(60) == [0, 1]


def test_a_program_goes_on_from_its_checkpoint(store: entrepot.Store, tmp_path: Path) -> None:
    def program(env: Env, folder: str, die: bool) -> list[int]:
        def counted(rows: pl.DataFrame) -> pl.DataFrame:
            Path(folder, f"{env.rank}-{time.monotonic_ns()}").touch()
            return rows

        rows = env.from_local({"k": [env.rank, 7]}).map_partitions(counted).drop_duplicates()
        saved = env.checkpoint(rows, "distinct")
        saved.to_polars()
        if die and env.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        total = saved.count_rows()
        env.forget("distinct")
        return [total]

    with Executor(2, store=store) as executor:
        with pytest.raises(RankFailed):
            executor.run(program, str(tmp_path), True).result(60)
        assert len(list(tmp_path.iterdir())) == 2
        assert executor.run(program, str(tmp_path), False).result(60) == [[3], [3]]
        assert len(list(tmp_path.iterdir())) == 2  # it was not computed again
    with pytest.raises(ObjectNotFound):
        store.resolve("distinct")


def test_a_closed_executor_leaves_nothing(store: entrepot.Store) -> None:
    before = {session.session for session in store.sessions()}
    executor = Executor(2, store=store)
    pids = executor.run(lambda env: os.getpid()).result(60)
    executor.close()
    executor.close()
    assert {session.session for session in store.sessions()} == before
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(InvalidArgument, match="closed"):
        executor.run(lambda env: 0)


def test_ranks_end_when_the_executors_process_is_killed(
    store: entrepot.Store, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    before = {session.session for session in store.sessions()}
    program = f"""
        import json, os, time, entrepot
        from pathlib import Path
        from entrepot_frames import Executor

        def run(env):
            file = Path({str(tmp_path)!r}, str(env.rank))
            file.with_suffix(".part").write_text(str(os.getpid()))
            file.with_suffix(".part").rename(file)
            time.sleep(600)

        store = entrepot.connect({store.address!r}, scope="frames")
        Executor(2, store=store).run(run).result()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    try:
        wait_until(lambda: {"0", "1"} <= {file.name for file in tmp_path.iterdir()}, "the ranks to begin")
    finally:
        process.kill()
        process.wait()
    pids = [int((tmp_path / rank).read_text()) for rank in "01"]
    wait_until(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids), "the ranks to end")
    wait_until(lambda: {session.session for session in store.sessions()} == before, "their session to go")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parallelism": 0}, "parallelism=0"),
        ({"timeout": -1}, "timeout=-1"),
        ({"threads": 0}, "threads=0"),
        ({"on": "mars"}, "mars"),
    ],
)
def test_bad_arguments_are_refused(store: entrepot.Store, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Executor(**{"parallelism": 1, "store": store, **arguments})


def test_what_cannot_be_sent_is_refused(executor: Executor) -> None:
    with pytest.raises(InvalidArgument, match="cannot be sent"):
        executor.run(lambda env, lock: 0, threading.Lock())
    with pytest.raises(InvalidArgument, match="cannot be called"):
        executor.run(3)  # type: ignore[arg-type]


# --- what programs read and store


def test_each_rank_reads_a_part_of_parquet_files(executor: Executor, tmp_path: Path) -> None:
    for number, count in enumerate([10, 0, 1, 22]):
        rows = {"n": range(100 * number, 100 * number + count), "m": [number] * count}
        pl.DataFrame(rows, schema={"n": pl.Int64, "m": pl.Int64}).write_parquet(tmp_path / f"{number}.parquet")
    expected = pl.concat([pl.read_parquet(file) for file in sorted(tmp_path.iterdir())])

    def program(env: Env, path: Any, columns: Any) -> pl.DataFrame:
        return env.read_parquet(path, columns=columns).to_polars()

    for path in [str(tmp_path), str(tmp_path / "*.parquet"), [str(tmp_path / f"{n}.parquet") for n in range(4)]]:
        parts = executor.run(program, path, None).result(60)
        assert [part.height for part in parts] == [16, 17]
        assert_frame_equal(pl.concat(parts), expected)
    assert pl.concat(executor.run(program, str(tmp_path), ["m"]).result(60)).columns == ["m"]
    with pytest.raises(ObjectNotFound, match="nothing"):
        executor.run(program, str(tmp_path / "nothing.parquet"), None).result(60)


def test_a_stored_frame_is_a_collection_and_is_read_by_any_number_of_ranks(
    store: entrepot.Store, executor: Executor
) -> None:
    def write(env: Env, replace: bool) -> None:
        rows = env.from_local({"rank": [env.rank] * (env.rank + 1), "n": range(env.rank + 1)})
        env.put("ranks", rows, replace=replace)

    def read(env: Env) -> pl.DataFrame:
        return env.get("ranks").to_polars()

    executor.run(write, False).result(60)
    executor.run(write, True).result(60)
    expected = pl.DataFrame({"rank": [0, 1, 1], "n": [0, 0, 1]})
    collection = store.get_by_name("ranks")
    assert len(collection) == 2
    assert_frame_equal(collection.to_polars(), expected)
    for size in (1, 2, 3, 5):
        with Executor(size, store=store) as other:
            assert_frame_equal(pl.concat(other.run(read).result(60)), expected)
    store.put(pa.table({"n": [1, 2, 3]}), name="table")
    assert executor.run(lambda env: env.get("table").count_rows()).result(60) == [3, 3]
    with pytest.raises(ObjectNotFound):
        executor.run(lambda env: env.get("nobody").count_rows()).result(60)


def test_results_in_other_libraries(executor: Executor) -> None:
    def program(env: Env) -> tuple[Any, ...]:
        rows = env.from_local({"n": [env.rank, 5], "x": [0.5, 1.5]})
        gathered = rows.gather()
        return rows.to_pandas()["n"].tolist(), rows.to_numpy()["x"].tolist(), gathered

    first, second = executor.run(program).result(60)
    assert (first[0], first[1], second[2]) == ([0, 5], [0.5, 1.5], None)
    assert first[2]["n"].to_list() == [0, 5, 1, 5]


def test_importing_the_package_imports_no_dataframe_library() -> None:
    program = "import sys, json, entrepot_frames; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not {"polars", "pyarrow", "cloudpickle", "numpy"} & set(json.loads(done.stdout))
