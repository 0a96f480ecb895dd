"""The timers and counters around an orchestrator's calls."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from examples.flights.measure import stored
from examples.flights.measure.meter import FOLDER_VARIABLE, Call, CallTotals, Meter, read_calls


def test_call_records_time_and_bytes(tmp_path: Path) -> None:
    meter = Meter(tmp_path / "meter")
    with meter.call("write", "joined"):
        (tmp_path / "value").write_bytes(b"x" * 100_000)
        time.sleep(0.02)
    with meter.call("read", "joined"):
        (tmp_path / "value").read_bytes()
    written, read = read_calls(tmp_path / "meter")
    assert (written.direction, written.what) == ("write", "joined")
    assert 0.02 <= written.seconds < 5
    assert 100_000 <= written.written < 101_000
    assert written.read < 2000
    assert 100_000 <= read.read < 102_000


def test_call_that_raises_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), Meter(tmp_path).call("write", "joined"):
        raise OSError("full")
    assert read_calls(tmp_path) == []


def test_answer_is_not_shared(tmp_path: Path) -> None:
    with Meter(tmp_path).call("write", "report"):
        pass
    assert read_calls(tmp_path) == []


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with Meter.from_environment().call("write", "joined"):
        pass
    assert list(tmp_path.iterdir()) == []


def _record(folder: Path, name: str) -> None:
    with Meter(folder).call("write", name):
        pass


def test_processes_record_side_by_side(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_record, args=(tmp_path, f"value{number}")) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(call.what for call in read_calls(tmp_path)) == ["value0", "value1", "value2"]


def test_sums() -> None:
    calls = [
        Call("write", "a", 1.5, 100, 5, 0.0, 1),
        Call("write", "b", 0.5, 50, 0, 1.0, 1),
        Call("read", "a", 0.25, 1, 100, 2.0, 2),
    ]
    sums = CallTotals.of(calls)
    assert sums == CallTotals(writes=2, reads=1, write_seconds=2.0, read_seconds=0.25, written=151, read=105)


def test_blobs_are_counted_once(tmp_path: Path) -> None:
    stored.write_blobs(tmp_path, [stored.Blob(1, 1, 1000), stored.Blob(2, 1, 24)])
    stored.write_blobs(tmp_path, [stored.Blob(1, 1, 1000), stored.Blob(1, 2, 7)])
    stored.write_blobs(tmp_path, [])
    assert stored.copied_bytes(stored.read_blobs(tmp_path)) == 1031
