"""Colours of tables and labels, by rich, if it is installed and standard output is a terminal that shows them.

Elsewhere, and with ``NO_COLOR``, the text is the same without them, so that what reads it sees no escapes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_HEADER, _LABEL, _ID = "bold", "bold cyan", "dim"
_STATES = {"spilled": "yellow", "live": "green", "failed": "bold red", "lost": "bold red", "open": "green"}


def is_styled() -> bool:
    """Whether colours are wanted and can be had."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
        and find_spec("rich") is not None
    )


def style_table(header: Sequence[str], titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose cells have their final widths, with colours.

    Args:
        header: the padded titles.
        titles: the titles as they are.
        rows: the padded cells.
    """
    from rich.text import Text

    lines = [Text("  ".join(header).rstrip(), style=_HEADER)]
    for row in rows:
        line = Text()
        for number, (title, cell) in enumerate(zip(titles, row, strict=True)):
            style = _ID if title == "id" else _STATES.get(cell.strip(), "") if title == "state" else ""
            line.append(("  " if number else "") + cell, style)
        line.rstrip()
        lines.append(line)
    return _render(lines)


def style_labels(text: str) -> str:
    """Return lines that begin with a label, with the labels in colour; what begins with a space has none.

    Lines that already have colours, such as those of a table, stay as they are.
    """
    if not is_styled():
        return text
    from rich.text import Text

    lines: list[Text] = []
    for plain in text.split("\n"):
        if "\x1b" in plain:
            lines.append(Text.from_ansi(plain))
            continue
        label, separator, rest = plain.partition("  ")
        lines.append(Text.assemble((label, _LABEL if separator else ""), separator + rest))
    return _render(lines)


def _render(lines: Sequence[Text]) -> str:
    from rich.console import Console

    console = Console(file=sys.stdout, force_terminal=True, highlight=False)
    with console.capture() as captured:
        for line in lines:
            console.print(line, soft_wrap=True)
    return captured.get().rstrip("\n")
