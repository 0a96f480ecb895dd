"""What ``entrepot pipe run --profile`` takes from a profile, and whether the program is of a version that it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from entrepot.errors import InvalidArgument

from entrepot_pipes.learn.profile import read_profile
from entrepot_pipes.text.dialect import Dialect

_SECONDS = 20.0


def profile_dialect(path: Path, program: str) -> Dialect | None:
    """The dialect that a program's FIFOs have; ``None``: as it shows, because its version is another one.

    Raises:
        InvalidArgument: it is no profile, or says that the program needs a file.
    """
    profile = read_profile(path)
    if profile.rung == "file":
        raise InvalidArgument(
            f"the profile {path} says that {profile.engine} needs a file ({profile.reason}): let it write one, or use"
            " 'entrepot mount'"
        )
    if profile.dialect is None:
        return None
    version = _version_of(program)
    if profile.versions and version not in profile.versions:
        print(
            f"entrepot pipe run: {program} is version {version or 'unknown'}, and the profile {path} was learned with"
            f" {', '.join(profile.versions)}: its dialect is not used, but what the text shows",
            file=sys.stderr,
        )
        return None
    return Dialect.from_dict(profile.dialect)


def _version_of(program: str) -> str:
    """The first version number that ``PROGRAM --version`` prints; empty if it prints none."""
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    version = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return version.group() if version else ""
