"""Events of a soak run: kills, stops, memory pressure, a log that is read or not, garbage connections.

They are random, after each kind has happened once. Whatever is stopped is certain to continue: each stop has a thread
that sees to it, whatever the driver waits for.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import entrepot
from entrepot._daemon.launcher import daemon_binary
from entrepot.errors import EntrepotError, StoreUnavailable, Timeout
from journal import count_compared
from plasma_front_end import SoakFrontEnd
from pressure import Pressure
from stalls import Report, Span, read_pauses
from store_processes import describe_duplicates, pid_of
from unread_log import UnreadLog

CLIENTS = 8
PLASMA_CLIENTS = 2
PROBES = ("reads", "puts", "timer")
LONG_SECONDS = (6.2, 7.5)  # longer than any timeout of the store
CHECK_SECONDS = 0.1  # between two checks for a second daemon
GARBAGE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for a condition, with a watchdog."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"gave up after {seconds} s: {what}"
        time.sleep(0.02)


def has_content(path: Path) -> bool:
    return path.stat().st_size > 0


class Soak:
    """Starts workers and probes, causes events, and records when each took place."""

    def __init__(
        self,
        address: str,
        folder: Path,
        report: Report,
        log: UnreadLog,
        pressure: Pressure,
        store: entrepot.Store,
        front_end: SoakFrontEnd,
    ) -> None:
        self.address = address
        self.folder = folder
        self.report = report
        self.rng = random.Random(report.seed)
        self.log = log
        self.pressure = pressure
        self.store = store
        self.front_end = front_end
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.probes: dict[str, subprocess.Popen[bytes]] = {}
        self.spans: list[Span] = []
        self.stops: dict[str, threading.Thread] = {}  # by role: one stop per role at a time
        self.ended = threading.Event()
        self.duplicate_checker = threading.Thread(target=self._check_regularly, daemon=True)
        self.dropped_lines: dict[int, int] = {}  # dropped log lines, by PID of daemon or keeper
        self.event_kinds: dict[str, tuple[Callable[[], None], int]] = {
            "kill client": (self.kill_client, 40),
            "kill daemon": (lambda: self.kill("daemon"), 14),
            "kill keeper": (lambda: self.kill("keeper"), 9),
            "upgrade": (self.upgrade, 5),
            "stop client": (lambda: self.stop("client", self.random_seconds()), 12),
            "stop daemon": (lambda: self.stop("daemon", self.random_seconds()), 8),
            "stop keeper": (lambda: self.stop("keeper", self.random_seconds()), 10),
            "stop client, long": (lambda: self.stop("client", self.long_seconds()), 2),
            "stop daemon, long": (lambda: self.stop("daemon", self.long_seconds()), 1),
            "stop keeper, long": (lambda: self.stop("keeper", self.long_seconds()), 2),
            "kill front end": (self.kill_front_end, 10),
            "stop front end": (lambda: self.stop("front end", self.random_seconds()), 6),
            "nonsense": (self.send_garbage, 4),
            "little memory": (self.limit_memory, 8),
            "log read or not": (self.toggle_log_reader, 6),
        }
        if pressure.refused:
            del self.event_kinds["little memory"]
            report.not_tried["little memory"] = pressure.refused
        if self.rng.random() < 0.3:
            del self.event_kinds["log read or not"]
            report.not_tried["log read or not"] = "in this run nobody ever reads it"

    # ---- processes ----

    def spawn(self, script: str, name: str, *arguments: object) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.err").open("ab") as stderr:
            command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
            return subprocess.Popen(command, stderr=stderr)

    def start(self, name: str) -> None:
        """Start a client: a number is one of the store, ``plasma-`` and a number one of the front end."""
        seed = self.rng.randrange(1 << 30)
        if name.startswith("plasma-"):
            socket = self.front_end.socket
            self.workers[name] = self.spawn("plasma_worker.py", name, self.address, socket, self.folder, name, seed)
        else:
            self.workers[name] = self.spawn("worker.py", name, self.address, self.folder, name, seed, self.report.load)

    def start_all(self) -> None:
        for kind in PROBES:
            self.probes[kind] = self.spawn("probe.py", f"probe-{kind}", kind, self.address, self.folder)
        for kind in PROBES:
            wait_until((self.folder / f"probe-{kind}.ready").exists, 30, f"the probe {kind} to work")
        self.front_end.start()
        wait_until(self.front_end.is_listening, 30, "the front end to listen")
        for name in [*map(str, range(CLIENTS)), *(f"plasma-{number}" for number in range(PLASMA_CLIENTS))]:
            self.start(name)
        self.duplicate_checker.start()

    def check_alive(self) -> None:
        processes = dict(self.workers)
        processes |= {f"probe-{kind}": probe for kind, probe in self.probes.items()}
        for name, process in processes.items():
            code = process.poll()
            error = (self.folder / f"{name}.err").read_text(errors="replace")
            assert code is None, f"{name} ended by itself with {code}:\n{error[-4000:]}"
        assert not self.front_end.problem(), self.front_end.problem()

    def end(self) -> None:
        """Let everything continue, and wait for the clients to finish."""
        for stop in self.stops.values():
            stop.join(60)
        if not self.pressure.refused:
            self.pressure.lift_limit()
        # The probes first: ending the workers would end what could stall them.
        for name, processes in (("stop-probes", self.probes), ("stop", self.workers)):
            (self.folder / name).touch()
            for key, process in processes.items():
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGUSR1)
                    with suppress(AssertionError):  # a client that does not even do that is reported all the same
                        wait_until(partial(has_content, self.folder / f"{key}.err"), 10, "where the client is")
                    self.report.broken.append(f"client {key} did not come to its end in a minute")
                    process.kill()
                    process.wait()
        self.ended.set()
        if self.duplicate_checker.is_alive():
            self.duplicate_checker.join(30)

    # ---- events ----

    def run(self, seconds: float) -> None:
        """Cause each kind once, in random order, then random ones until the time is over."""
        first = sorted(self.event_kinds)
        self.rng.shuffle(first)
        begin = time.monotonic()
        while first or time.monotonic() < begin + seconds:
            time.sleep(self.rng.uniform(0.05, 0.6))  # interval between events, not a wait for a result
            self.check_alive()
            names = sorted(self.event_kinds)
            kind = first.pop() if first else self.rng.choices(names, [self.event_kinds[name][1] for name in names])[0]
            self.event_kinds[kind][0]()
        self.report.seconds = round(time.monotonic() - begin, 1)
        self.report.events = dict(Counter(span.kind for span in self.spans))

    def begin(self, kind: str, daemon_away: bool = False) -> Span:
        span = Span(kind, time.monotonic(), daemon_away=daemon_away)
        self.spans.append(span)
        return span

    def random_seconds(self) -> float:
        return 10 ** self.rng.uniform(-1.6, 0.3)  # 25 ms to 2 s

    def long_seconds(self) -> float:
        return self.rng.uniform(*LONG_SECONDS)

    def kill_client(self) -> None:
        name = self.rng.choice(sorted(self.workers))
        span = self.begin("kill client")
        self.workers[name].kill()
        self.workers[name].wait()
        self.start(name)
        span.end = time.monotonic()

    def kill_front_end(self) -> None:
        """Kill the process that serves; another one serves a moment later."""
        pid = self.front_end.pid()
        if pid == 0:
            return  # it is being started again
        span = self.begin("kill front end")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: self.front_end.pid() not in (0, pid) and self.front_end.is_listening(),
            60,
            f"a new front end for the killed {pid}",
        )
        span.end = time.monotonic()

    def kill(self, role: str) -> None:
        pid = pid_of(self.address, role)
        if pid == 0:
            return  # it is being replaced, after an earlier death or by an upgrade
        span = self.begin(f"kill {role}", daemon_away=role == "daemon")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        name = "pid" if role == "daemon" else "keeper_pid"
        wait_until(lambda: self.status_value(name) not in (0, pid), 60, f"a new {role} for the killed {pid}")
        span.end = time.monotonic()

    def status_value(self, name: str) -> int:
        """Return a figure of ``status``; 0 if nobody responds."""
        try:
            status = self.store.status()
        except (StoreUnavailable, Timeout):
            return 0
        self.dropped_lines[status["pid"]] = status["log_lines_dropped"]
        self.dropped_lines[status["keeper_pid"]] = status["keeper_log_lines_dropped"]
        return int(status[name])

    def stop(self, role: str, seconds: float) -> None:
        if role in self.stops and self.stops[role].is_alive():
            self.stops[role].join()
        if role == "client":
            pid = self.workers[self.rng.choice(sorted(self.workers))].pid
        else:
            pid = self.front_end.pid() if role == "front end" else pid_of(self.address, role)
        try:
            pidfd = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            return
        if pidfd < 0:
            return
        kind = f"stop {role}" + (", long" if seconds >= LONG_SECONDS[0] else "")
        span = self.begin(kind, daemon_away=role == "daemon")
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)

        def resume() -> None:
            time.sleep(seconds)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            os.close(pidfd)
            span.end = time.monotonic()

        self.stops[role] = threading.Thread(target=resume)
        self.stops[role].start()

    def upgrade(self) -> None:
        """Upgrade to another copy of the program; if that is killed early, the upgrade may be rolled back, which is
        fine too."""
        program = self.folder / "entrepotd"
        new_program = self.folder / "entrepotd.new"
        shutil.copy2(daemon_binary(), new_program)
        new_program.rename(program)
        span = self.begin("upgrade")  # causes a pause of milliseconds, whether the log is read or not
        try:
            with entrepot.connect(self.address) as store:
                store._raw().upgrade(str(program))
        except EntrepotError:
            stopped = any(past_span.overlaps(span) for past_span in self.spans if past_span.kind.startswith("stop "))
            assert stopped, "an upgrade was refused though nobody was stopped"
        wait_until(lambda: self.status_value("pid"), 60, "a daemon after the upgrade")
        span.end = time.monotonic()

    def send_garbage(self) -> None:
        """Open connections that start with garbage: one log line each, more than the daemon keeps."""
        span = self.begin("nonsense")
        for _ in range(1500):
            with (
                suppress(OSError),
                socket.socket(socket.AF_UNIX) as connection,
            ):  # a connection cut by a kill is fine too
                connection.settimeout(20)
                connection.connect(self.address.removeprefix("unix://"))
                connection.sendall(GARBAGE)
                while connection.recv(1 << 12):
                    pass
        span.end = time.monotonic()

    def limit_memory(self) -> None:
        if "memory" in self.stops and self.stops["memory"].is_alive():
            self.stops["memory"].join()
        span = self.begin("little memory")
        self.pressure.limit_memory(self.rng.randrange(4 << 20, 96 << 20))
        seconds = self.random_seconds()

        def relax() -> None:
            time.sleep(seconds)
            self.pressure.lift_limit()
            span.end = time.monotonic()

        self.stops["memory"] = threading.Thread(target=relax)
        self.stops["memory"].start()

    def toggle_log_reader(self) -> None:
        span = self.begin("log is not read" if self.log.reads.is_set() else "log is read")
        if self.log.reads.is_set():
            self.log.reads.clear()
        else:
            self.log.reads.set()
        span.end = time.monotonic()

    # ---- checks ----

    def _check_regularly(self) -> None:
        while not self.ended.wait(CHECK_SECONDS):
            self.check_duplicates()

    def check_duplicates(self) -> None:
        self.report.looks_for_second_daemons += 1
        if description := describe_duplicates(self.address):
            self.report.second_daemons += 1
            self.report.broken.append(description)

    def judge(self) -> None:
        """Enter the probes' results and the clients' counts into the report."""
        pauses = {}
        for kind in PROBES:
            path = self.folder / f"probe-{kind}.gaps"
            pauses[kind], self.report.probe_rounds[kind] = read_pauses(path, kind)
            errors = [line for line in path.read_text().splitlines() if line.startswith("E ")]
            self.report.broken += errors
            if self.report.probe_rounds[kind] == 0:
                self.report.broken.append(f"the probe {kind} never came to its end")
        self.report.machine_stall = round(max((span.seconds for span in pauses["timer"]), default=0.0), 3)
        for kind in ("reads", "puts"):
            self.report.judge(kind, pauses[kind], self.spans, pauses["timer"])
        self.report.values_checked = sum(map(count_compared, self.folder.glob("*.journal")))
        self.report.memory_limit_met = self.pressure.limit_hits()
        self.report.log_lines_dropped["told by status"] = sum(self.dropped_lines.values())
