"""The event log: complete lines in order, bounded, written by many processes at once."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from entrepot_policy.rules.match_target import Task
from entrepot_policy.state.events import Event, EventLog, follow, log_file, older_file, read_events

WRITER = """
import sys
from entrepot_policy.state.events import EventLog
log = EventLog("tests", sys.argv[1], max_bytes=int(sys.argv[3]))
for number in range(200):
    log.add("reloaded", key=f"{sys.argv[2]}-{number}", text="x" * 50)
"""


def test_many_writers_and_no_torn_line(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", WRITER, str(tmp_path), str(i), str(10 << 20)] for i in range(4)]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(60) for process in processes] == [0] * 4
    keys = [event.key for event in read_events(log_file("tests", tmp_path))]
    assert sorted(keys) == sorted(f"{i}-{number}" for i in range(4) for number in range(200))
    for i in range(4):
        mine = [key for key in keys if key.startswith(f"{i}-")]
        assert mine == [f"{i}-{number}" for number in range(200)]


def test_it_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", WRITER, str(tmp_path), str(i), "20000"] for i in range(3)]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(60) for process in processes] == [0] * 3
    path = log_file("tests", tmp_path)
    assert path.stat().st_size + older_file(path).stat().st_size <= 20_000
    assert set(path.parent.iterdir()) == {path, older_file(path)}
    keys = [event.key for event in read_events(path)]
    assert any(key.endswith("-199") for key in keys)
    assert len(keys) > 20


def test_two_processes_that_find_it_full_turn_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, other = (EventLog("tests", tmp_path, max_bytes=8192) for _ in range(2))
    expected: list[str] = []
    while not expected or log.path.stat().st_size < 3500:
        expected.append(log.add("retried", key=str(len(expected)), text="y" * 150).key)
    assert not older_file(log.path).exists()
    lock = fcntl.flock

    def late(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        other.add("retried", key="other", text="y" * 1000)  # gets the lock first
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    log.add("retried", key="late", text="y" * 1000)
    assert [event.key for event in read_events(log.path)] == [*expected, "other", "late"]
    assert [event.key for event in read_events(log.path, older_only=True)] == expected


def test_following_loses_nothing_at_a_turn(tmp_path: Path) -> None:
    log = EventLog("tests", tmp_path, max_bytes=8192)
    log.add("retried", key="before")
    seen: list[str] = []
    added = 0
    for event in follow(log.path, time.monotonic() + 60):
        if event is not None:
            seen.append(event.key)
        elif added == 100:
            break
        else:  # less than half the log between two polls
            for _ in range(10):
                log.add("retried", key=str(added), text="y" * 100)
                added += 1
    assert seen == ["before", *map(str, range(100))]


def test_what_is_no_event_is_left_out(tmp_path: Path) -> None:
    log = EventLog("a/b", tmp_path)
    wrote = log.add("reloaded", of=Task("kedro", "p", "r", "t"), key="k\nk", seconds=1.25, rule="x.yaml:3")
    with log.path.open("ab") as file:
        file.write(b'nonsense\n{"v": 99, "kind": "x"}\n{"v": 1, "what": 1}\n[]\n')
    later = log.add("gave_up")
    assert list(read_events(log.path)) == [wrote, later]
    assert log.path.parent == tmp_path, "a scope is no path"
    assert str(wrote).endswith("reloaded p/t k\nk in 1.250 s [x.yaml:3]")
    assert json.loads(wrote.to_line())["run"] == "r"


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    log = EventLog("tests", tmp_path / "file")
    log.add("reloaded")
    assert isinstance(log.add("reloaded"), Event)
    assert capsys.readouterr().err.count("events cannot be written") == 1
    silent = EventLog("tests", tmp_path / "silent", enabled=False)
    silent.add("reloaded")
    assert not silent.path.exists()


def test_a_stopped_holder_of_the_lock_stops_nobody(tmp_path: Path) -> None:
    log = EventLog("stopped", tmp_path, max_bytes=8192)
    log.add("recovered", text="first")
    with log.path.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # another open file: it excludes the log as another process would
        for number in range(50):
            log.add("recovered", text=f"{number:03}" + "x" * 200)
        texts = [event.text for event in read_events(log.path)]
        assert len(texts) == 51  # all of it, beyond the limit
        assert not older_file(log.path).exists()
    log.add("recovered", text="after")
    assert [event.text for event in read_events(log.path)] == [*texts, "after"]
    assert older_file(log.path).exists()  # the limit holds again
