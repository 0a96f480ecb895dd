"""A class that only one environment of the matrix can import."""

from __future__ import annotations

from typing import Any


class Own:
    """Something with content."""

    def __init__(self, content: Any) -> None:
        self.content = content
