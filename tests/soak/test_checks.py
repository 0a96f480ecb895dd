"""The soak's checks detect what they are meant to detect."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from journal import Journal, content, count_compared, read_journal, violations
from plasma_checks import check_plasma_objects
from plasma_front_end import SoakFrontEnd
from stalls import Report, Span, read_pauses, stall
from store_processes import describe_duplicates, pid_of, store_locks, store_processes

from benchmarks.harness.plasma_connection import PlasmaConnection


@pytest.fixture
def pretend(wait_until: Callable[..., None]) -> Iterator[Callable[[str, str], int]]:
    """``pretend(address, role)``: start a process that looks like one of a store; returns its PID."""
    running: list[subprocess.Popen[bytes]] = []

    def start(address: str, role: str) -> int:
        words = ["entrepotd", "-c", "read line", f"--role={role}", f"--address={address}"]
        process = subprocess.Popen(words, executable="/bin/sh", stdin=subprocess.PIPE)
        running.append(process)
        wait_until(
            lambda: process.pid in [candidate.pid for candidate in store_processes(address)], "the process to be seen"
        )
        return process.pid

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_a_second_daemon_is_seen(pretend: Callable[[str, str], int], tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/s.sock"
    keeper = pretend(address, "keeper")
    daemon = pretend(address, "daemon")
    pretend(f"unix://{tmp_path}/other.sock", "daemon")
    assert describe_duplicates(address) == ""
    assert (pid_of(address, "keeper"), pid_of(address, "daemon")) == (keeper, daemon)
    second = pretend(address, "daemon")
    assert str(daemon) in describe_duplicates(address)
    assert str(second) in describe_duplicates(address)
    assert pid_of(address, "daemon") == second


def test_a_store_has_one_lock(daemon: Any) -> None:
    assert describe_duplicates(daemon.address) == ""
    assert len(store_locks(store_processes(daemon.address))) == 1, "else a second one would not be seen"


@pytest.mark.parametrize(
    ("excuses", "machine", "seconds"),
    [
        ([], [], 5.0),
        ([(9.0, 12.0)], [], 3.0),  # the longer of the remaining pieces
        ([(11.0, 13.5)], [], 1.5),
        ([(11.0, 12.0), (11.5, 14.0)], [], 1.0),
        ([(0.0, 99.0)], [], 0.0),
        ([], [(10.5, 11.0), (14.5, 16.0)], 4.0),  # subtracted, not cut out
        ([(11.0, 13.5)], [(14.0, 14.25)], 1.25),
    ],
)
def test_what_of_a_pause_is_a_stall(
    excuses: list[tuple[float, float]], machine: list[tuple[float, float]], seconds: float
) -> None:
    pause = Span("puts", 10.0, 15.0)
    stalled_seconds = stall(
        pause, [Span("away", *bounds) for bounds in excuses], [Span("timer", *bounds) for bounds in machine]
    )
    assert stalled_seconds == pytest.approx(seconds)


def test_only_what_asks_a_daemon_that_is_away_may_wait() -> None:
    pause = [Span("", 10.0, 13.0)]
    stopped = Span("stop daemon", 9.9, 11.8, daemon_away=True)
    report = Report("memory", 1, most_seconds=1.0)
    report.judge("puts", pause, [stopped], [])
    assert report.broken == []
    report.judge("puts", [Span("", 10.0, 14.0)], [stopped], [])
    assert "puts stood still for 1.20 s" in report.broken.pop(), "a second is enough to come back"
    report.judge("reads", pause, [stopped], [])
    assert len(report.broken) == 1
    assert "reads stood still for 3.00 s" in report.broken[0]
    report.judge("puts", pause, [Span("stop keeper", 9.9, 12.8)], [])
    assert "puts stood still for 3.00 s" in report.broken[1]
    assert report.longest_stalls["puts"] == {"stop daemon": 4.0, "stop keeper": 3.0, "unexcused": 3.0}


def test_a_report_is_text_and_json(tmp_path: Path) -> None:
    report = Report("memory", 7, events={"kill daemon": 3})
    assert "every guarantee held" in report.write(tmp_path)
    report.broken.append("something")
    assert "BROKEN           something" in report.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"report-memory.json", "report-memory.txt"}


def test_a_probe_that_never_came_to_its_end_is_known(tmp_path: Path) -> None:
    path = tmp_path / "probe-reads.gaps"
    journal = Journal(path)
    journal.write("1.5000", "2.7500")
    assert read_pauses(path, "reads") == ([Span("reads", 1.5, 2.75)], 0)
    journal.write("done", 12)
    assert read_pauses(path, "reads")[1] == 12


def test_a_journal_tells_what_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "1.journal"
    journal = Journal(path)
    for words in (
        ("P", "a", 5),
        ("p", "a"),
        ("V", 50),
        ("P", "b", 6),
        ("P", "c", 7),
        ("p", "c"),
        ("D", "c"),
        ("d", "c"),
    ):
        journal.write(*words)
    states = read_journal(path)
    assert [key for key, state in states.items() if state.must_exist] == ["a"]
    assert [key for key, state in states.items() if state.must_not_exist] == ["c"]
    assert count_compared(path) == 50
    assert violations(path) == []
    journal.write("E", "a came back with other content")
    assert violations(path) == ["a came back with other content"]


@pytest.fixture
def plasma(daemon: Any, tmp_path: Path) -> Iterator[Callable[[list[tuple[object, ...]], str, bytes], int]]:
    """``plasma(journal, key, data)``: put an object as a Plasma client, and check it against a journal."""
    front_end = SoakFrontEnd(daemon.address, tmp_path, 16 << 20)
    front_end.start()

    def check(lines: list[tuple[object, ...]], key: str, data: bytes) -> int:
        with entrepot.connect(daemon.address, scope="soak", session="") as store:
            connection = PlasmaConnection(front_end.socket)
            connection.create_and_seal(store.derive(key).binary, data, key.encode())
            connection.close()
            journal = Journal(tmp_path / "plasma-0.journal")
            for words in lines:
                journal.write(*words)
            return check_plasma_objects(store, front_end.socket, tmp_path, wait_ms=50)

    try:
        yield check
    finally:
        front_end.end()


PUT_A: list[tuple[object, ...]] = [("P", "a", 100), ("p", "a")]


def test_a_plasma_object_that_is_right_is_counted(plasma: Any) -> None:
    assert plasma(PUT_A, "a", content("a", 100).tobytes()) == 1


@pytest.mark.parametrize(
    ("lines", "data", "complaint"),
    [
        ([*PUT_A, ("P", "b", 5), ("p", "b")], content("a", 100).tobytes(), "does not find b"),
        ([*PUT_A, ("D", "a"), ("d", "a")], content("a", 100).tobytes(), "finds a, which was deleted"),
        (PUT_A, bytes(100), "a has other content"),
    ],
    ids=["lost", "not deleted", "wrong"],
)
def test_a_plasma_object_that_is_not_is_known(plasma: Any, lines: Any, data: bytes, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        plasma(lines, "a", data)
