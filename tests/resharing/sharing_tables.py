"""All tables of cases, and the part of docs/resharing.md that shows them.

``python tests/resharing/sharing_tables.py`` rewrites that part.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import ModuleType

import arrow_cases
import numpy_cases
import pandas_cases
import polars_cases
from sharing_case import COLUMN, ROWS, Case

LIBRARIES: dict[str, ModuleType] = {
    "NumPy": numpy_cases,
    "Arrow": arrow_cases,
    "pandas": pandas_cases,
    "Polars": polars_cases,
}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "resharing.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"


def _amount(nbytes: int) -> str:
    """Bytes by the size of a column of 64-bit values.

    >>> _amount(COLUMN), _amount(3 * COLUMN), _amount(2 * ROWS)
    ('1 column', '3 columns', '2 bytes a row')
    """
    if nbytes % COLUMN == 0:
        count = nbytes // COLUMN
        return f"{count} column{'s' if count > 1 else ''}"
    if 8 * nbytes % ROWS > 64:
        return f"{nbytes:,} bytes"
    return f"{round(nbytes / ROWS, 3):g} byte{'s' if nbytes >= 2 * ROWS else ''} a row"


def _row(case: Case) -> str:
    operations = ", ".join(f"`{expression}`" for expression in case.expressions)
    if not case.new:
        return f"| {operations} | nothing |"
    return f"| {operations} | {_amount(case.new)}{f': {case.note}' if case.note else ''} |"


def tables() -> str:
    """The tables as Markdown, one for each library."""
    parts = []
    for library, module in LIBRARIES.items():
        cases: list[Case] = module.CASES
        described = ", ".join(f"`{name}` {text}" for name, text in module.NAMES.items())
        rows = "\n".join(_row(case) for case in sorted(cases, key=lambda case: bool(case.new)))
        names = textwrap.fill(f"{described}.", 120, break_on_hyphens=False)
        parts.append(f"### {library}\n\n{names}\n\n| operation | new bytes stored |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def page_with_tables() -> str:
    """The page, with the tables as they should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(), encoding="utf-8")
