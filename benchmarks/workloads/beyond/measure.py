"""The measurements of the group; each is an entry of the result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.figures import median
from benchmarks.harness.limits import Native, NativeFailed
from benchmarks.harness.machine import ROOT
from benchmarks.harness.plan import MIB, Plan
from benchmarks.harness.stage import SystemsUnderTest
from benchmarks.systems import ENTREPOT, System
from benchmarks.systems.base import Unavailable, descendants
from benchmarks.workloads.beyond.stage import (
    ClientFailed,
    ClientProcess,
    SpillingDaemon,
    on_disk,
    peer,
    spilling,
    wait_for,
)

POLICIES = (("data aware, declared", "data_aware", "loop_sequential"), ("data aware, inferred", "data_aware", None))
BASELINE_POLICIES = (("LRU", "lru", None), ("MRU", "mru", None))
PAUSE = 0.0005


def measure(
    under_test: SystemsUnderTest, systems: Sequence[System], native: Native | None, plan: Plan
) -> dict[str, Any]:
    """Run all measurements; errors are recorded under ``failures``."""
    results: dict[str, Any] = {"failures": {}}
    parts: dict[str, Callable[[], Any]] = {
        "volume": lambda: volume(under_test, systems, plan),
        "disk": lambda: disk(native, plan),
        "policies": lambda: policies(under_test, plan),
        "latency": lambda: latency(under_test, plan),
        "restart": lambda: restart(under_test, plan),
        "checkpoints": lambda: checkpoints(under_test, plan),
    }
    for name, part in parts.items():
        begin = time.monotonic()
        try:
            results[name] = part()
        except (ClientFailed, NativeFailed, Unavailable, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", flush=True)
            results["failures"][name] = str(error)
        print(f"   {name}: {time.monotonic() - begin:.0f} s", flush=True)
    return results


def volume(under_test: SystemsUnderTest, systems: Sequence[System], plan: Plan) -> dict[str, Any]:
    """Put and read back 2 and 4 times the memory, compared with Plasma."""
    capacity, nbytes = plan.beyond_bytes, plan.beyond_bytes // 16
    lines = []
    for times in (2, 4):
        count = times * capacity // nbytes
        with spilling(under_test, capacity) as store:
            figures = store.call("volume", module=ENTREPOT.module, client=ENTREPOT.client, count=count, nbytes=nbytes)
            lines.append({"system": ENTREPOT.name, "times": times, "count": count, **figures})
        for system in systems:
            if system.name != "plasma":
                continue
            with peer(under_test, system, capacity) as address:
                call = ClientProcess(
                    under_test.pythons[system.name],
                    under_test.package.variables,
                    "volume",
                    module=system.module,
                    client=system.client,
                    address=address,
                    count=count,
                    nbytes=nbytes,
                )
                lines.append({"system": system.name, "times": times, "count": count, **call.result()})
    return {"capacity": capacity, "nbytes": nbytes, "lines": lines}


def disk(native: Native | None, plan: Plan) -> dict[str, Any]:
    """Spilling and reloading, compared with plain direct I/O of the same bytes to the same directory."""
    if native is None:
        raise Unavailable("this build has no bench_native")
    with on_disk() as folder:
        nbytes = plan.beyond_bytes
        figures = native.run("spill", folder / "native", nbytes, nbytes // 16, plan.disk_rounds)
    return {
        "bytes": nbytes,
        "blob": nbytes // 16,
        **{name: median(values) / 1e9 for name, values in figures.items() if isinstance(values, list)},
    }


def policies(under_test: SystemsUnderTest, plan: Plan) -> list[dict[str, Any]]:
    """A loop over twice the memory, and random reads of it, under each policy."""
    capacity = plan.beyond_bytes
    nbytes = capacity // 64
    lines = []
    for order in ("sequential", "random"):
        for label, name, reading in (*POLICIES, *BASELINE_POLICIES):
            if order == "random" and reading is not None:
                continue
            with spilling(under_test, capacity) as store:
                figures = store.call(
                    "policy",
                    count=2 * capacity // nbytes,
                    nbytes=nbytes,
                    passes=plan.beyond_passes,
                    order=order,
                    name=name,
                    reading=reading,
                )
            lines.append(
                {
                    "order": order,
                    "policy": label,
                    "seconds": median(figures["seconds"]),
                    "read": sum(figures["read"]) / len(figures["read"]),
                }
            )
    return lines


def latency(under_test: SystemsUnderTest, plan: Plan) -> dict[str, Any]:
    """Gets of 1 KiB: alone, while another client spills, and while a plain process generates the same load."""
    capacity, seconds = plan.beyond_bytes, plan.beyond_seconds

    def timed(store: SpillingDaemon, load: Callable[[], ClientProcess] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        reader = store.begin("latency", address=store.address, seconds=seconds, pause=PAUSE)
        reader.wait_ready()
        loader = load() if load is not None else None
        if loader is not None:
            time.sleep(min(2.0, seconds / 2))  # lets the load start, which then lasts longer
        reader.start()
        answer = reader.result()
        return answer, loader.result() if loader is not None else {}

    more = seconds + min(2.0, seconds / 2) + 1
    with spilling(under_test, capacity) as store:
        alone, _ = timed(store, None)
        spilled, moved = timed(
            store,
            lambda: store.begin("spilling", address=store.address, seconds=more, nbytes=capacity // 16, count=48),
        )
    with spilling(under_test, capacity) as store:
        plain, measured_load = timed(
            store, lambda: store.begin("plain_load", folder=str(store.disk), seconds=more, **moved)
        )
    return {"alone": alone, "spilling": spilled, "plain": plain, "moved": moved, "made": measured_load}


def restart(under_test: SystemsUnderTest, plan: Plan) -> dict[str, Any]:
    """Time from the daemon's kill until a new connection's first put and gets are answered."""
    nbytes, piece = plan.beyond_resident, min(64 * MIB, plan.beyond_resident // 4)
    samples = []
    with spilling(under_test, nbytes + max(nbytes // 4, 64 * MIB), spills=False) as store:
        filled = store.call("fill", nbytes=nbytes, piece=piece, objects=plan.beyond_objects)
        for _ in range(plan.beyond_rounds):
            keeper = store.server.pids()[0]
            daemon = wait_for(lambda pid=keeper: _daemon_below(pid), "the daemon's process")
            client = store.begin("first_answers", address=store.address, small=filled["small"], large=filled["large"])
            client.wait_ready()
            begin = time.monotonic()
            os.kill(daemon, signal.SIGKILL)
            client.start()
            answer = client.result()
            if answer["pid"] == daemon:
                raise ClientFailed("the daemon that was killed answered")
            sample = {name: answer[name] - begin for name in ("connected", "put", "got", "got_large")}
            sample["touched"] = _shared_bytes(answer["pid"])
            samples.append(sample)
    return {
        "bytes": nbytes,
        "objects": filled["objects"],
        **{name: median(sample[name] for sample in samples) for name in samples[0]},
        "worst": max(sample["got_large"] for sample in samples),
    }


def _daemon_below(keeper: int) -> int:
    for pid in descendants(keeper):
        try:
            if b"--role=daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        except FileNotFoundError:
            continue
    return 0


def _shared_bytes(pid: int) -> int:
    """Shared memory that a process has touched: control memory, and payload if it read any."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssShmem:"):
            return int(line.split()[1]) << 10
    raise ClientFailed("the kernel does not say how much shared memory a process has touched")


def checkpoints(under_test: SystemsUnderTest, plan: Plan) -> list[dict[str, Any]]:
    """Run ``python -m benchmarks checkpoints`` with the build under test."""
    with on_disk() as folder, tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [under_test.package.python, "-m", "benchmarks", "checkpoints", "--json", out.name]
        command += ["--mib", str(min(256, plan.beyond_bytes // 2 // MIB)), "--rounds", str(min(3, plan.beyond_rounds))]
        done = subprocess.run(
            [*command, "--folder", str(folder)],
            cwd=ROOT,
            env=under_test.package.variables,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode != 0:
            raise ClientFailed(done.stderr.strip()[-1000:])
        figures: list[dict[str, Any]] = json.loads(Path(out.name).read_text(encoding="utf-8"))
        return figures
