"""The benchmarks run, stop what they start, and report what they measured."""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.commands.quick import compare, comparison
from benchmarks.commands.quick import run as quick
from benchmarks.harness import environments
from benchmarks.harness.figures import FIRST, FREE, SAME_CORE, WARM, Collector, Key, Row, median, quantile
from benchmarks.harness.packages import Package, clean_environment, developers
from benchmarks.harness.paired_blocks import Ratio, ratio_of
from benchmarks.harness.plan import FULL, GIB, MIB, size_name
from benchmarks.harness.processes import WorkerFailed
from benchmarks.harness.stage import SystemsUnderTest, running_system
from benchmarks.harness.text import bytes_text, grid, time_text
from benchmarks.reports.goals import goals
from benchmarks.reports.report import page, write
from benchmarks.reports.table_handoff import goal_table
from benchmarks.systems import ENTREPOT, SYSTEMS, by_name
from benchmarks.systems.base import Unavailable, descendants
from benchmarks.table_handoff import tasks
from benchmarks.workloads import profiles

ROOT = Path(__file__).resolve().parents[2]
PEERS = sorted((ROOT / "benchmarks/peers").glob("*.txt"))


def _row(group: str, state: str, operation: str, use: str, cpus: str, system: str, seconds: float) -> dict[str, Any]:
    key = Key(group, state, operation, use, cpus, system)
    row = Row(key, nbytes=1 << 20, samples=3, rounds=1, median=seconds, p5=seconds, p95=seconds, p99=seconds)
    return row.to_json()


@pytest.fixture
def recorded() -> dict[str, Any]:
    """A small result, as recorded by a run."""
    return {
        "machine": {"cpu": "a processor", "cores": 2},
        "commit": {"commit": "0123456789abcdef", "subject": "x", "changed files": 0, "date": "2026-01-01 00:00 UTC"},
        "command": "python -m benchmarks full",
        "build": "release build",
        "seconds": 600,
        "rows": [
            _row("small", "bytes 1 KiB", "get", WARM, FREE, "entrepot", 2e-6),
            _row("small", "bytes 1 KiB", "get", WARM, FREE, "plasma", 26e-6),
            _row("small", "bytes 1 KiB", "get", WARM, SAME_CORE, "entrepot", 1e-6),
            _row("small", "bytes 1 KiB", "put", WARM, FREE, "entrepot", 4e-6),
            _row("small", "bytes 1 KiB", "put", WARM, FREE, "plasma raw", 16e-6),
            _row("large", "int64 array 1 MiB", "put", FIRST, FREE, "entrepot", 3e-3),
            _row("large", "int64 array 1 MiB", "put", WARM, FREE, "entrepot", 1e-3),
            _row("large", "int64 array 1 MiB", "put", WARM, FREE, "limit: memcpy, 4 KiB pages", 0.95e-3),
        ],
        "missing": {"ray": "no wheel for this machine"},
        "failures": [["redis", "array", "connection refused"]],
        "versions": {"plasma": {"pyarrow": "11.0.0", "place": "/somewhere"}},
        "costs": [
            {
                "system": "entrepot",
                "start": 0.1,
                "idle_cpu": 0.0,
                "idle_private": 2 * MIB,
                "processes": 2,
                "import_time": 0.007,
            }
        ],
        "system calls": {
            "calls": [{"system": "entrepot", "operation": "get", "client": {}, "server": {}}],
            "absent": "",
        },
        "scaling": {
            "fragmentation": {
                "capacity": GIB,
                "points": [[10, GIB, GIB // 2, GIB * 3 // 4, 5]],
                "refused": 0,
                "puts": 10,
                "bytes": MIB,
                "seconds": 1.0,
                "large": GIB // 4,
                "large_seconds": 0.25,
            }
        },
    }


def test_quantiles_lie_between_the_samples() -> None:
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.25) == 1.25
    assert median([3.0, 1.0, 2.0]) == 2.0
    with pytest.raises(ValueError, match="nothing"):
        quantile([], 0.5)


def test_ratios_of_paired_blocks_have_an_interval_that_grows_with_the_noise() -> None:
    steady = [[2.0, 2.0, 2.0]] * 20
    assert ratio_of(steady, [[4.0, 4.0, 4.0]] * 20, 0.5) == Ratio(0.5, 0.5, 0.5)
    noisy = [[1.0], [3.0]] * 10
    ratio = ratio_of(noisy, [[2.0]] * 20, 0.5)
    assert ratio.low < ratio.value < ratio.high
    assert str(ratio) == f"1.00 ({ratio.low:.2f} to {ratio.high:.2f})"
    # What slows both blocks of a pair leaves the ratio alone.
    slowed = [[float(pair)] * 3 for pair in range(1, 21)]
    assert ratio_of(slowed, slowed, 0.99) == Ratio(1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="20 and 1"):
        ratio_of(steady, steady[:1], 0.5)


def test_turns_are_put_together_and_cases_stay_together() -> None:
    collector = Collector()
    put, get = (Key("small", "bytes", operation, WARM, FREE, "entrepot") for operation in ("put", "get"))
    other = Key("small", "bytes", "put", WARM, FREE, "plasma")
    collector.add(put, [1000.0, 3000.0], cpu_ns=500.0, foreign=0.2)
    collector.add(get, [10.0])
    collector.add(other, [7.0])
    collector.add(put, [2000.0], cpu_ns=700.0, foreign=0.4)
    rows = collector.rows()
    assert [row.key for row in rows] == [put, other, get]
    assert (rows[0].median, rows[0].samples, rows[0].rounds) == (2e-6, 3, 2)
    assert rows[0].cpu == pytest.approx(600e-9)
    assert rows[0].foreign == 0.3
    assert Row.from_json(json.loads(json.dumps(rows[0].to_json()))) == rows[0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1.50 s"), (0.0123, "12.3 ms"), (1e-6, "1.00 us"), (0.9999e-6, "1.00 us"), (12.3e-9, "12.3 ns"), (0.0, "0")],
)
def test_times_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_sizes_have_names() -> None:
    assert (size_name(GIB), size_name(3 * MIB), size_name(1000)) == ("1 GiB", "3 MiB", "1000 bytes")
    assert bytes_text(1536 * 1024) == "1.5 MiB"


def test_a_plan_is_cut_down_to_the_memory_there_is() -> None:
    assert FULL.fitted(64 * GIB).large_bytes == GIB
    small = FULL.fitted(2 * GIB)
    assert small.large_bytes == 256 * MIB
    assert small.scale_bytes == 2 * GIB // 6


def test_columns_without_content_are_left_out() -> None:
    assert grid(["a", "b", "c"], [["1", "", "3"]]).splitlines() == ["| a   |   c |", "|-----|----:|", "| 1   |   3 |"]


def test_the_report_tells_figures_ratios_and_what_is_missing(recorded: dict[str, Any]) -> None:
    text = page(recorded, ["plots/fragmentation.png"])
    assert "`python -m benchmarks full` at commit `0123456789ab`" in text
    plasma = next(line for line in text.splitlines() if line.startswith("| plasma "))
    assert [cell.strip() for cell in plasma.split("|")][2:6] == ["26.0 us", "26.0 us .. 26.0 us", "26.0 us", "13.00"]
    assert "**ray** could not be had on this machine: no wheel for this machine" in text
    assert "**redis** was given up at `array`: connection refused" in text
    assert "pyarrow 11.0.0" in text
    assert "/somewhere" not in text
    words = " ".join(text.split())
    assert "the largest free extent is 512.0 MiB: 0.50 of it" in words
    assert "leased 768.0 MiB in one piece, 0.75 of it" in words
    assert "Such a client then put one array of 256.0 MiB in 250 ms." in words
    assert "![fragmentation](plots/fragmentation.png)" in text


def test_goals_are_judged_by_the_figures(recorded: dict[str, Any]) -> None:
    goals_by_name = {goal.what: goal for goal in goals(recorded)}
    assert goals_by_name["get 1 KiB bytes, Python, median"].met is False
    assert goals_by_name["put 1 KiB over Plasma's raw put, cores: free"].reached == "0.25"
    assert goals_by_name["put 1 KiB over Plasma's raw put, cores: free"].met is True
    assert goals_by_name["put int64 array 1 MiB over the best copy measured"].met is True
    assert goals_by_name["first put int64 array 1 MiB, as by default, over the best copy"].met is False
    assert goals_by_name["get 1 KiB, C++"].met is None


def test_what_lies_beyond_memory_is_told_and_judged(recorded: dict[str, Any]) -> None:
    order = {"seconds": 2.0, "lost": 0, "wrong": 0}
    line = {
        "system": "entrepot",
        "count": 64,
        "put": 1.0,
        "orders": dict.fromkeys(("sequential", "reverse", "random"), order),
    }
    lost = {"orders": dict.fromkeys(("sequential", "reverse", "random"), order | {"lost": 20})}
    policies = [
        {"order": "sequential", "policy": "data aware, declared", "seconds": 1.0, "read": 100},
        {"order": "sequential", "policy": "LRU", "seconds": 1.5, "read": 190},
    ]
    load = {"copied": 1e9, "written": 1e9, "read": 1e9}
    times = {"p50": 2e-6, "samples": 100}
    recorded["beyond"] = {
        "volume": {
            "capacity": GIB,
            "nbytes": 64 * MIB,
            "lines": [
                line | {"times": 2},
                line | {"times": 4, **lost},
                line | {"times": 4, "system": "plasma", **lost},
            ],
        },
        "disk": {
            "bytes": GIB,
            "blob": 64 * MIB,
            "spill_write": 1.0,
            "plain_write": 0.95,
            "plain_write_one_thread": 1.0,
            "spill_read": 1.0,
            "plain_read": 0.8,
            "plain_read_one_thread": 1.0,
        },
        "policies": policies,
        "latency": {
            "alone": times | {"p99": 3e-6},
            "spilling": times | {"p99": 30e-6},
            "plain": times | {"p99": 10e-6},
            "moved": load,
            "made": load,
        },
        "restart": {
            "bytes": GIB,
            "objects": 1000,
            "connected": 0.1,
            "put": 0.2,
            "got": 0.2,
            "got_large": 0.3,
            "worst": 0.4,
            "touched": MIB,
        },
        "checkpoints": [{"target": "folder", "what": "save beside plain write", "ours": 900.0, "plain": 1000.0}],
        "failures": {},
    }
    goals_by_name = {goal.what: (goal.reached, goal.met) for goal in goals(recorded)}
    assert goals_by_name["2 times the memory, three orders: lost or wrong"] == ("0", True)
    assert goals_by_name["4 times the memory, three orders: lost or wrong"] == ("60", False)
    assert goals_by_name["spill over plain direct I/O"] == ("0.95", True)
    assert goals_by_name["reload over plain direct I/O"] == ("0.80", False)
    assert goals_by_name["loop over twice the memory, LRU over data aware, declared, time or bytes"] == ("1.90", True)
    assert goals_by_name["random reads of twice the memory, LRU over data aware, bytes"][1] is None
    assert goals_by_name["get 1 KiB while spilling over beside a plain load, 99 %"] == ("3.00", False)
    assert goals_by_name["first put and gets after the daemon's kill, worst"][1] is True
    assert goals_by_name["checkpoint, folder: save beside plain write"] == ("0.90", True)
    text = page(recorded, [])
    assert "with 1.0 GiB and 1,000 objects resident" in text
    assert len([row for row in text.splitlines() if row.startswith("| plasma ") and "20" in row]) == 1


def test_puts_without_a_copy_are_told_and_judged(recorded: dict[str, Any]) -> None:
    names = {goal.what for goal in goals(recorded)}
    assert "Parquet file to shared table, decoding and copying as Arrow IPC over ours" in names, "even if not measured"
    ours = {"bytes": [128.0 * MIB] * 4, "seconds": [0.1, 0.1, 0.1, 0.2], "making": [0.05] * 4}
    peer = {"bytes": [n * 128.0 * MIB for n in (9, 10, 11, 12)], "seconds": [0.5] * 4, "making": [0.05] * 4}
    reader = {"decoders": 25.0, "seconds": 8.0, "sharing": 0.2, "peak": 1e8, "peaks": 25e8, "store": 0.0, "copy": 0.0}
    store = {"decoders": 1.0, "seconds": 1.0, "sharing": 0.1, "peak": 1e7, "peaks": 1e7, "store": 1e8, "copy": 0.0}
    reader, store = reader | {"cpu": 12.0}, store | {"cpu": 1.5}
    seal = {"value": "pandas", "bytes": GIB, "pages": "shared, 2 MiB", "encoding": 1e-4}
    recorded["zero-copy"] = {
        "pipeline": {"bytes": GIB, "column": 128 * MIB, "Entrepot": ours, "Arrow IPC": peer},
        "column": {"bytes": 128 * MIB, "pages": "shared, 4 KiB", "store": 4e-3, "process": 10e-3},
        "seal": [seal | {"store": 1.2e-3, "process": 0.1}],
        "decoding": {"many": {"Entrepot": store, "PyArrow": reader}, "one": {"Entrepot": store, "PyArrow": reader}},
        "failures": {},
    }
    by_name = {goal.what: (goal.reached, goal.met) for goal in goals(recorded)}
    stored = "pipeline that adds columns: bytes stored in a step over the new column, most"
    assert by_name[stored] == ("1.00", True)
    assert by_name["the same: time of the last three steps over that of the first three"] == ("1.33", False)
    assert by_name["put of a table with a new column, made in the store, 128.0 MiB"][1] is True, "5 ms in small pages"
    assert by_name["put of a value made in the store, pandas, 1.0 GiB"] == ("1.20 ms", False)
    assert by_name["one Parquet file read by 25 processes, PyArrow's time over ours"] == ("8.00", True)
    assert by_name["the same without the time in which decoded data is awaited"] == ("2.00", True)
    text = page(recorded, [])
    assert "12.0 s" in text
    assert "8.00" in text, "processor time"
    assert "## Without a copy" in text
    total = next(line for line in text.splitlines() if line.startswith("| all "))
    assert [cell.strip() for cell in total.split("|")][2:5] == ["512.0 MiB", "5.2 GiB", "500 ms"]


def test_a_hand_off_is_told_and_judged(recorded: dict[str, Any]) -> None:
    peak: dict[str, Any] = {"peak_stored": GIB, "peak_leased": 0, "peak_kept": 64 * MIB, "peak_own": GIB // 2}
    line: dict[str, Any] = {
        "orchestrator": "kedro",
        "name": "entrepot",
        "label": "Entrepot",
        "allocate": True,
        "store": "fresh",
    }
    line |= {"sharing": 0.2, "writing": 0.1, "seconds": 3.0, "stored_bytes": GIB, "moved_bytes": 0} | peak
    line |= {"peak": 1.5 * GIB, "idle": 0, "empty": GIB // 2}
    used = line | {"store": "used", "sharing": 0.01}
    pickled = line | {"name": "pickle", "label": "pickle datasets", "store": "", "allocate": False, "sharing": 4.0}
    pickled |= {"peak": 1.2 * GIB}
    figures = {"bytes": GIB, "rounds": 1, "lines": [used, line, pickled]}
    recorded["zero-copy"] = {"handoff": figures, "failures": {}}
    by_name = {goal.what: (goal.reached, goal.met) for goal in goals(recorded)}
    name = "three tasks that hand on a table, "
    assert by_name[f"{name}Kedro: sharing in all"] == ("200 ms", False)
    assert by_name[f"{name}Kedro: peak memory over the table"] == ("1.00", True)
    assert by_name[f"{name}Airflow: sharing in all"] == ("not measured", None)
    assert by_name[f"{name}Kedro: sharing over that of pickle datasets"] == ("0.0500", True)
    assert by_name[f"{name}Kedro: peak memory over that of pickle datasets"] == ("1.25", False)
    assert by_name[f"{name}Kedro: sharing over that of memory"] == ("not measured", None)
    table = goal_table(figures)
    assert "not measured" not in table
    assert [line.split("|")[-2].strip() for line in table.splitlines()[2:]] == ["no", "yes", "yes", "no"]
    assert "Three tasks hand on a table of 1.0 GiB" in page(recorded, [])


def test_goals_of_a_table_of_strings_on_dagster() -> None:
    ours = {"orchestrator": "dagster", "name": "entrepot", "label": "Entrepot", "allocate": True, "store": "fresh"}
    ours |= {"sharing": 0.5, "seconds": 9.0, "peak": 2.0 * GIB, "empty": 0.5 * GIB}
    files = ours | {"name": "files", "label": "files", "allocate": False, "store": "", "sharing": 10.0, "peak": GIB}
    parquet = files | {"name": "parquet", "label": "Parquet", "sharing": 10.0}
    rows = goal_table({"bytes": GIB, "columns": "arrow-strings", "lines": [ours, files, parquet]}).splitlines()[2:]
    reached = {row.split("|")[1].rpartition(", ")[2].strip(): row.split("|")[-2].strip() for row in rows}
    assert reached == {
        "Dagster: peak memory over the table": "no",
        "Dagster: sharing over that of files": "yes",
        "Dagster: peak memory over that of files": "no",
        "Dagster: end to end over files": "yes",
        "Dagster: sharing over that of Parquet": "no",
    }


@pytest.mark.parametrize("kind", tasks.KINDS)
def test_the_tasks_of_the_hand_off_compute_what_is_expected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tasks.KIND_VARIABLE, kind)
    frame = tasks.make(1)
    assert abs(int(frame.memory_usage(deep=True).sum()) - MIB) < MIB / 100
    assert tasks.report(tasks.replace(frame)) == tasks.expected(1)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_table_is_handed_on_and_only_the_new_column_is_stored(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    options = ["--mib", "32", "--orchestrators", "kedro", "--json", str(out)]
    command = [sys.executable, "-m", "benchmarks", "handoff", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = json.loads(out.read_text())["handoff"]["lines"]
    ours = [line for line in lines if line["name"] == "entrepot"]
    assert [(line["allocate"], line["store"]) for line in ours] == [
        (allocate, store) for allocate in (False, True) for store in ("fresh", "used")
    ]
    assert [line["stored_bytes"] // MIB for line in ours] == [36] * 4, "columns that were stored are stored again"
    assert [line["name"] for line in lines if line not in ours] == ["pickle", "memory"]
    for transport in ("pickle datasets", "SharedMemoryDataset"):
        for goal in ("sharing", "peak memory"):
            assert f"Kedro: {goal} over that of {transport}" in done.stdout


def test_the_report_and_its_plots_are_written(recorded: dict[str, Any], tmp_path: Path) -> None:
    write(recorded, tmp_path)
    assert (tmp_path / "benchmarks.md").read_text().startswith("# Benchmarks")
    assert (tmp_path / "plots/fragmentation.png").read_bytes().startswith(b"\x89PNG")


def test_a_comparison_calls_only_clear_differences_by_name() -> None:
    before = {"put": [1.0, 1.1, 1.2, 1.3], "get": [1.0, 1.1, 1.2, 1.3]}
    after = {"put": [2.0, 2.1, 2.2, 2.3], "get": [1.05, 1.1, 1.2, 1.4]}
    lines = comparison({"a": before, "b": after}).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["slower", "same"]


@pytest.mark.parametrize("path", PEERS, ids=lambda path: path.stem)
def test_peers_are_pinned_and_name_no_index(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)] == []
    assert any(re.fullmatch(r"# python: 3\.\d+", line) for line in lines)
    assert not any("://" in line for line in lines)


def test_every_peer_has_its_requirements() -> None:
    required = {system.environment for system in SYSTEMS if system.environment}
    assert required == {path.stem for path in PEERS}


def test_a_peer_that_cannot_be_had_is_told_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lmdb.txt").write_text("# python: 3.0.99\nlmdb==3.0.0\n")
    monkeypatch.setattr(environments, "PEERS", tmp_path)
    monkeypatch.setattr(environments, "PLACE", tmp_path / "envs")
    under_test = SystemsUnderTest(Package("none", sys.executable, clean_environment(), None))
    assert under_test.prepare(by_name(["lmdb"])) == []
    assert "3.0.99" in under_test.missing["lmdb"]


def test_an_unknown_system_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'plasmaa'.*entrepot, "):
        by_name(["plasmaa"])


def test_a_line_of_strace_is_understood() -> None:
    rows = [
        "  0.00    0.000000           0       200           sendmsg",
        " 80.1 0.02 1 400 3 recvmsg",
        "100.00 0.1 600 total",
    ]
    matches = [profiles.STRACE_ROW.match(row) for row in rows[:2]]
    assert [(match[1], match[2]) for match in matches if match] == [("200", "sendmsg"), ("400", "recvmsg")]


def _fail_on_the_way(under_test: SystemsUnderTest, record: dict[str, Any]) -> None:
    with running_system(under_test, ENTREPOT, 128 * MIB) as running:
        worker = running.worker()
        record["folder"] = running.folder
        record["pids"] = [worker.pid, *running.server.pids()]
        worker.call("value", kind="nonsense", nbytes=1)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_whatever_happens_a_system_is_ended() -> None:
    under_test = SystemsUnderTest(developers())
    under_test.prepare([ENTREPOT])
    record: dict[str, Any] = {}
    with pytest.raises(WorkerFailed, match="nonsense"):
        _fail_on_the_way(under_test, record)
    assert len(record["pids"]) == 3  # worker, keeper, daemon
    assert [pid for pid in record["pids"] if Path(f"/proc/{pid}").exists()] == []
    assert not record["folder"].exists()


def test_a_server_that_does_not_come_up_says_why() -> None:
    under_test = SystemsUnderTest(developers())
    under_test.prepare([ENTREPOT])
    with pytest.raises(Unavailable, match="size"), running_system(under_test, ENTREPOT, 1):
        pass


@pytest.mark.exhaustive
def test_a_run_that_is_told_to_end_leaves_nothing_behind(tmp_path: Path, wait_until: Callable[..., None]) -> None:
    options = ["--plan", "tiny", "--build", "developers", "--systems", "entrepot", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks", "full", *options, "--only", "large"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    family: list[int] = []

    def complete() -> bool:
        family[:] = descendants(process.pid)
        return any("benchmarks.harness.worker" in _command_line(pid) for pid in family)

    try:
        wait_until(complete, "a worker process")
        family.extend(pid for parent in family[1:] for pid in descendants(parent))
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not any(_command_line(pid) for pid in family), "the end of all that it started")


@pytest.mark.exhaustive
def test_a_run_measures_the_store_beside_files_and_limits(tmp_path: Path) -> None:
    systems = ["entrepot", "pickle 5 on tmpfs", "limit: row in a map"]
    options = ["--plan", "tiny", "--build", "developers", "--out", str(tmp_path)]
    groups = ["small", "many", "large", "together"]
    command = [sys.executable, "-m", "benchmarks", "full", *options, "--systems", *systems, "--only", *groups]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "latest.json").read_text())
    assert result["failures"] == []
    assert result["missing"] == {}
    cases: dict[tuple[str, ...], set[str]] = {}
    for row in map(Row.from_json, result["rows"]):
        assert 0 < row.best <= row.median <= row.p95 <= row.p99
        cases.setdefault(row.key.case, set()).add(row.key.system)
    for cpus in (FREE, SAME_CORE):
        for operation in ("put", "get"):
            assert set(systems) <= cases["small", "bytes 1 KiB", operation, WARM, cpus]
    assert "limit: socket round trip" in cases["small", "bytes 1 KiB", "put", WARM, FREE]
    assert "entrepot from C++" in cases["small", "bytes 1 KiB", "get", WARM, FREE]
    assert "limit: memcpy, 4 KiB pages" in cases["large", "int64 array 4 MiB", "put", WARM, FREE]
    for operation in ("get", "first sum", "second sum"):
        assert {"entrepot", "pickle 5 on tmpfs"} <= cases["large", "table of 7 columns 4 MiB", operation, FIRST, FREE]
    assert result["overheads"][0]["objects"] == 400
    assert "## Goals" in (tmp_path / "benchmarks.md").read_text()
    assert result["machine"]["cores"] >= 1


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_views_are_measured(tmp_path: Path) -> None:
    result = tmp_path / "views.json"
    options = ["--objects", "1000", "--seconds", "1", "--settle", "0", "--json", str(result)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "views", *options], cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(result.read_text())
    assert document["figures"].keys() >= {"refresh, median, ms", "entrepot top, % of a core"}
    assert all(figure > 0 for figure in document["figures"].values())
    assert all(name in done.stdout for name in document["figures"])


@pytest.mark.exhaustive
def test_growth_is_measured_to_its_end(tmp_path: Path) -> None:
    systems = ["entrepot", "pickle 5 on tmpfs"]
    options = ["--plan", "tiny", "--build", "developers", "--out", str(tmp_path), "--objects", "1500"]
    command = [sys.executable, "-m", "benchmarks", "full", *options, "--systems", *systems, "--only", "scaling"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    scaling = json.loads((tmp_path / "latest.json").read_text())["scaling"]
    assert [point["objects"] for point in scaling["objects"]] == [1, 10, 100, 1000, 1500]
    assert [point["clients"] for point in scaling["clients"]] == [1, 2, 4]
    assert {name: points[-1]["bytes"] for name, points in scaling["sizes"].items()} == {
        "entrepot": 4 * MIB,
        "pickle 5 on tmpfs": 4 * MIB,
        "limit: memcpy": 4 * MIB,
    }
    assert scaling["fragmentation"]["puts"] == 300
    assert all(0 < largest <= free for _, free, largest, _, _ in scaling["fragmentation"]["points"])
    assert scaling["fragmentation"]["large_seconds"] > 0
    assert {path.stem for path in (tmp_path / "plots").iterdir()} == {"objects", "clients", "sizes", "fragmentation"}


def _tiny_run(group: str, out: Path) -> dict[str, Any]:
    """Measure one group of Entrepot's own, without failures; return what was found."""
    options = ["--plan", "tiny", "--build", "developers", "--out", str(out), "--systems", "entrepot"]
    command = [sys.executable, "-m", "benchmarks", "full", *options, "--only", group]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((out / "latest.json").read_text())[group]
    assert result["failures"] == {}
    return result


@pytest.mark.exhaustive
def test_what_lies_beyond_memory_is_measured_and_nothing_is_lost(tmp_path: Path) -> None:
    beyond = _tiny_run("beyond", tmp_path)
    assert [(row["system"], row["times"]) for row in beyond["volume"]["lines"]] == [("entrepot", 2), ("entrepot", 4)]
    for row in beyond["volume"]["lines"]:
        assert {(order["lost"], order["wrong"]) for order in row["orders"].values()} == {(0, 0)}
    assert {row["order"] for row in beyond["policies"]} == {"sequential", "random"}
    assert all(row["read"] > 0 for row in beyond["policies"])
    assert beyond["latency"]["moved"]["written"] > 0
    assert beyond["restart"]["objects"] == 1004
    assert beyond["restart"]["touched"] < beyond["restart"]["bytes"], "payload was read"
    assert {row["target"] for row in beyond["checkpoints"]} == {"folder", "s3"}
    assert "## Beyond memory" in (tmp_path / "benchmarks.md").read_text()


@pytest.mark.exhaustive
def test_puts_without_a_copy_are_measured_and_store_only_what_is_new(tmp_path: Path) -> None:
    result = _tiny_run("zero-copy", tmp_path)
    pipeline = result["pipeline"]
    assert len(pipeline["Entrepot"]["bytes"]) == 10
    assert max(pipeline["Entrepot"]["bytes"]) <= 1.01 * pipeline["column"], "what was stored already is stored again"
    assert min(pipeline["Arrow IPC"]["bytes"]) > pipeline["bytes"]
    assert [line["value"] for line in result["seal"]] == ["numpy", "pandas", "arrow"]
    assert result["decoding"]["many"]["Entrepot"]["decoders"] == 1
    assert result["decoding"]["many"]["PyArrow"]["decoders"] == 25
    assert "## Without a copy" in (tmp_path / "benchmarks.md").read_text()


@pytest.mark.slow
def test_a_get_makes_no_system_call_and_a_put_only_what_it_cannot_avoid() -> None:
    under_test = SystemsUnderTest(developers())
    calls, reason = profiles.system_calls(under_test, under_test.prepare([ENTREPOT]))
    if reason:
        pytest.skip(reason)
    assert [call.operation for call in calls] == ["put", "get"]
    put, get = calls
    assert sum(get.client.values()) == 0
    assert sum(get.server.values()) == 0
    assert put.client["getrandom"] >= 1  # its ID
    assert sum(put.server.values()) > 0  # the daemon looks at its sockets, and sleeps


@pytest.mark.exhaustive
def test_a_commit_is_compared_with_itself() -> None:
    packages = {"before": developers(), "after": developers()}
    samples = compare(packages, rounds=2)
    assert list(samples) == ["before", "after"]
    assert set(samples["before"]) == set(samples["after"])
    assert all(len(turns) == 2 and min(turns) > 0 for turns in samples["after"].values())
    assert "put bytes 1 KiB" in comparison(samples)


def test_where_there_is_no_other_commit_it_says_so_and_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, shallow = tmp_path / "source", tmp_path / "shallow"
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "--quiet", str(source)], check=True)
    for number in range(2):
        (source / "file").write_text(str(number))
        subprocess.run([*git, "-C", str(source), "add", "file"], check=True)
        subprocess.run([*git, "-C", str(source), "commit", "--quiet", "-m", str(number)], check=True)
    subprocess.run([*git, "clone", "--quiet", "--depth", "1", source.as_uri(), str(shallow)], check=True)
    monkeypatch.setattr("benchmarks.harness.packages.ROOT", shallow)
    assert quick(argparse.Namespace(against="HEAD~1", rounds=1, out=tmp_path / "out")) == 0
    output = capsys.readouterr().out
    assert "nothing to compare with" in output
    assert "HEAD~1" in output
    assert not (tmp_path / "out").exists()
