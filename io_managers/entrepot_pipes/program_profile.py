"""What ``entrepot pipe run`` takes from the profile of its program, and whether it is of a version that this covers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_pipes.profiles.model import Profile, read_profile
from entrepot_pipes.profiles.shipped import outside, profile_of_program
from entrepot_pipes.text.dialect import Dialect

_SECONDS = 20.0


def program_dialect(path: Path | None, program: str) -> tuple[Dialect | None, dict[str, Any]]:
    """The dialect of a program's FIFOs, or what is known of it: by this profile, or by the one of the package.

    Nothing, with a warning, if the program is of a version outside of it.

    Raises:
        InvalidArgument: the file is no profile, or says that the program needs a file.
    """
    profile = profile_of_program(os.path.basename(program)) if path is None else read_profile(path)
    if profile is None:
        return None, {}
    if profile.rung == "file":
        raise InvalidArgument(
            f"the profile {path or profile.engine} says that {profile.engine} needs a file ({profile.reason}): let it"
            " write one, or use 'entrepot mount'"
        )
    if profile.dialect is None or not _covers(profile, program):
        return None, {}
    return (Dialect.from_dict(profile.dialect), {}) if profile.fixed is None else (None, profile.hints)


def _covers(profile: Profile, program: str) -> bool:
    if not profile.versions:
        return True
    version = _version_of(program)
    if not profile.covers(version):
        print(f"entrepot pipe run: {outside(profile, program, version)}", file=sys.stderr)
        return False
    return True


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
