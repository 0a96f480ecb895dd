"""A run: three hosts, workers on each, faults, and calm checks, until the time is over."""

from __future__ import annotations

import faulthandler
import random
import time
from contextlib import ExitStack
from pathlib import Path

from random_faults.calm import Calm
from random_faults.disturbances import Disturbances
from random_faults.faults import Faults
from random_faults.hosts import ClusterHost, DirectoryServer
from random_faults.model import Model
from random_faults.report import Report
from random_faults.shared import Keys, Shared
from random_faults.workers import Worker

HOSTS = ("a", "b", "c")
WORKERS = 2  # on each host
PAUSE_SECONDS = (0.05, 0.8)  # between two faults
ROUND_SECONDS = 15.0  # of faults, before everything is healed and checked


def run(folder: Path, seconds: float, seed: int) -> Report:
    """Run once.

    Args:
        folder: short path for sockets and logs.
        seconds: how long to cause faults, in all.
        seed: of all choices; it also chooses the kind of the directory.

    Returns:
        the report; it is complete even if something did not hold.
    """
    rng = random.Random(seed)
    kind = rng.choice(["redis", "etcd"])
    report = Report(seed, kind)
    with ExitStack() as stack:
        directory = DirectoryServer(kind)
        stack.callback(directory.end)
        hosts: list[ClusterHost] = []
        for name in HOSTS:
            host = ClusterHost(name, folder / name, directory)
            stack.callback(host.end)
            host.start()
            hosts.append(host)
        shared = Shared(hosts, Model(), report, Disturbances(), Keys())
        workers = [Worker(shared, host, rng.randrange(1 << 30)) for host in hosts for _ in range(WORKERS)]
        faults = Faults(hosts, directory, shared.model, shared.disturbances, report, rng)
        calm = Calm(shared, workers)
        try:
            calm.check()  # until all gateways are there
            for worker in workers:
                worker.start()
            _cause_faults(faults, calm, workers, report, rng, seconds)
        except AssertionError as error:
            report.breaks(str(error))
        finally:
            for worker in workers:
                worker.pause()
                worker.end()
    return report


def _cause_faults(
    faults: Faults, calm: Calm, workers: list[Worker], report: Report, rng: random.Random, seconds: float
) -> None:
    while report.seconds < seconds:
        begin = time.monotonic()
        end = begin + min(ROUND_SECONDS, seconds - report.seconds)
        while time.monotonic() < end:
            time.sleep(rng.uniform(*PAUSE_SECONDS))  # interval between faults, not a wait for a result
            faults.step()
            if hanging := [text for worker in workers if (text := worker.hangs())]:
                faulthandler.dump_traceback(2)
                raise AssertionError("; ".join(hanging))
        report.seconds = round(report.seconds + time.monotonic() - begin, 1)
        faults.heal()
        calm.check()
