"""The three tasks: make a table, replace one of its columns, reduce it to a number. They know no orchestrator.

The table is a pandas DataFrame whose columns are separate arrays. HANDOFF_COLUMNS says what they are: 64-bit integers,
texts of Arrow, or Python's own strings. Texts are decimal numbers of equal length.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = 8
MIB = 1 << 20
KIND_VARIABLE = "HANDOFF_COLUMNS"
INT64, ARROW_STRINGS, OBJECT_STRINGS = KINDS = ("int64", "arrow-strings", "object-strings")
DIGITS = 16
# What a value takes in memory. Of Arrow, text and offset; of Python, a string and the pointer to it.
VALUE_BYTES = {INT64: 8, ARROW_STRINGS: DIGITS + 8, OBJECT_STRINGS: DIGITS + 49 + 8}


def kind_of_columns() -> str:
    """What the columns of this run's table are."""
    return os.environ.get(KIND_VARIABLE, INT64)


def rows_of(mib: int) -> int:
    """Rows of a table of ``mib`` MiB."""
    return mib * MIB // VALUE_BYTES[kind_of_columns()] // COLUMNS


def make(mib: int | str) -> pd.DataFrame:
    """Task 1: the table of ``mib`` MiB; column ``k`` is the row's number plus ``k``."""
    import numpy as np
    import pandas as pd

    kind, rows = kind_of_columns(), rows_of(int(mib))
    if kind != INT64:
        return pd.DataFrame({f"c{number}": _texts(rows, number, kind) for number in range(COLUMNS)}, copy=False)
    frame = pd.DataFrame({"c0": np.arange(rows, dtype=np.int64)}, copy=False)
    for number in range(1, COLUMNS):
        frame[f"c{number}"] = frame["c0"] + number
    return frame


def _texts(rows: int, first: int, kind: str) -> Any:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pa.array(np.arange(first, first + rows)).cast(pa.large_string())
    texts: Any = pc.call_function("utf8_lpad", [numbers], pc.PadOptions(DIGITS, "0"))
    if kind == ARROW_STRINGS:
        return pd.arrays.ArrowStringArray(pa.chunked_array([texts]))
    return pd.Series(texts.to_numpy(zero_copy_only=False), dtype=object)


def replace(frame: Any) -> Any:
    """Task 2: the same table, with the sum (of texts, the concatenation) of its first two columns in its last."""
    result = frame.copy(deep=False)
    result[f"c{COLUMNS - 1}"] = frame["c0"] + frame["c1"]
    return result


def report(frame: Any) -> dict[str, int]:
    """Task 3: the number of rows, and the sum of all columns modulo 2**63; of texts, of lengths and last values."""
    if kind_of_columns() == INT64:
        total = sum(int(frame[name].sum()) for name in frame.columns)
    else:
        total = sum(int(frame[name].str.len().sum()) + int(frame[name].iloc[-1]) for name in frame.columns)
    return {"rows": len(frame), "sum": total % 2**63}


def expected(mib: int) -> dict[str, int]:
    """What :func:`report` gives."""
    rows, kept = rows_of(mib), COLUMNS - 1
    if kind_of_columns() == INT64:
        once = rows * (rows - 1) // 2
        return {"rows": rows, "sum": (once * (kept + 2) + rows * (sum(range(kept)) + 1)) % 2**63}
    last = [rows - 1 + number for number in range(kept)]
    total = rows * DIGITS * (kept + 2) + sum(last) + int(f"{last[0]:0{DIGITS}d}{last[1]:0{DIGITS}d}")
    return {"rows": rows, "sum": total % 2**63}
