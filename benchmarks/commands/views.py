"""``python -m benchmarks views``: how quick the page is on many objects, and what the views take of a core.

While ``--busy`` puts a second change the store, so that its objects are listed again and again. Each figure is shown
with its goal, and as a share of it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.looking import RunningPage, drawn_top, refreshed_page, repeated
from benchmarks.harness.machine import commit, machine
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction

STORE_MIB = 1024
_REFRESHES = 40
_GOALS = {
    "page open until it can be used, ms": 1000.0,
    "refresh, median, ms": 50.0,
    "refresh, slowest of 40, ms": 50.0,
    "entrepot top, % of a core": 2.0,
}


def add_views(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``views``."""
    parser = commands.add_parser("views", help="the page and entrepot top on many objects")
    parser.add_argument("--objects", type=int, default=100_000, help="in the store (default 100,000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="in which top's CPU time counts (default 60)")
    parser.add_argument(
        "--settle", type=float, default=15.0, help="seconds before that, in which it starts and lists (default 15)"
    )
    parser.add_argument("--busy", type=float, default=10.0, help="puts a second meanwhile (default 10; 0: none)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    import entrepot

    figures: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="entrepot-bench-") as folder,
        own_store(Path(folder) / "store", STORE_MIB, "--spill-path", "none") as running,
        entrepot.connect(running.address, scope="bench", session="views") as store,
    ):
        for start in range(0, arguments.objects, 10_000):
            store.put_many([b"x" * 100] * min(10_000, arguments.objects - start))
        busy = repeated(lambda: store.put(b"y" * 1000), 1 / arguments.busy) if arguments.busy else nullcontext()
        with busy:
            with refreshed_page(running.address) as page:
                figures |= _refreshes(page)
                figures |= _opening(page)
            with drawn_top(running.address) as process:
                share = _share_of_core(process.pid, arguments.settle, arguments.seconds)
                figures["entrepot top, % of a core"] = share * 100
    rows = [
        [name, f"{figure:.2f}", f"{_GOALS[name]:g}", f"{figure / _GOALS[name]:.2f}"] for name, figure in figures.items()
    ]
    print(grid(["", "measured", "goal", "share of the goal"], rows))
    if arguments.json:
        document = {"machine": machine(), "commit": commit(), "figures": figures, "goals": _GOALS}
        arguments.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


def _refreshes(page: RunningPage) -> dict[str, float]:
    times: list[float] = []
    for _ in range(_REFRESHES):
        began = time.perf_counter()
        page.refresh()
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.25)
    return {"refresh, median, ms": statistics.median(times), "refresh, slowest of 40, ms": max(times)}


def _opening(page: RunningPage) -> dict[str, float]:
    """From the link to the page that shows objects and takes keys, in Chromium; nothing where that is missing."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None or find_spec("playwright") is None:
        print("the time until the page can be used is not measured: that needs Playwright and Chromium\n")
        return {}
    from playwright.sync_api import sync_playwright

    times: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(5):
            view = browser.new_page()
            began = time.perf_counter()
            view.goto(page.link)
            view.wait_for_selector("body[data-ready]")
            view.wait_for_selector("#objects tbody tr")
            times.append((time.perf_counter() - began) * 1000)
            view.close()
        browser.close()
    return {"page open until it can be used, ms": statistics.median(times)}


def _share_of_core(pid: int, settle: float, seconds: float) -> float:
    """The CPU time of a process, as a share of what a core has, once it has settled."""
    process = psutil.Process(pid)
    time.sleep(settle)
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
