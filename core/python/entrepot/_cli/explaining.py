"""``entrepot explain``: the page about an error, from this installation's own files."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from entrepot.errors import EntrepotError, InvalidArgument

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

_INSTALLED = Path(__file__).parents[1] / "error_pages"  # where a wheel has them: see cmake/EntrepotPython.cmake
_IN_SOURCES = Path(__file__).parents[4] / "docs" / "errors"
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_TITLE = re.compile(r"# (E\d{3}): (\w+)\n")


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this module's subcommand."""
    parser = subparsers.add_parser("explain", help="print the causes of an error and the ways out")
    parser.add_argument("code", nargs="?", help="at the end of its message, such as E107, or its class (default: list)")
    parser.set_defaults(run=run_explain)


def run_explain(arguments: argparse.Namespace) -> int:
    """``entrepot explain``."""
    pages = _read_pages()
    if arguments.code is None:
        for (code, name), _ in sorted(pages.items()):
            print(f"{code}  {name}")
        return 0
    wanted = arguments.code.strip("[]").lower()
    for names, text in pages.items():
        if wanted in (name.lower() for name in names):
            print(_LINK.sub(r"\1", text), end="")
            return 0
    raise InvalidArgument(f"no error has the code or the class {arguments.code!r}: 'entrepot explain' lists them all")


def _read_pages() -> dict[tuple[str, str], str]:
    """The text of each page, by short code and class."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _IN_SOURCES
    pages: dict[tuple[str, str], str] = {}
    for path in sorted(folder.glob("E*.md")):
        text = path.read_text(encoding="utf-8")
        if title := _TITLE.match(text):
            pages[title[1], title[2]] = text
    if not pages:
        raise EntrepotError(f"this installation lacks the pages about errors, in {folder}: install it again")
    return pages
