"""pandas as an engine: a table in memory, exported and imported as CSV."""

from __future__ import annotations

import sys

import pandas as pd

from benchmarks.pipes.programs.engine_loop import serve

table = pd.read_csv(sys.argv[1])


def export(name: str, header: bool) -> None:
    """Write the table, with a header."""
    table.to_csv(name, index=False)


def take(name: str, header: bool) -> tuple[int, int]:
    """Read a table; its rows, and the sum of the first column."""
    frame = pd.read_csv(name) if header else pd.read_csv(name, header=None, names=list(table.columns))
    return len(frame), int(frame["id"].sum())


serve(export, take)
