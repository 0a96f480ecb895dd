"""Plots of how costs grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

WIDTH, HEIGHT = 7.0, 4.2


def draw(scaling: dict[str, Any], folder: Path) -> list[Path]:
    """Draw what was measured; returns the files."""
    plots: list[Path] = []
    if not scaling:
        return plots
    folder.mkdir(parents=True, exist_ok=True)
    if scaling.get("objects"):
        plots.append(_objects(scaling["objects"], folder / "objects.png"))
    if scaling.get("clients"):
        plots.append(_clients(scaling["clients"], folder / "clients.png"))
    if scaling.get("sizes"):
        plots.append(_sizes(scaling["sizes"], folder / "sizes.png"))
    if scaling.get("fragmentation", {}).get("points"):
        plots.append(_fragmentation(scaling["fragmentation"], folder / "fragmentation.png"))
    return plots


def _axes(title: str, x: str, y: str) -> tuple[Any, Any]:
    figure, axes = plt.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, which="major", alpha=0.3)
    return figure, axes


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _objects(points: list[dict[str, Any]], path: Path) -> Path:
    figure, axes = _axes("One call with ever more objects in the store", "objects in the store", "microseconds")
    counts = [point["objects"] for point in points]
    for name in ("get", "put"):
        axes.plot(counts, [point[name]["median"] * 1e6 for point in points], marker="o", label=f"{name}, median")
        axes.plot(
            counts, [point[name]["p99"] * 1e6 for point in points], marker=".", linestyle=":", label=f"{name}, 99 %"
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend()
    return _save(figure, path)


def _clients(points: list[dict[str, Any]], path: Path) -> Path:
    figure, axes = _axes("Clients in C, all at once, 1 KiB", "clients", "operations a second, all together")
    counts = [point["clients"] for point in points]
    axes.plot(counts, [point["gets_per_second"] for point in points], marker="o", label="gets")
    axes.plot(counts, [point["puts_per_second"] for point in points], marker="o", label="puts")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.legend()
    return _save(figure, path)


def _sizes(sizes: dict[str, list[dict[str, Any]]], path: Path) -> Path:
    figure, axes = _axes("Later puts (solid) and gets in hand (dotted) by size", "bytes", "seconds")
    for name, points in sizes.items():
        if not points:
            continue
        x = [point["bytes"] for point in points]
        [line] = axes.plot(x, [point["put"]["median"] for point in points], marker="o", label=name)
        if "get" in points[0]:
            y = [point["get"]["median"] for point in points]
            axes.plot(x, y, marker=".", linestyle=":", color=line.get_color())
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.legend()
    return _save(figure, path)


def _fragmentation(churned: dict[str, Any], path: Path) -> Path:
    figure, axes = _axes("Random sizes put and deleted", "puts", "share of the free bytes")
    puts = [point[0] for point in churned["points"]]
    axes.plot(puts, [point[2] / point[1] for point in churned["points"]], label="largest extent as it lies")
    axes.plot(puts, [point[3] / point[1] for point in churned["points"]], label="largest lease for a new client")
    axes.set_ylim(0, 1)
    axes.legend()
    return _save(figure, path)
