"""The figures as text and as JSON."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import asdict
from typing import Any

from examples.flights.runs import MB, Figures

COLUMNS = (
    "orchestrator",
    "transport",
    "sharing s",
    "write s",
    "read s",
    "moved MB",
    "peak MB",
    "above idle",
    "end to end s",
)

MEMORY_COLUMNS = ("orchestrator", "transport", "stored values", "being made", "not used", "processes", "in all")


def cells(row: Figures) -> tuple[str, ...]:
    """A row of the table, in the order of ``COLUMNS``."""
    return (
        row.orchestrator,
        row.label,
        f"{row.sharing_seconds:.2f}",
        f"{row.write_seconds:.2f}",
        f"{row.read_seconds:.2f}",
        f"{row.bytes_moved / MB:.0f}",
        f"{row.peak_bytes / MB:.0f}",
        f"{(row.peak_bytes - row.idle_bytes) / MB:.0f}",
        f"{row.run_seconds:.1f}",
    )


def memory_cells(row: Figures) -> tuple[str, ...]:
    """What the memory was used for at the peak, in MB, in the order of ``MEMORY_COLUMNS``."""
    peak = row.peak
    parts = (peak.stored, peak.leased, peak.kept, peak.own, peak.total)
    return (row.orchestrator, row.label, *(f"{nbytes / MB:.0f}" for nbytes in parts))


def text_table(rows: Sequence[Figures]) -> str:
    """The table for a terminal, with a blank line between orchestrators."""
    return align_columns(COLUMNS, [cells(row) for row in rows], right=range(2, len(COLUMNS)))


def memory_table(rows: Sequence[Figures]) -> str:
    """Where the memory goes at the peak, for a terminal."""
    return align_columns(MEMORY_COLUMNS, [memory_cells(row) for row in rows], right=range(2, len(MEMORY_COLUMNS)))


def align_columns(columns: Sequence[str], lines: Sequence[Sequence[str]], right: Container[int]) -> str:
    """Align lines below a header, with a blank line where the first column changes.

    Args:
        columns: the header.
        lines: cells as text.
        right: the columns to right-align.
    """
    widths = [max(len(line[column]) for line in (columns, *lines)) for column in range(len(columns))]

    def line_of(line: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    output_lines = [line_of(columns), "  ".join("-" * width for width in widths)]
    for previous, line in zip([None, *lines], lines, strict=False):
        if previous is not None and previous[0] != line[0]:
            output_lines.append("")
        output_lines.append(line_of(line))
    return "\n".join(output_lines)


def as_json(rows: Sequence[Figures], about: dict[str, Any]) -> dict[str, Any]:
    """All measurements.

    Args:
        rows: the runs.
        about: the machine and the options.
    """
    runs = [asdict(row) | {"sharing_seconds": row.sharing_seconds, "bytes_moved": row.bytes_moved} for row in rows]
    return {"about": about, "runs": runs}


def comparison_sentences(rows: Sequence[Figures]) -> list[str]:
    """For each orchestrator's other transports, one sentence comparing it with Entrepot."""
    sentences = []
    for row in rows:
        entrepot_row = next(
            (other for other in rows if other.orchestrator == row.orchestrator and other.name == "entrepot"), None
        )
        if entrepot_row is None or row is entrepot_row or entrepot_row.sharing_seconds <= 0:
            continue
        sentences.append(
            f"{row.orchestrator}: sharing took {row.sharing_seconds:.2f} s with {row.label}, "
            f"{entrepot_row.sharing_seconds:.2f} s with Entrepot "
            f"({speed_ratio(row.sharing_seconds / entrepot_row.sharing_seconds)}); peak memory "
            f"{row.peak_bytes / MB:.0f} and {entrepot_row.peak_bytes / MB:.0f} MB"
        )
    return sentences


def speed_ratio(ratio: float) -> str:
    """A ratio of times in words: how many times as fast Entrepot was."""
    if ratio >= 1:
        return f"{ratio:.1f} times as fast"
    return f"{1 / ratio:.1f} times as slow"
