"""The hosts of a run: workers, and with Entrepot a store and a gateway each.

Hosts are network and UTS namespaces where these can be made, and otherwise only have their own processes, stores and
ports of the loopback address. Memory and the file system are this machine's in both cases.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import entrepot

from examples.flights.processes import Child, DemoError, tail
from examples.flights.runs import ROOT
from examples.workflows import s3_server

_TEST_HELPERS = ROOT / "tests/cluster/network"
START_SECONDS = 180.0
END_SECONDS = 10.0
LOOPBACK = "127.0.0.1"

Wrap = Callable[[Sequence[str]], list[str]]


class Worker:
    """A worker process; see :mod:`examples.workflows.worker`. It ends with its input.

    Args:
        name: for messages.
        command: its program and arguments.
        log: for its standard error.
        environment: its complete environment.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._name = name
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(environment),
                cwd=ROOT,
            )
        self._text = b""

    def wait_ready(self) -> None:
        """Wait until it takes tasks.

        Raises:
            DemoError: it has ended, or takes too long.
        """
        self._answer(START_SECONDS)

    def call(self, task: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Run a task, and return its outcome.

        Raises:
            DemoError: the task failed, the worker has ended, or it takes too long.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("has ended") from None
        outcome = self._answer(timeout)
        if "error" in outcome:
            raise DemoError(f"{self._name}, {task.get('workflow')}, stage {task.get('stage')}: {outcome['error']}")
        return outcome

    def _answer(self, timeout: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        end = time.monotonic() + timeout
        while b"\n" not in self._text:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not readable:
                raise self._failure(f"has not answered in {timeout:.0f} s")
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise self._failure("has ended")
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self, problem: str) -> DemoError:
        return DemoError(f"{self._name} {problem}. End of {self._log}:\n{tail(self._log)}")

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_SECONDS)
        self._process.stdout.close()


@dataclass
class Site:
    """The hosts of a run, created by :func:`running`.

    Attributes:
        workers: the workers, in the order of the parts; neighbours are on the same host.
        settings: of each worker's transport, without the name of the run.
        extra_pid: of a process that is not part of the hosts, the S3 server; 0: there is none.
        tmpfs: the folder in memory with the files that hosts share, or ``None``.
    """

    workers: list[Worker]
    settings: list[dict[str, Any]] = field(default_factory=list)
    extra_pid: int = 0
    tmpfs: Path | None = None


@dataclass(frozen=True)
class Network:
    """Where the processes of a run are.

    Attributes:
        isolated: whether hosts are namespaces.
        hosts: address and command prefix of each host.
        server: the same of the S3 server's.
    """

    isolated: bool
    hosts: Sequence[tuple[str, Wrap]]
    server: tuple[str, Wrap]


def refusal() -> str:
    """Why hosts cannot be namespaces here; empty: they can."""
    if str(_TEST_HELPERS) not in sys.path:
        sys.path.insert(0, str(_TEST_HELPERS))
    import isolated_hosts

    return isolated_hosts.refusal()


@contextmanager
def network(count: int, *, isolated: bool) -> Iterator[Network]:
    """Context with the network of a run.

    Args:
        count: of hosts.
        isolated: as namespaces; :func:`refusal` says whether that is possible.
    """
    if not isolated:
        yield Network(False, [(LOOPBACK, list)] * count, (LOOPBACK, list))
        return
    assert not refusal()
    import isolated_hosts

    with isolated_hosts.several_hosts(count + 1) as made:
        *hosts, server = [(host.address, host.command) for host in made]
        yield Network(True, hosts, server)


@contextmanager
def running(
    transport: str,
    net: Network,
    workers_each: int,
    nbytes: int,
    folder: Path,
    tmpfs: Path,
    environment: Mapping[str, str],
) -> Iterator[Site]:
    """Context with the processes of a run.

    Args:
        transport: one of :data:`examples.workflows.transports.NAMES`.
        net: where they are.
        workers_each: workers of each host.
        nbytes: capacity of each store.
        folder: for logs and sockets; a short path.
        tmpfs: a folder in memory, empty, for files that hosts share and for the S3 server's objects.
        environment: of all processes.

    Raises:
        DemoError: one of them does not start.
    """
    variables = dict(environment) | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        settings: list[dict[str, Any]] = [{"folder": str(tmpfs)} for _ in net.hosts]
        site = Site([])
        if transport == "entrepot":
            for number, setting in enumerate(settings):
                setting["address"] = f"unix://{folder}/{number}.sock"
            _start_stores(stack, net, settings, nbytes, folder, variables)
        elif transport == "s3":
            address, wrap = net.server
            port = 9000 if net.isolated else s3_server.free_port()
            access, site.extra_pid = stack.enter_context(s3_server.running(tmpfs, address, port, wrap, variables))
            for setting in settings:
                setting["access"] = access.__dict__
        else:
            site.tmpfs = tmpfs
        for number, ((_, wrap), setting) in enumerate(zip(net.hosts, settings, strict=True)):
            for index in range(workers_each):
                name = f"worker {index} of host {number}"
                command = wrap([sys.executable, "-m", "examples.workflows.worker"])
                worker = Worker(name, command, folder / f"worker-{number}-{index}.log", variables)
                stack.callback(worker.stop)
                site.workers.append(worker)
                site.settings.append(setting)
        for worker in site.workers:
            worker.wait_ready()
        _import_in_advance(site, transport)
        yield site


def _import_in_advance(site: Site, transport: str) -> None:
    """Let workers import what tasks need, found out by the first one: with no transport is that what is measured."""
    warm_up = {"warm_up": True, "transport": transport, "settings": site.settings[0] | {"run": "warm-up"}}
    names = site.workers[0].call(warm_up, START_SECONDS)["imports"]
    with ThreadPoolExecutor(len(site.workers)) as threads:
        list(threads.map(lambda worker: worker.call({"import": names}, START_SECONDS), site.workers))


def _start_stores(
    stack: ExitStack,
    net: Network,
    settings: Sequence[Mapping[str, Any]],
    nbytes: int,
    folder: Path,
    variables: Mapping[str, str],
) -> None:
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    logs: list[tuple[Child, Path]] = []
    for number, ((address, wrap), setting) in enumerate(zip(net.hosts, settings, strict=True)):
        log = folder / f"entrepotd-{number}.log"
        store: str = setting["address"]
        command = [sys.executable, "-m", "entrepot.daemon_main", "--address", store, "--size", str(nbytes)]
        command += ["--spill-path", "none"]  # memory is what is measured
        child = stack.enter_context(
            Child(f"store {number}", wrap(command), log=log, environment=variables, folder=folder)
        )
        child.wait_for(partial(_answers, store), f"a store at {store}", START_SECONDS, interval=0.02)
        log = folder / f"gateway-{number}.log"
        command = [sys.executable, "-m", "entrepot", "gateway", "--address", store, "--host", f"host{number + 1}"]
        command += ["--cluster", f"embedded://{folder}/demo", "--listen", f"{address}:0", "--token-file", str(token)]
        logs.append(
            (
                stack.enter_context(
                    Child(f"gateway {number}", wrap(command), log=log, environment=variables, folder=folder)
                ),
                log,
            )
        )
    for child, log in logs:
        child.wait_for(
            partial(_is_registered, log),
            "its registration",
            START_SECONDS,
            interval=0.02,
        )


def _is_registered(log: Path) -> bool:
    return "is registered" in log.read_text(encoding="utf-8", errors="replace")


def _answers(address: str) -> bool:
    try:
        with entrepot.connect(address, scope="workflows") as store:
            store.wait_provisioned(START_SECONDS)
    except entrepot.StoreUnavailable:
        return False
    return True
