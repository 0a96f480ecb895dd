"""Commands for which folders can be reached by every user, although a folder above them is closed, as /root is."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def reachable(command: Sequence[str]) -> list[str]:
    """Return the command as one that runs in a mount namespace of its own, where Python and the checkout are reachable.

    There, an empty folder takes the place of a closed one, with these folders alone in it. Only root can run it.
    """
    closed: dict[Path, list[Path]] = {}
    for folder in dict.fromkeys(Path(path).resolve() for path in (sys.base_prefix, sys.prefix, ROOT)):
        above = [parent for parent in reversed(folder.parents) if not parent.stat().st_mode & 0o001]
        if above:
            closed.setdefault(above[0], []).append(folder)
    lines = ["set -eu", "mount --make-rprivate /"]
    for place, folders in closed.items():
        # Those in another one come with it.
        outermost = [folder for folder in folders if not any(other in folder.parents for other in folders)]
        quoted = [shlex.quote(str(folder)) for folder in outermost]
        lines += [
            f"kept{number}=$(mktemp -d); mount --rbind {path} $kept{number}" for number, path in enumerate(quoted)
        ]
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(place))}")
        lines += [
            f"mkdir -p {path}; mount --move $kept{number} {path}; rmdir $kept{number}"
            for number, path in enumerate(quoted)
        ]
    script = "\n".join([*lines, 'exec "$@"'])
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]


def can_be_reached() -> bool:
    """Whether such commands can be run here, by root."""
    return subprocess.run(reachable(["true"]), capture_output=True, check=False).returncode == 0
