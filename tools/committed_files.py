"""Files of the repository for the checks of ``make lint``."""

from __future__ import annotations

import subprocess
from pathlib import Path


def committed_files(root: Path, *patterns: str) -> list[str]:
    """Paths, relative to ``root``, of the files that are in git's index and still exist.

    Args:
        root: a git checkout.
        patterns: of their paths, as git understands them; none: all files.
    """
    command = ["git", "ls-files", "-z", "--", *patterns]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    return [name for name in listed.decode().split("\0") if name and (root / name).is_file()]
