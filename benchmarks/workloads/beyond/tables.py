"""The group's part of the report, and its goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.harness.text import bytes_text, grid, rate_text, time_text


def sections(beyond: dict[str, Any]) -> Iterator[str]:
    """The parts of the report; empty if nothing was measured."""
    if not beyond:
        return
    yield "## Beyond memory"
    yield from _volume(beyond.get("volume"))
    yield from _disk(beyond.get("disk"))
    yield from _policies(beyond.get("policies"))
    yield from _latency(beyond.get("latency"))
    yield from _restart(beyond.get("restart"))
    yield from _checkpoints(beyond.get("checkpoints"))
    failures = beyond.get("failures", {})
    if failures:
        yield "Not measured:"
        yield "\n".join(f"- {name}: {' '.join(reason.split())[-300:]}" for name, reason in failures.items())


def _volume(volume: dict[str, Any] | None) -> Iterator[str]:
    if not volume:
        return
    yield (
        f"Arrays of {bytes_text(volume['nbytes'])} into a store of {bytes_text(volume['capacity'])}: all put, then "
        "all read back in each order, touching one word per page. Times, and how many were lost or wrong:"
    )
    head = ["system", "times the memory", "arrays", "put", "sequential", "reverse", "random", "lost", "wrong"]
    lines = []
    for line in volume["lines"]:
        orders = line["orders"]
        cells = [line["system"], str(line["times"]), str(line["count"]), time_text(line["put"])]
        cells += [time_text(orders[name]["seconds"]) for name in ("sequential", "reverse", "random")]
        cells += [str(max(order[what] for order in orders.values())) for what in ("lost", "wrong")]
        lines.append(cells)
    yield grid(head, lines)


def _disk(disk: dict[str, Any] | None) -> Iterator[str]:
    if not disk:
        return
    yield (
        f"{bytes_text(disk['bytes'])} in blobs of {bytes_text(disk['blob'])} to the same folder, alternating, GB/s; "
        "plain is direct I/O in pieces of 4 MiB without checksums:"
    )
    lines = []
    for what, ours, plain in (("spill", "spill_write", "plain_write"), ("reload", "spill_read", "plain_read")):
        rates = [rate_text(disk["bytes"], disk[name]) for name in (ours, plain, f"{plain}_one_thread")]
        lines.append([what, *rates, f"{disk[plain] / disk[ours]:.2f}"])
    yield grid(["", "Entrepot", "plain, as many threads", "plain, one thread", "share"], lines)


def _policies(policies: list[dict[str, Any]] | None) -> Iterator[str]:
    if not policies:
        return
    yield "Looping over twice the memory; time of one pass, and what it read from disk:"
    lines = []
    for row in policies:
        lru = _policy(policies, row["order"], "LRU")
        cells = [row["order"], row["policy"], time_text(row["seconds"]), bytes_text(row["read"])]
        if lru is not None and row["seconds"] and row["read"]:
            cells += [f"{lru['seconds'] / row['seconds']:.2f}", f"{lru['read'] / row['read']:.2f}"]
        else:
            cells += ["", ""]
        lines.append(cells)
    yield grid(["order", "policy", "time", "read", "LRU's time over it", "LRU's bytes over it"], lines)


def _latency(latency: dict[str, Any] | None) -> Iterator[str]:
    if not latency:
        return
    moved, plain_load = latency["moved"], latency["made"]
    yield "Get of a resident 1 KiB value from Python, every half millisecond, while:"
    words = {"alone": "nothing else runs", "spilling": "another client spills", "plain": "a plain process loads alike"}
    lines = [
        [text, time_text(latency[name]["p50"]), time_text(latency[name]["p99"]), str(latency[name]["samples"])]
        for name, text in words.items()
    ]
    yield grid(["", "median", "99 %", "n"], lines)
    yield "Load per second: " + "; ".join(
        f"{text} copied {bytes_text(load['copied'])}, written {bytes_text(load['written'])}, read "
        f"{bytes_text(load['read'])}"
        for text, load in (("spilling", moved), ("plain", plain_load))
    )


def _restart(restart: dict[str, Any] | None) -> Iterator[str]:
    if not restart:
        return
    yield (
        f"`kill -9` of the daemon with {bytes_text(restart['bytes'])} and {restart['objects']:,} objects resident: a "
        f"new connection is up after {time_text(restart['connected'])}, its first put is done after "
        f"{time_text(restart['put'])}, its get of an existing small value after {time_text(restart['got'])}, of an "
        f"existing large one after {time_text(restart['got_large'])} (worst {time_text(restart['worst'])}). The new "
        f"daemon had touched {bytes_text(restart['touched'])} of shared memory."
    )


def _checkpoints(checkpoints: list[dict[str, Any]] | None) -> Iterator[str]:
    if not checkpoints:
        return
    yield "Checkpoints compared with a plain write and read of the same bytes at the same target, MB/s:"
    lines = [
        [row["target"], row["what"], f"{row['ours']:.0f}", f"{row['plain']:.0f}", f"{row['ours'] / row['plain']:.2f}"]
        for row in checkpoints
    ]
    yield grid(["target", "", "Entrepot", "plain", "share"], lines)


def _policy(policies: list[dict[str, Any]], order: str, policy: str) -> dict[str, Any] | None:
    return next((row for row in policies if row["order"] == order and row["policy"] == policy), None)


def judge(
    beyond: dict[str, Any], at_most: Callable[..., None], at_least: Callable[[str, float | None, float], None]
) -> None:
    """Report each goal of the group with its figure; None if it was not measured."""
    volume = beyond.get("volume", {}).get("lines", [])
    ours = [row for row in volume if row["system"] == "entrepot"]
    for times in (2, 4):
        orders = [order for row in ours if row["times"] == times for order in row["orders"].values()]
        lost = sum(order["lost"] + order["wrong"] for order in orders) if orders else None
        at_most(f"{times} times the memory, three orders: lost or wrong", lost, 0, lambda number: f"{number:.0f}")
    disk = beyond.get("disk")
    for what, name in (("spill", "write"), ("reload", "read")):
        share = disk[f"plain_{name}"] / disk[f"spill_{name}"] if disk else None
        at_least(f"{what} over plain direct I/O", share, 0.9)
    policies = beyond.get("policies", [])
    for label in ("data aware, declared", "data aware, inferred"):
        aware, lru = _policy(policies, "sequential", label), _policy(policies, "sequential", "LRU")
        best = None
        if aware and lru and aware["read"] and aware["seconds"]:
            best = max(lru["read"] / aware["read"], lru["seconds"] / aware["seconds"])
        at_least(f"loop over twice the memory, LRU over {label}, time or bytes", best, 1.6)
    aware, lru = _policy(policies, "random", "data aware, inferred"), _policy(policies, "random", "LRU")
    # Both do the same reads: bytes are exact except for those in flight, whereas time depends on the machine.
    kept = lru["read"] / aware["read"] if aware and lru and aware["read"] else None
    at_least("random reads of twice the memory, LRU over data aware, bytes", kept, 0.97)
    latency = beyond.get("latency")
    ratio = latency["spilling"]["p99"] / latency["plain"]["p99"] if latency else None
    at_most("get 1 KiB while spilling over beside a plain load, 99 %", ratio, 2.0, lambda number: f"{number:.2f}")
    restart = beyond.get("restart")
    at_most("first put and gets after the daemon's kill, worst", restart["worst"] if restart else None, 1.0)
    for row in beyond.get("checkpoints", []):
        if "not synced" not in row["what"]:
            at_least(f"checkpoint, {row['target']}: {row['what']}", row["ours"] / row["plain"], 0.8)
