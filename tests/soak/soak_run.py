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
from entrepot._launcher import daemon_binary
from entrepot.errors import EntrepotError, StoreUnavailable, Timeout
from journal import compared
from pressure import Pressure
from stalls import Report, Span, read_pauses
from store_processes import pid_of, too_many
from unread_log import UnreadLog

CLIENTS = 8
PROBES = ("reads", "puts", "timer")
LONG_SECONDS = (6.2, 7.5)  # longer than any timeout of the store
LOOK_SECONDS = 0.1  # between two checks for a second daemon
NONSENSE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for a condition, with a watchdog."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain: {what}"
        time.sleep(0.02)


def has_content(path: Path) -> bool:
    return path.stat().st_size > 0


class Soak:
    """Starts workers and probes, causes events, and records when each took place."""

    def __init__(
        self, address: str, folder: Path, report: Report, log: UnreadLog, pressure: Pressure, store: entrepot.Store
    ) -> None:
        self.address = address
        self.folder = folder
        self.report = report
        self.chance = random.Random(report.seed)
        self.log = log
        self.pressure = pressure
        self.store = store
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.probes: dict[str, subprocess.Popen[bytes]] = {}
        self.spans: list[Span] = []
        self.stops: dict[str, threading.Thread] = {}  # by role: one stop per role at a time
        self.ended = threading.Event()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.dropped: dict[int, int] = {}  # dropped log lines, by PID of daemon or keeper
        self.kinds: dict[str, tuple[Callable[[], None], int]] = {
            "kill client": (self.kill_client, 40),
            "kill daemon": (lambda: self.kill("daemon"), 14),
            "kill keeper": (lambda: self.kill("keeper"), 9),
            "upgrade": (self.upgrade, 5),
            "stop client": (lambda: self.stop("client", self.any_length()), 12),
            "stop daemon": (lambda: self.stop("daemon", self.any_length()), 8),
            "stop keeper": (lambda: self.stop("keeper", self.any_length()), 10),
            "stop client, long": (lambda: self.stop("client", self.long()), 2),
            "stop daemon, long": (lambda: self.stop("daemon", self.long()), 1),
            "stop keeper, long": (lambda: self.stop("keeper", self.long()), 2),
            "nonsense": (self.nonsense, 4),
            "little memory": (self.squeeze, 8),
            "log read or not": (self.turn_log, 6),
        }
        if pressure.refused:
            del self.kinds["little memory"]
            report.not_tried["little memory"] = pressure.refused
        if self.chance.random() < 0.3:
            del self.kinds["log read or not"]
            report.not_tried["log read or not"] = "in this run nobody ever reads it"

    # ---- processes ----

    def spawn(self, script: str, name: str, *arguments: object) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.err").open("ab") as err:
            words = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
            return subprocess.Popen(words, stderr=err)

    def start(self, number: int) -> None:
        seed = self.chance.randrange(1 << 30)
        self.workers[number] = self.spawn(
            "worker.py", str(number), self.address, self.folder, number, seed, self.report.load
        )

    def start_all(self) -> None:
        for kind in PROBES:
            self.probes[kind] = self.spawn("probe.py", f"probe-{kind}", kind, self.address, self.folder)
        for kind in PROBES:
            wait_until((self.folder / f"probe-{kind}.ready").exists, 30, f"the probe {kind} to work")
        for number in range(CLIENTS):
            self.start(number)
        self.watcher.start()

    def check_alive(self) -> None:
        everybody = {str(number): worker for number, worker in self.workers.items()}
        everybody |= {f"probe-{kind}": probe for kind, probe in self.probes.items()}
        for name, process in everybody.items():
            code = process.poll()
            error = (self.folder / f"{name}.err").read_text(errors="replace")
            assert code is None, f"{name} ended by itself with {code}:\n{error[-4000:]}"

    def end(self) -> None:
        """Let everything continue, and wait for the clients to finish."""
        for stop in self.stops.values():
            stop.join(60)
        if not self.pressure.refused:
            self.pressure.relax()
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
        if self.watcher.is_alive():
            self.watcher.join(30)

    # ---- events ----

    def run(self, seconds: float) -> None:
        """Cause each kind once, in random order, then random ones until the time is over."""
        first = sorted(self.kinds)
        self.chance.shuffle(first)
        begin = time.monotonic()
        while first or time.monotonic() < begin + seconds:
            time.sleep(self.chance.uniform(0.05, 0.6))  # interval between events, not a wait for a result
            self.check_alive()
            names = sorted(self.kinds)
            kind = first.pop() if first else self.chance.choices(names, [self.kinds[name][1] for name in names])[0]
            self.kinds[kind][0]()
        self.report.seconds = round(time.monotonic() - begin, 1)
        self.report.events = dict(Counter(span.kind for span in self.spans))

    def begin(self, kind: str, daemon_away: bool = False) -> Span:
        span = Span(kind, time.monotonic(), daemon_away=daemon_away)
        self.spans.append(span)
        return span

    def any_length(self) -> float:
        return 10 ** self.chance.uniform(-1.6, 0.3)  # 25 ms to 2 s

    def long(self) -> float:
        return self.chance.uniform(*LONG_SECONDS)

    def kill_client(self) -> None:
        number = self.chance.choice(sorted(self.workers))
        span = self.begin("kill client")
        self.workers[number].kill()
        self.workers[number].wait()
        self.start(number)
        span.end = time.monotonic()

    def kill(self, role: str) -> None:
        pid = pid_of(self.address, role)
        if pid == 0:
            return  # it is being replaced, after an earlier death or by an upgrade
        span = self.begin(f"kill {role}", daemon_away=role == "daemon")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        name = "pid" if role == "daemon" else "keeper_pid"
        wait_until(lambda: self.ask(name) not in (0, pid), 60, f"a new {role} for the killed {pid}")
        span.end = time.monotonic()

    def ask(self, name: str) -> int:
        """Return a figure of ``status``; 0 if nobody responds."""
        try:
            status = self.store.status()
        except (StoreUnavailable, Timeout):
            return 0
        self.dropped[status["pid"]] = status["log_lines_dropped"]
        self.dropped[status["keeper_pid"]] = status["keeper_log_lines_dropped"]
        return int(status[name])

    def stop(self, role: str, seconds: float) -> None:
        if role in self.stops and self.stops[role].is_alive():
            self.stops[role].join()
        pid = self.workers[self.chance.choice(sorted(self.workers))].pid if role == "client" else 0
        pid = pid or pid_of(self.address, role)
        try:
            handle = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            return
        if handle < 0:
            return
        kind = f"stop {role}" + (", long" if seconds >= LONG_SECONDS[0] else "")
        span = self.begin(kind, daemon_away=role == "daemon")
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGSTOP)

        def go_on() -> None:
            time.sleep(seconds)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            os.close(handle)
            span.end = time.monotonic()

        self.stops[role] = threading.Thread(target=go_on)
        self.stops[role].start()

    def upgrade(self) -> None:
        """Upgrade to another copy of the program; if that is killed early, the upgrade may be rolled back, which is
        fine too."""
        program = self.folder / "entrepotd"
        fresh = self.folder / "entrepotd.new"
        shutil.copy2(daemon_binary(), fresh)
        fresh.rename(program)
        span = self.begin("upgrade")  # causes a pause of milliseconds, whether the log is read or not
        try:
            with entrepot.connect(self.address) as store:
                store._raw().upgrade(str(program))
        except EntrepotError:
            stopped = any(one.overlaps(span) for one in self.spans if one.kind.startswith("stop "))
            assert stopped, "an upgrade was refused though nobody was stopped"
        wait_until(lambda: self.ask("pid"), 60, "a daemon after the upgrade")
        span.end = time.monotonic()

    def nonsense(self) -> None:
        """Open connections that start with garbage: one log line each, more than the daemon keeps."""
        span = self.begin("nonsense")
        for _ in range(1500):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as link:  # a connection cut by a kill is fine too
                link.settimeout(20)
                link.connect(self.address.removeprefix("unix://"))
                link.sendall(NONSENSE)
                while link.recv(1 << 12):
                    pass
        span.end = time.monotonic()

    def squeeze(self) -> None:
        if "memory" in self.stops and self.stops["memory"].is_alive():
            self.stops["memory"].join()
        span = self.begin("little memory")
        self.pressure.squeeze(self.chance.randrange(4 << 20, 96 << 20))
        seconds = self.any_length()

        def relax() -> None:
            time.sleep(seconds)
            self.pressure.relax()
            span.end = time.monotonic()

        self.stops["memory"] = threading.Thread(target=relax)
        self.stops["memory"].start()

    def turn_log(self) -> None:
        span = self.begin("log is not read" if self.log.reads.is_set() else "log is read")
        if self.log.reads.is_set():
            self.log.reads.clear()
        else:
            self.log.reads.set()
        span.end = time.monotonic()

    # ---- checks ----

    def _watch(self) -> None:
        while not self.ended.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        self.report.looks_for_second_daemons += 1
        if seen := too_many(self.address):
            self.report.second_daemons += 1
            self.report.broken.append(seen)

    def judge(self) -> None:
        """Enter the probes' results and the clients' counts into the report."""
        pauses = {}
        for kind in PROBES:
            path = self.folder / f"probe-{kind}.gaps"
            pauses[kind], self.report.probe_rounds[kind] = read_pauses(path, kind)
            wrong = [line for line in path.read_text().splitlines() if line.startswith("E ")]
            self.report.broken += wrong
            if self.report.probe_rounds[kind] == 0:
                self.report.broken.append(f"the probe {kind} never came to its end")
        self.report.machine_stall = round(max((span.seconds for span in pauses["timer"]), default=0.0), 3)
        for kind in ("reads", "puts"):
            self.report.judge(kind, pauses[kind], self.spans, pauses["timer"])
        self.report.values_checked = sum(map(compared, self.folder.glob("*.journal")))
        self.report.memory_limit_met = self.pressure.limit_met()
        self.report.log_lines_dropped["told by status"] = sum(self.dropped.values())
