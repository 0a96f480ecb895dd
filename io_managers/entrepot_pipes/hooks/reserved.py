"""Which file names stand for pipes."""

from __future__ import annotations

import os
from typing import Any

from entrepot_pipes import names
from entrepot_pipes.names import PipeName


def pipe_of(path: Any) -> PipeName | None:
    """The pipe that a program means by this file name; ``None``: an ordinary file, or no name at all."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or len(path) > 4096:
        return None
    if path.startswith("db:"):
        # pathlib.Path("db://x") is "db:/x".
        return names.parse("db://" + path[3:].lstrip("/"))
    if "__reserved__" not in path:
        return None
    folder = os.environ.get("ENTREPOT_PIPES_FOLDER")
    return names.parse_reserved(path) if folder and names.is_reserved(path, folder) else None
