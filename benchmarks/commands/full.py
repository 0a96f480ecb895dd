"""The complete measurement: all groups, saved after each."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.figures import Collector, Row
from benchmarks.harness.limits import Native
from benchmarks.harness.machine import commit, machine
from benchmarks.harness.packages import developers, native_of_developers, release
from benchmarks.harness.plan import FULL, MIB, SHORT, TINY
from benchmarks.harness.stage import SystemsUnderTest
from benchmarks.reports.report import publish, write
from benchmarks.systems import ENTREPOT, SYSTEMS, by_name
from benchmarks.workloads import costs, large, many, profiles, scaling, small, zero_copy
from benchmarks.workloads.beyond.measure import measure as measure_beyond

OUT = Path("build/bench")
PLANS = {"full": FULL, "short": SHORT, "tiny": TINY}
GROUPS = ["small", "many", "large", "together", "costs", "profile", "scaling", "beyond", "zero-copy"]
# Systems measured beside Entrepot where all peers would take too long.
PROFILED = ("entrepot", "plasma raw", "vineyard", "lmdb", "redis", "pickle 5 on tmpfs")
SIZED = ("entrepot", "plasma", "vineyard", "pickle 5 on tmpfs")


def add_full(commands: Any) -> None:
    """Add ``full`` to the command line."""
    parser = commands.add_parser("full", help="everything, beside the peers and the limits")
    parser.add_argument("--plan", choices=PLANS, default="full", help="how much; default: full")
    parser.add_argument("--only", nargs="*", choices=GROUPS, default=GROUPS, help="only these groups")
    parser.add_argument("--systems", nargs="*", default=[system.name for system in SYSTEMS], help="only these")
    parser.add_argument("--build", choices=["release", "developers"], default="release", help="of Entrepot")
    parser.add_argument("--rounds", type=int, help="turns of every system, in all groups")
    parser.add_argument(
        "--objects", type=int, help="most objects in the store, for the plot of them (10000000 needs 8 GiB)"
    )
    parser.add_argument("--clients", type=int, help="most clients, for the plot of them")
    parser.add_argument("--largest-mib", type=int, help="largest value, for the plot of sizes")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results")
    parser.add_argument("--add", action="store_true", help="keep the groups that the results there have already")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md, too")
    parser.set_defaults(run=run)

    parser = commands.add_parser("report", help="the report of earlier results")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md, too")
    parser.set_defaults(run=run_report)


def _earlier(path: Path, measured: list[str]) -> dict[str, Any]:
    """The results of an earlier run of the same commit, except the groups to be measured now.

    Raises:
        SystemExit: they belong to another commit.
    """
    if not path.exists():
        return {}
    earlier: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if earlier["commit"]["commit"] != commit()["commit"]:
        raise SystemExit(f"{path} holds results of commit {earlier['commit']['commit']}: use another --out")
    earlier["rows"] = [row for row in earlier["rows"] if row["group"] not in measured]
    return earlier


def run(arguments: argparse.Namespace) -> int:
    """Measure what the command line requests."""
    import os

    began = time.monotonic()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    plan = PLANS[arguments.plan].fitted(memory)
    overrides = {
        "rounds": arguments.rounds,
        "large_rounds": arguments.rounds,
        "scale_objects": arguments.objects,
        "scale_clients": arguments.clients,
        "scale_bytes": arguments.largest_mib and arguments.largest_mib * MIB,
    }
    plan = replace(plan, **{name: value for name, value in overrides.items() if value})
    result: dict[str, Any] = {
        "machine": machine(),
        "commit": commit(),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "plan": vars(plan),
    }
    if arguments.build == "release":
        package = release()
        program = package.native
    else:
        package = developers()
        program = native_of_developers()
    native = Native(program) if program is not None else None
    result["build"] = package.label
    under_test = SystemsUnderTest(package)
    systems = under_test.prepare(by_name(arguments.systems))
    collector = Collector()
    arguments.out.mkdir(parents=True, exist_ok=True)

    earlier = _earlier(arguments.out / "latest.json", arguments.only) if arguments.add else {}
    if earlier:
        result["command"] = f"{earlier['command']}; {result['command']}"

    def save() -> None:
        rows = [Row.from_json(row) for row in earlier.get("rows", [])] + collector.rows()
        result["rows"] = [row.to_json() for row in rows]
        result["missing"] = under_test.missing
        result["versions"] = earlier.get("versions", {}) | under_test.versions
        result["failures"] = earlier.get("failures", []) + [[*at, reason] for at, reason in under_test.failures.items()]
        result["seconds"] = round(time.monotonic() - began) + earlier.get("seconds", 0)
        whole = earlier | result
        (arguments.out / "latest.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        write(whole, arguments.out)

    def overheads() -> None:
        result["overheads"] = [item.to_json() for item in many.measure(under_test, systems, plan, collector)]

    def costs_group() -> None:
        result["costs"] = [cost.to_json() for cost in costs.measure(under_test, systems)]
        if ENTREPOT in systems:
            result["first put"] = costs.first_put(under_test)

    def profile_group() -> None:
        profiled = [system for system in systems if system.name in PROFILED]
        calls, reason = profiles.system_calls(under_test, profiled)
        result["system calls"] = {"calls": [item.to_json() for item in calls], "absent": reason}
        if native is not None and ENTREPOT in systems:
            counts, how = profiles.instructions(under_test, native)
            result["instructions"] = {"counts": counts, "how": how}

    def scaling_group() -> None:
        scaled: dict[str, Any] = {}
        result["scaling"] = scaled
        if ENTREPOT in systems:
            scaled["objects"] = scaling.objects(under_test, plan)
            if native is not None:
                scaled["clients"] = scaling.clients(under_test, native, plan)
            scaled["fragmentation"] = scaling.fragmentation(under_test, plan)
        sized = [system for system in systems if system.name in SIZED]
        scaled["sizes"] = scaling.sizes(under_test, sized, native, plan)

    def beyond_group() -> None:
        if ENTREPOT in systems:
            result["beyond"] = measure_beyond(under_test, systems, native, plan)

    def zero_copy_group() -> None:
        if ENTREPOT in systems:
            result["zero-copy"] = zero_copy.measure(under_test, plan)

    groups: dict[str, Callable[[], None]] = {
        "small": lambda: small.measure(under_test, systems, native, plan, collector),
        "many": overheads,
        "large": lambda: large.measure(under_test, systems, native, plan, collector),
        "together": lambda: large.measure_together(under_test, systems, native, plan, collector),
        "costs": costs_group,
        "profile": profile_group,
        "scaling": scaling_group,
        "beyond": beyond_group,
        "zero-copy": zero_copy_group,
    }
    for name, measure in groups.items():
        if name in arguments.only:
            begin = time.monotonic()
            print(f"== {name}", flush=True)
            measure()
            save()
            print(f"   {time.monotonic() - begin:.0f} s", flush=True)
    if arguments.docs:
        publish(earlier | result)
    print((arguments.out / "benchmarks.md").read_text(encoding="utf-8"))
    print(f"written: {arguments.out}/latest.json, benchmarks.md, plots")
    return 0


def run_report(arguments: argparse.Namespace) -> int:
    """Write the report of existing results."""
    path = arguments.out / "latest.json"
    if not path.exists():
        raise SystemExit(f"there are no results in {path}: run 'python -m benchmarks full' first")
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    write(result, arguments.out)
    if arguments.docs:
        publish(result)
    print((arguments.out / "benchmarks.md").read_text(encoding="utf-8"))
    return 0
