"""Tables for notebooks, as HTML. What comes from users is text in them, never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from entrepot.phrases import printable


def html_table(caption: str, rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Return a table.

    Args:
        caption: above it.
        rows: the cells' texts; without a header, the first cell of each row is the row's own.
        header: of the columns.
    """
    head = "".join(f'<th scope="col">{_text(title)}</th>' for title in header)
    lines = [f"<thead><tr>{head}</tr></thead>"] if header else []
    for row in rows:
        first, *others = map(_text, row)
        cell = f"<td>{first}</td>" if header else f'<th scope="row">{first}</th>'
        lines.append(f"<tr>{cell}{''.join(f'<td>{other}</td>' for other in others)}</tr>")
    return f"<table><caption>{_text(caption)}</caption>{''.join(lines)}</table>"


def _text(text: str) -> str:
    return escape(printable(text))
