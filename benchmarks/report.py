"""The report: Markdown for the terminal and the documentation, from the results of a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.beyond.tables import sections
from benchmarks.figures import Row
from benchmarks.goals import goals_table
from benchmarks.plots import draw
from benchmarks.stage import versions_text
from benchmarks.systems import SYSTEMS
from benchmarks.tables import Rows, many_table, put_table, read_table, small_table, together_table
from benchmarks.text import bytes_text, grid, time_text

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
# Written by hand after a run: why what is missed is missed.
FINDINGS = ROOT / "benchmarks" / "findings.md"
PICTURES = ROOT / "docs" / "benchmarks"
READING = """\
Each system runs in processes of its own: a server where it has one, a producer and a consumer. The systems take
turns, each round beginning with another, so that a busy moment of the machine disturbs all alike; times of all
rounds are put together. "5 % .. 95 %" is where nine tenths of the samples lie. "x entrepot" is a median over
Entrepot's: above 1 it is slower than Entrepot. "CPU" is processor time of one operation, client and server
together. "foreign" is the share of all processors that somebody else kept busy meanwhile: above 0.1 a row is
doubtful. The columns before "one core" leave the processors free; the others bind clients and server to one, or the
server to another than its clients. A later put goes to memory that was written before, a first put is the first of
a new server, on a machine whose memory is there already (a process holds it until a turn begins). Rows that begin
with "limit:" are no stores: they are what the machine can do at best.
"""


def write(result: dict[str, Any], out: Path) -> None:
    """Writes ``benchmarks.md`` and the plots into a folder."""
    pictures = draw(result.get("scaling", {}), out / "plots")
    (out / "benchmarks.md").write_text(page(result, [f"plots/{path.name}" for path in pictures]), encoding="utf-8")


def publish(result: dict[str, Any]) -> None:
    """Writes the documentation's page and its pictures."""
    shutil.rmtree(PICTURES, ignore_errors=True)
    pictures = draw(result.get("scaling", {}), PICTURES)
    PAGE.write_text(page(result, [f"benchmarks/{path.name}" for path in pictures]), encoding="utf-8")


def page(result: dict[str, Any], pictures: Sequence[str]) -> str:
    """The whole report."""
    parts = [
        "# Benchmarks",
        *_head(result),
        "## Goals",
        goals_table(result),
        "## What the figures say",
        FINDINGS.read_text(encoding="utf-8").strip(),
        "## How to read the tables",
        READING.strip(),
    ]
    parts += _systems(result)
    rows = Rows([Row.from_json(row) for row in result.get("rows", [])])
    parts += _speed(rows, result)
    parts += _costs(result)
    parts += _profile(result)
    parts += sections(result.get("beyond", {}))
    parts += _scaling(result.get("scaling", {}), pictures)
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(result: dict[str, Any]) -> Iterator[str]:
    commit = result["commit"]
    changed = f", {commit['changed files']} files changed since" if commit["changed files"] else ""
    yield (
        f"Made by `{result['command']}` at commit `{commit['commit'][:12]}`{changed}, {commit['date']}, "
        f"{result['build']}, in {result.get('seconds', 0) / 60:.0f} minutes. Repeat it with `make bench`; this page is "
        "written by `make bench BENCH_ARGS=--docs`."
    )
    yield grid(["machine", ""], [[name, str(value)] for name, value in result["machine"].items()])


def _systems(result: dict[str, Any]) -> Iterator[str]:
    versions = result.get("versions", {})
    lines = [
        [system.name, versions_text(versions[system.name]), system.about]
        for system in SYSTEMS
        if system.name in versions
    ]
    if lines:
        yield "## Systems"
        yield "\n".join(
            f"- **{name}**{': ' if words or about else ''}{'; '.join(part for part in (words, about) if part)}"
            for name, words, about in lines
        )
    absent = [
        f"- **{name}** could not be had on this machine: {reason}" for name, reason in result.get("missing", {}).items()
    ]
    failed = [f"- **{name}** was given up at `{at}`: {reason}" for name, at, reason in result.get("failures", [])]
    if absent or failed:
        yield "Without figures, or with fewer:"
        yield "\n".join([*absent, *failed])


def _speed(rows: Rows, result: dict[str, Any]) -> Iterator[str]:
    for state in rows.states("small"):
        yield f"## {state[0].upper()}{state[1:]}, one at a time"
        for operation in ("get", "put"):
            if rows.systems("small", state, operation):
                yield f"{operation.capitalize()}:"
                yield small_table(rows, state, operation)
    for state in rows.states("many"):
        yield f"## {state}"
        yield "First use, everything kept; batches where the system has them; memory beyond the payload."
        yield many_table(rows, state, result.get("overheads", []))
    for state in rows.states("large"):
        yield f"## {state[0].upper()}{state[1:]}"
        yield "Put:"
        yield put_table(rows, state)
        yield "Get by a connected process that has read a small value of this kind before; then every byte read twice:"
        yield read_table(rows, state)
    for state in rows.states("together"):
        yield f"## {state}"
        yield "From the common start until the last is done."
        yield together_table(rows, state)


def _costs(result: dict[str, Any]) -> Iterator[str]:
    costs = result.get("costs")
    if not costs:
        return
    yield "## Before and between"
    head = ["system", "server start", "idle CPU a second", "idle private memory", "processes", "import"]
    lines = []
    for one in costs:
        cells = [one["system"], time_text(one["start"])]
        cells += [time_text(one["idle_cpu"]), bytes_text(one["idle_private"])]
        cells += [str(one["processes"] or ""), time_text(one["import_time"])]
        if any(cells[1:]):
            lines.append(cells)
    yield grid(head, lines)
    first = result.get("first put")
    if first:
        yield (
            f"`entrepot.connect()` without a running daemon, until the first put of 1 KiB is done: "
            f"{time_text(first['median'])} ({time_text(first['best'])} .. {time_text(first['worst'])}, "
            f"{first['samples']} samples)."
        )


def _profile(result: dict[str, Any]) -> Iterator[str]:
    calls = result.get("system calls")
    if calls:
        yield "## System calls of one operation"
        if calls["absent"]:
            yield f"Not counted: {calls['absent']}."
        if calls["calls"]:
            yield "1 KiB of bytes, warm; counted by `strace -c`."
            lines = [
                [one["system"], one["operation"], _calls(one["client"]), _calls(one["server"])]
                for one in calls["calls"]
            ]
            yield grid(["system", "operation", "client", "server"], lines)
    counted = result.get("instructions")
    if counted:
        yield "## Instructions of one operation"
        lines = [[name, f"{count:,.0f}"] for name, count in counted["counts"].items()]
        if lines:
            yield f"Entrepot's client, 1 KiB of bytes; {counted['how']}."
            yield grid(["operation", "instructions"], lines)
        else:
            yield f"Not counted: {counted['how']}."


def _calls(calls: dict[str, float]) -> str:
    if not calls:
        return "none"
    ordered = sorted(calls.items(), key=lambda one: -one[1])
    return f"{sum(calls.values()):.1f}: " + ", ".join(f"{name} {count:.3g}" for name, count in ordered[:6])


def _scaling(scaling: dict[str, Any], pictures: Sequence[str]) -> Iterator[str]:
    if not scaling:
        return
    yield "## How cost grows"
    if scaling.get("objects"):
        head = [
            "objects in the store",
            "get 1",
            "99 %",
            "put 1",
            "99 %",
            "put in batches, each",
            "bytes each beyond payload",
        ]
        lines = [
            [
                f"{point['objects']:,}",
                *(time_text(point[name][part]) for name in ("get", "put") for part in ("median", "p99")),
                time_text(point["fill"]),
                f"{point['overhead']:.0f}",
            ]
            for point in scaling["objects"]
        ]
        yield grid(head, lines)
    if scaling.get("clients"):
        head = ["clients", "get, median", "99 %", "gets a second", "put, median", "99 %", "puts a second"]
        lines = [
            [
                str(point["clients"]),
                time_text(point["get"]),
                time_text(point["get_p99"]),
                f"{point['gets_per_second']:,.0f}",
                time_text(point["put"]),
                time_text(point["put_p99"]),
                f"{point['puts_per_second']:,.0f}",
            ]
            for point in scaling["clients"]
        ]
        yield "C clients of 1 KiB values in processes of their own, each as fast as it can:"
        yield grid(head, lines)
    sizes = scaling.get("sizes")
    if sizes:
        yield "Arrays of bytes of one size after the other, later puts and gets, medians:"
        steps = sorted({point["bytes"] for points in sizes.values() for point in points})
        head = ["size", *(f"{name}: put" for name in sizes), *(f"{name}: get" for name in sizes)]
        at = {name: {point["bytes"]: point for point in points} for name, points in sizes.items()}
        lines = []
        for size in steps:
            cells = [bytes_text(size)]
            for operation in ("put", "get"):
                cells += [time_text(at[name].get(size, {}).get(operation, {}).get("median")) for name in sizes]
            lines.append(cells)
        yield grid(head, lines)
    churned = scaling.get("fragmentation")
    if churned and churned["points"]:
        puts, free, largest, lease, alive = churned["points"][-1]
        yield (
            f"Fragmentation: {churned['puts']:,} puts of random sizes ({bytes_text(churned['bytes'])} in "
            f"{churned['seconds']:.0f} s) into a store of {bytes_text(churned['capacity'])} that is kept half full, "
            f"{churned['refused']} refused. After {puts:,} puts {alive:,} objects live, {bytes_text(free)} are free, "
            f"and the largest free extent is {bytes_text(largest)}: {largest / free:.2f} of it. A new client could be "
            f"leased {bytes_text(lease)} in one piece, {lease / free:.2f} of it, because holes go back to the machine "
            f"and come again as a new segment. One array of {bytes_text(churned['large'])} was then put by such a "
            f"client in {time_text(churned['large_seconds']) or 'vain'}."
        )
    yield "\n".join(f"![{Path(path).stem}]({path})" for path in pictures)
