"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def time_text(seconds: float | None) -> str:
    """With three digits and a unit; empty for None."""
    if seconds is None:
        return ""
    if seconds == 0:
        return "0"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 0.9995:
            return f"{_three(seconds * scale)} {unit}"
    return f"{_three(seconds * 1e9)} ns"


def _three(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def bytes_text(nbytes: float | None) -> str:
    """``12.3 MiB``."""
    if nbytes is None:
        return ""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(nbytes) >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes:.0f} B"


def rate_text(nbytes: int, seconds: float) -> str:
    """In GB/s."""
    return f"{nbytes / seconds / 1e9:.1f}"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column left-aligned, the others right-aligned; empty columns are omitted."""
    kept = [column for column in range(len(head)) if column == 0 or any(row[column] for row in rows)]
    lines = [[row[column] for column in kept] for row in [head, *rows]]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(kept))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    marks = [f"{'-' * (width + 1)}:" if column else "-" * (width + 2) for column, width in enumerate(widths)]
    return "\n".join([line(lines[0]), f"|{'|'.join(marks)}|", *(line(cells) for cells in lines[1:])])
