"""The profile of an engine: how it uses its data file, and the highest rung that its tests pass. A YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from entrepot.errors import InvalidArgument
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from entrepot_pipes.profiles.versions import parse_range, within
from entrepot_pipes.text.dialect import Dialect


class Use(BaseModel):
    """How the tests used the data file, without pipes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exporters: list[str] = Field(default=[], description="programs that opened it to write")
    importers: list[str] = Field(default=[], description="programs that opened it to read")
    seeks: int = Field(default=0, ge=0, description="calls of lseek on it")
    double_opens: int = Field(
        default=0, ge=0, description="how many processes opened one path more than once in one direction"
    )
    appends: int = Field(default=0, ge=0, description="opens to append, which no pipe serves")
    opens_to_change: int = Field(default=0, ge=0, description="opens to read and write, which no pipe serves")


class Profile(BaseModel):
    """What is known of an engine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str = Field(min_length=1)
    programs: list[str] = Field(default=[], description="file names of the programs that it is about")
    library: str | None = Field(default=None, description="the Python distribution that it is about")
    versions: list[str] = Field(
        description="of the engine, that it holds for: one version, or a range such as '>=15,<19'; empty: all"
    )
    learned_with: list[str] = Field(default=[], description="the versions whose tests were run")
    rung: Literal["seam", "blocks", "bytes", "file"] = Field(
        description="columns by a library's seam, text parsed in blocks and written anew, bytes as they are, or a file"
    )
    reason: str = Field(description="what happened on this rung, and on those above it")
    dialect: dict[str, Any] | None = Field(default=None, description="of the text; fields as `entrepot_pipes.Dialect`")
    fixed: list[str] | None = Field(
        default=None, description="which fields of the dialect its user does not choose; without it: all"
    )
    use: Use = Field(default=Use(), description="nothing, if the tests were not run by `pipe learn`")

    @field_validator("versions")
    @classmethod
    def _ranges(cls, versions: list[str]) -> list[str]:
        for version in versions:
            parse_range(version)
        return versions

    @property
    def hints(self) -> dict[str, Any]:
        """The fields of the dialect that its user does not choose."""
        dialect = self.dialect or {}
        return {name: dialect[name] for name in (dialect if self.fixed is None else self.fixed)}

    def covers(self, version: str) -> bool:
        """Whether it holds for a version."""
        return not self.versions or any(within(version, each) for each in self.versions)


def write_profile(profile: Profile, path: Path | None) -> str:
    """The profile as YAML, which is also written to a file, if one is given."""
    values = profile.model_dump(exclude_none=True)
    for field in ("programs", "learned_with"):
        if not values[field]:
            del values[field]
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)
    if path is not None:
        path.write_text(text, encoding="utf-8")
    return text


def read_profile(path: Path) -> Profile:
    """Read and check a profile.

    Raises:
        InvalidArgument: it is no profile.
    """
    try:
        profile = Profile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is no profile of an engine: {error}") from error
    Dialect.from_dict(profile.dialect or {})
    missing = [name for name in profile.fixed or [] if name not in (profile.dialect or {})]
    if missing:
        raise InvalidArgument(f"{path}: 'fixed' names {missing[0]!r}, which its dialect does not have")
    return profile
