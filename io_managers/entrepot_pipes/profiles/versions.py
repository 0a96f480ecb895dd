"""Versions of engines, and ranges of them."""

from __future__ import annotations

import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version


def parse_range(text: str) -> SpecifierSet:
    """``>=15,<19`` as a range; ``15.2``, as it is without an operator, is that version alone.

    Raises:
        ValueError: it is neither.
    """
    try:
        return SpecifierSet(text if re.match(r"\s*[<>=!~]", text) else f"=={text}", prereleases=True)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is neither a version nor a range such as '>=15,<19'") from error


def within(version: str, range_: str) -> bool:
    """Whether a version, of whose text the numbers at the beginning count, is in a range."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return numbers is not None and parse_range(range_).contains(Version(numbers.group()))
