"""The three tasks: make a table, replace one of its columns, reduce it to a number. They know no orchestrator.

The table is a pandas DataFrame of int64 columns, each computed by itself, so that its columns are separate arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = 8
MIB = 1 << 20


def rows_of(mib: int) -> int:
    """Rows of a table of ``mib`` MiB."""
    return mib * MIB // 8 // COLUMNS


def make(mib: int | str) -> pd.DataFrame:
    """Task 1: the table of ``mib`` MiB; column ``k`` is the row's number plus ``k``."""
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame({"c0": np.arange(rows_of(int(mib)), dtype=np.int64)}, copy=False)
    for number in range(1, COLUMNS):
        frame[f"c{number}"] = frame["c0"] + number
    return frame


def replace(frame: Any) -> Any:
    """Task 2: the same table, with the sum of its first two columns in place of its last."""
    result = frame.copy(deep=False)
    result[f"c{COLUMNS - 1}"] = frame["c0"] + frame["c1"]
    return result


def report(frame: Any) -> dict[str, int]:
    """Task 3: the number of rows, and the sum of all columns modulo 2**63."""
    return {"rows": len(frame), "sum": sum(int(frame[name].sum()) for name in frame.columns) % 2**63}


def expected(mib: int) -> dict[str, int]:
    """What :func:`report` gives."""
    rows = rows_of(mib)
    once = rows * (rows - 1) // 2
    kept = COLUMNS - 1
    return {"rows": rows, "sum": (once * (kept + 2) + rows * (sum(range(kept)) + 1)) % 2**63}
