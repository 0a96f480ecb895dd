"""The profiles that come with the package, by engine and version. Importing this imports neither Arrow nor pydantic."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from entrepot_pipes.profiles.versions import within

if TYPE_CHECKING:
    from entrepot_pipes.profiles.model import Profile

FOLDER = Path(__file__).parent


@lru_cache(maxsize=1)
def shipped() -> dict[str, Profile]:
    """All of them, by file name without suffix."""
    from entrepot_pipes.profiles.model import read_profile

    return {path.stem: read_profile(path) for path in sorted(FOLDER.glob("*.yaml"))}


def profile_of_program(program: str) -> Profile | None:
    """The profile of a program, by its file name; ``None``: there is none."""
    return next((each for each in shipped().values() if program in each.programs), None)


def dialect_hints(engine: str, version: str, warn: Callable[[str], None]) -> dict[str, Any]:
    """What is known of an engine's dialect. Nothing of an unknown one, nor, with a warning, of another version."""
    profile = shipped().get(engine)
    if profile is None:
        return {}
    if not profile.covers(version):
        warn(outside(profile, engine, version))
        return {}
    return profile.hints


def outside(profile: Profile, program: str, version: str) -> str:
    """The warning that a version is outside of a profile."""
    return (
        f"{program} is version {version or 'unknown'}, and the profile of {profile.engine} is for"
        f" {' or '.join(profile.versions)}: its dialect is not used, but what the text shows"
    )


@lru_cache(maxsize=16)
def versions_with_seam(library: str) -> tuple[str, ...]:
    """The versions of a Python library that give and take columns. Fast: programs look when they first use a pipe.

    Raises:
        KeyError: there is no profile with a seam for it.
    """
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    values: Any = yaml.load((FOLDER / f"{library}.yaml").read_text(encoding="utf-8"), Loader=loader)
    if values["rung"] != "seam" or values["library"] != library:
        raise KeyError(library)
    return tuple(values["versions"])


def has_seam(library: str, version: str) -> bool:
    """Whether a version of a Python library gives and takes columns."""
    return any(within(version, each) for each in versions_with_seam(library))
