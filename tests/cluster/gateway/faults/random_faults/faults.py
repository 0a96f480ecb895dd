"""Faults: killed, stopped, leaving, cut, damaged, slow, emptied; each is undone after a while."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcp_relay import TO_CLIENT, TO_SERVER

from random_faults.disturbances import DIRECTORY, Disturbances, Span
from random_faults.hosts import ClusterHost, DirectoryServer
from random_faults.model import Model
from random_faults.report import Report

DIRECTIONS = (TO_SERVER, TO_CLIENT)
LONG_SECONDS = (11.0, 14.0)  # longer than any time limit for progress, and than the lease
LONG_SHARE = 0.15
SLOW_SECONDS = 0.03  # later, for each part that passes


def _nothing() -> None:
    """Nothing has to be undone."""


def _always() -> bool:
    """It can be undone at any time."""
    return True


@dataclass(slots=True)
class _Running:
    """A fault that lasts: of what, until when, how it is undone, and whether it can be yet."""

    parts: Sequence[str]
    until: float
    undo: Callable[[], None]
    span: Span
    may_undo: Callable[[], bool]


class Faults:
    """Causes faults at random; for one thread.

    Args:
        hosts, directory: to be disturbed.
        model: is told which stores die.
        disturbances, report: are told of everything.
        rng: chooses.
    """

    def __init__(
        self,
        hosts: Sequence[ClusterHost],
        directory: DirectoryServer,
        model: Model,
        disturbances: Disturbances,
        report: Report,
        rng: random.Random,
    ) -> None:
        self._hosts = hosts
        self._directory = directory
        self._model = model
        self._disturbances = disturbances
        self._report = report
        self._rng = rng
        self._running: list[_Running] = []
        self._kinds: dict[str, tuple[Callable[[ClusterHost], None], int]] = {
            "gateway killed": (self._kill_gateway, 10),
            "gateway stopped": (self._stop_gateway, 8),
            "gateway leaves": (self._leave, 5),
            "daemon killed": (self._kill_daemon, 7),
            "daemon stopped": (lambda host: self._stop_store(host, "daemon"), 5),
            "keeper stopped": (lambda host: self._stop_store(host, "keeper"), 3),
            "host killed": (self._kill_host, 2),
            "host ended": (self._end_host, 1),
            "link cut": (self._cut_link, 10),
            "link to the directory cut": (self._cut_directory, 6),
            "connections dropped": (self._drop_connections, 8),
            "byte changed": (self._change_byte, 10),
            "link slow": (self._slow_link, 4),
            "directory stopped": (self._stop_directory, 4),
            "directory killed": (self._kill_directory, 3),
            "directory emptied": (self._empty_directory, 3),
        }

    def step(self) -> None:
        """Undo what is over, and cause another fault."""
        now = time.monotonic()
        for running in [running for running in self._running if running.until <= now and running.may_undo()]:
            self._undo(running)
        for host in self._hosts:
            if not self._is_disturbed(f"gateway {host.name}"):
                host.keep_gateway()
        names = sorted(self._kinds)
        kind = self._rng.choices(names, [self._kinds[name][1] for name in names])[0]
        host = self._rng.choice(self._hosts)
        self._kinds[kind][0](host)

    def heal(self) -> None:
        """Undo everything."""
        for running in [running for running in self._running if running.may_undo()]:
            self._undo(running)
        for running in list(self._running):  # those that the others may have kept from it
            if not running.may_undo():
                next(host for host in self._hosts if f"gateway {host.name}" in running.parts).wait_until_left()
            self._undo(running)
        for host in self._hosts:
            host.keep_gateway()

    # --- how a fault begins and ends

    def _is_disturbed(self, part: str) -> bool:
        return any(part in running.parts for running in self._running)

    def _undo(self, running: _Running) -> None:
        running.undo()
        self._disturbances.end(running.span)
        self._running.remove(running)

    def _seconds(self) -> float:
        if self._rng.random() < LONG_SHARE:
            return self._rng.uniform(*LONG_SECONDS)
        return float(10 ** self._rng.uniform(-1.5, 0.7))  # 30 ms to 5 s

    def _cause(
        self,
        kind: str,
        what: str,
        parts: Sequence[str],
        begin: Callable[[], None],
        undo: Callable[[], None],
        *,
        is_store: bool = False,
        may_undo: Callable[[], bool] = _always,
    ) -> None:
        """Cause a fault that lasts, unless one of these parts has one; the choices are made all the same."""
        seconds = self._seconds()
        if any(self._is_disturbed(part) for part in parts):
            return
        self._report.faults[kind] += 1
        span = self._disturbances.begin(what, is_store=is_store)
        until = time.monotonic() + seconds
        begin()
        self._running.append(_Running(parts, until, undo, span, may_undo))

    # --- of gateways

    def _kill_gateway(self, host: ClusterHost) -> None:
        self._cause("gateway killed", host.name, [f"gateway {host.name}"], host.kill_gateway, host.start_gateway)

    def _leave(self, host: ClusterHost) -> None:
        self._cause(
            "gateway leaves",
            host.name,
            [f"gateway {host.name}"],
            host.leave,
            host.start_gateway,
            may_undo=host.has_left,
        )

    def _stop_gateway(self, host: ClusterHost) -> None:
        self._cause(
            "gateway stopped",
            host.name,
            [f"gateway {host.name}"],
            lambda: host.signal_gateway(signal.SIGSTOP),
            lambda: host.signal_gateway(signal.SIGCONT),
        )

    # --- of stores

    def _kill_daemon(self, host: ClusterHost) -> None:
        self._cause(
            "daemon killed",
            host.name,
            [f"store {host.name}"],
            lambda: host.signal_store("daemon", signal.SIGKILL),
            _nothing,
            is_store=True,
        )

    def _stop_store(self, host: ClusterHost, role: str) -> None:
        self._cause(
            f"{role} stopped",
            host.name,
            [f"store {host.name}"],
            lambda: host.signal_store(role, signal.SIGSTOP),
            lambda: host.signal_store(role, signal.SIGCONT),
            is_store=True,
        )

    def _kill_host(self, host: ClusterHost) -> None:
        def kill() -> None:
            self._model.store_dies(host.name, host.instance)
            host.kill_gateway()
            host.kill_store()
            self._model.store_dies(host.name, host.instance)  # with what was moved there in the meantime

        parts = [f"store {host.name}", f"gateway {host.name}"]
        self._cause("host killed", host.name, parts, kill, host.start, is_store=True)

    def _end_host(self, host: ClusterHost) -> None:
        def end() -> None:
            self._model.store_dies(host.name, host.instance)
            host.leave()
            host.stop_store()
            self._model.store_dies(host.name, host.instance)  # with what was moved there in the meantime

        parts = [f"store {host.name}", f"gateway {host.name}"]
        self._cause("host ended", host.name, parts, end, host.start, is_store=True, may_undo=host.has_left)

    # --- of links

    def _cut_link(self, host: ClusterHost) -> None:
        direction = self._rng.choice(DIRECTIONS)
        part = [f"link {host.name}"]
        self._cause("link cut", host.name, part, lambda: host.links.cut(direction), host.links.forget_faults)

    def _cut_directory(self, host: ClusterHost) -> None:
        direction = self._rng.choice(DIRECTIONS)
        links = host.directory_links
        part = [f"directory link {host.name}"]
        self._cause("link to the directory cut", host.name, part, lambda: links.cut(direction), links.forget_faults)

    def _drop_connections(self, host: ClusterHost) -> None:
        after = self._rng.randrange(1, 2 << 20)
        name, relay = self._rng.choice([("link", host.links), ("directory link", host.directory_links)])
        direction = self._rng.choice(DIRECTIONS)
        part = [f"{name} {host.name}"]
        self._cause(
            "connections dropped", host.name, part, lambda: relay.drop_after(direction, after), relay.forget_faults
        )

    def _change_byte(self, host: ClusterHost) -> None:
        after = int(10 ** self._rng.uniform(0, 6.5))
        direction = self._rng.choice(DIRECTIONS)
        part = [f"link {host.name}"]
        self._cause(
            "byte changed", host.name, part, lambda: host.links.corrupt(direction, after), host.links.forget_faults
        )

    def _slow_link(self, host: ClusterHost) -> None:
        def slow_down() -> None:
            host.links.delay = SLOW_SECONDS

        part = [f"link {host.name}"]
        self._cause("link slow", host.name, part, slow_down, host.links.forget_faults)

    # --- of the directory

    def _stop_directory(self, _: ClusterHost) -> None:
        self._cause("directory stopped", DIRECTORY, [DIRECTORY], self._directory.pause, self._directory.resume)

    def _kill_directory(self, _: ClusterHost) -> None:
        self._cause("directory killed", DIRECTORY, [DIRECTORY], self._directory.kill, self._directory.start)

    def _empty_directory(self, _: ClusterHost) -> None:
        def empty() -> None:
            self._directory.kill()
            self._directory.empty()

        self._cause("directory emptied", DIRECTORY, [DIRECTORY], empty, self._directory.start)
