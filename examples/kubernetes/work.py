"""The containers' program: each stage reads its inputs from its node's store, and writes its output there.

python -m examples.kubernetes.work load SHARD ROWS | clean SHARD | train SHARD | report NUMBER...
"""

from __future__ import annotations

import os
import sys

import entrepot
import numpy as np


def output_name(stage: str, shard: int) -> str:
    """Name of a stage's output in the store."""
    return f"{stage}-{shard}"


def load(store: entrepot.Store, shard: int, rows: int) -> str:
    """Generate readings of a year, some of them invalid."""
    generator = np.random.default_rng(shard)
    days = np.linspace(0, 2 * np.pi, rows)
    readings = np.column_stack([np.sin(days), np.cos(days), 3 * np.sin(days) + generator.normal(0, 0.1, rows)])
    readings[generator.integers(0, rows, rows // 50), 2] = np.nan
    store.put(readings, name=output_name("raw", shard))
    return f"{rows} rows"


def clean(store: entrepot.Store, shard: int) -> str:
    """Remove the invalid readings."""
    raw = store.get_by_name(output_name("raw", shard))
    valid = raw[~np.isnan(raw[:, 2])]
    store.put(valid, name=output_name("clean", shard))
    return f"{len(valid)} rows"


def train(store: entrepot.Store, shard: int) -> str:
    """Fit a straight line and return its slope, small enough to be printed."""
    rows = store.get_by_name(output_name("clean", shard))
    solution = np.linalg.lstsq(rows[:, :2], rows[:, 2], rcond=None)[0]
    return f"{solution[0]:.6f}"


def main() -> int:
    """Run one stage of one shard; the last line printed is its answer."""
    stage, *rest = sys.argv[1:]
    if stage == "report":
        print(f"{np.mean([float(argument) for argument in rest]):.3f}")
        return 0
    with entrepot.connect() as store:
        shard = int(rest[0])
        if stage == "load":
            answer = load(store, shard, int(rest[1]))
        else:
            answer = {"clean": clean, "train": train}[stage](store, shard)
        print(f"on {os.environ['ENTREPOT_NODE']}", file=sys.stderr)
    print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
