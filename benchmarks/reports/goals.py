"""Entrepot's goals, and the figures reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.figures import FIRST, FREE, SAME_CORE, TWO_CORES, WARM, Row
from benchmarks.harness.plan import KIB
from benchmarks.harness.text import bytes_text, grid, time_text
from benchmarks.reports.tables import OURS, Rows
from benchmarks.reports.zero_copy import judge as judge_zero_copy
from benchmarks.workloads.beyond.tables import judge
from benchmarks.workloads.small import state_name

MIB = 1 << 20


@dataclass
class Goal:
    """One goal; ``met`` is None if it was not measured."""

    what: str
    goal: str
    reached: str
    met: bool | None


def goals(result: dict[str, Any]) -> list[Goal]:
    """All goals, from a result."""
    rows = Rows([Row.from_json(row) for row in result.get("rows", [])])
    results: list[Goal] = []

    def at_most(what: str, value: float | None, most: float, text: Callable[[float], str] = time_text) -> None:
        reached = "not measured" if value is None else text(value)
        results.append(Goal(what, f"at most {text(most)}", reached, None if value is None else value <= most))

    def share(what: str, ours: float | None, other: float | None, most: float) -> None:
        value = None if ours is None or other is None else ours / other
        at_most(what, value, most, lambda number: f"{number:.2f}")

    kib = state_name(KIB)
    get = rows.find("small", kib, "get", OURS)
    at_most("get 1 KiB bytes, Python, median", get.median if get else None, 1e-6)
    at_most("get 1 KiB bytes, Python, 99 %", get.p99 if get else None, 3e-6)
    native = rows.find("small", kib, "get", "entrepot from C++, in place")
    at_most("get 1 KiB, C++", native.median if native else None, 50e-9)
    for cpus in (FREE, SAME_CORE, TWO_CORES):
        ours, raw = (rows.find("small", kib, "put", name, cpus=cpus) for name in (OURS, "plasma raw"))
        share(f"put 1 KiB over Plasma's raw put, cores: {cpus}", _median_of(ours), _median_of(raw), 0.5)
    _many(rows, result, at_most)
    for state in rows.states("large"):
        limit = _best(rows, "large", state)
        first = rows.find("large", state, "put", OURS, FIRST)
        warmed = rows.find("large", state, "put", f"{OURS}, all warm", FIRST)
        share(
            f"put {state} over the best copy measured",
            _median_of(rows.find("large", state, "put", OURS)),
            limit,
            1 / 0.9,
        )
        share(f"first put {state}, all warm, over the best copy", _median_of(warmed), limit, 1 / 0.9)
        share(f"first put {state}, as by default, over the best copy", _median_of(first), limit, 1 / 0.9)
        at_most(
            f"{state} in hand, later gets",
            _median_of(rows.find("large", state, "get", OURS)),
            200e-6 if "table" in state else 50e-6,
        )
        item, two = (rows.find("large", state, f"{name} sum", OURS, FIRST) for name in ("first", "second"))
        share(f"{state}: first sum over the second", _median_of(item), _median_of(two), 1.15)
    for state in rows.states("together"):
        share(
            f"{state} over plain copies",
            _median_of(rows.find("together", state, "put", OURS)),
            _best(rows, "together", state),
            1 / 0.8,
        )
    cost: dict[str, Any] = next((item for item in result.get("costs", []) if item["system"] == OURS), {})
    at_most("idle server, private memory", cost.get("idle_private"), 15 * MIB, bytes_text)
    at_most("idle server, processor seconds a second", cost.get("idle_cpu"), 0.001, lambda number: f"{number:.5f}")
    at_most("import entrepot", cost.get("import_time"), 60e-3)
    at_most("from nothing to the first put", result.get("first put", {}).get("median"), 100e-3)

    def at_least(what: str, value: float | None, least: float) -> None:
        reached = "not measured" if value is None else f"{value:.2f}"
        results.append(Goal(what, f"at least {least:.2f}", reached, None if value is None else value >= least))

    judge(result.get("beyond", {}), at_most, at_least)
    judge_zero_copy(result.get("zero-copy", {}), at_most, at_least)
    return results


def _many(rows: Rows, result: dict[str, Any], at_most: Callable[..., None]) -> None:
    for state in rows.states("many"):
        for operation, most in (("put", 7e-6), ("get", 1.5e-6)):
            row = rows.find("many", state, operation, OURS, FIRST)
            at_most(f"{operation} one of {state}", _median_of(row), most)
    for overhead in result.get("overheads", []):
        if overhead["system"] == OURS:
            total = overhead["server"] + (overhead["store"] or 0)
            at_most("memory of a small object beyond its payload, store and server", total, 250, bytes_text)


def _median_of(row: Row | None) -> float | None:
    return None if row is None else row.median


def _best(rows: Rows, group: str, state: str) -> float | None:
    """The fastest measured copy, of all methods."""
    limits = [
        row.median
        for row in rows.rows
        if row.key.group == group
        and row.key.state == state
        and row.key.use == WARM
        and row.key.system.startswith("limit:")
    ]
    return min(limits, default=None)


def goals_table(result: dict[str, Any]) -> str:
    """As Markdown."""
    words = {True: "yes", False: "**no**", None: ""}
    lines = [[goal.what, goal.goal, goal.reached, words[goal.met]] for goal in goals(result)]
    return grid(["goal", "wanted", "reached", "met"], lines)
