"""Where Entrepot runs, and why not elsewhere: said in words, before anything fails for want of a library."""

from __future__ import annotations

import platform
import sys

from entrepot.errors import UnsupportedPlatform

IN_A_CONTAINER = 'docker run --rm -it -v "$PWD":/srv -w /srv python:3.12 bash    # then: pip install entrepot'
IN_WSL = "wsl --install -d Debian    # then, in that Debian: pip install entrepot"

_WHY = (
    "a store needs Linux: sealed memory by file descriptor (memfd_create), waiting on shared memory (futex), and what "
    "/proc tells of processes and memory"
)


def unsupported_reason(system: str | None = None) -> str | None:
    """Return why a store cannot run on an operating system; None: it can.

    Args:
        system: its name, as ``platform.system()`` gives it; None: this machine's.
    """
    name = platform.system() if system is None else system
    if name == "Linux":
        return None
    if name == "Darwin":
        return (
            f"on macOS, {_WHY}. macOS has none of them, and no wheel can bring them along: run your tasks in a "
            "Linux container or virtual machine (Docker Desktop, Colima, Lima, Podman), where the store runs too"
        )
    if name == "Windows":
        return f"on Windows, {_WHY}. Run your tasks within WSL 2, where the store runs too"
    return f"on {name or 'this system'}, {_WHY}. Run your tasks in a Linux container or virtual machine"


def fix_hint(system: str | None = None) -> str:
    """Return the command that gives a user of an unsupported system a Linux to run in."""
    name = platform.system() if system is None else system
    return IN_WSL if name == "Windows" else IN_A_CONTAINER


def require_supported() -> None:
    """Check the operating system.

    Raises:
        UnsupportedPlatform: Entrepot does not run on it.
    """
    if sys.platform == "linux":  # the usual case costs nothing
        return
    reason = unsupported_reason()
    if reason is not None:
        raise UnsupportedPlatform(f"Entrepot does not run here: {reason} (for example: {fix_hint()})")
