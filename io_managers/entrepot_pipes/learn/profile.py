"""The profile of an engine: how it uses its data file, and the highest rung that its tests pass. A YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from entrepot.errors import InvalidArgument
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from entrepot_pipes.text.dialect import Dialect


class Use(BaseModel):
    """How the tests used the data file, without pipes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exporters: list[str] = Field(description="programs that opened it to write")
    importers: list[str] = Field(description="programs that opened it to read")
    seeks: int = Field(ge=0, description="calls of lseek on it")
    double_opens: int = Field(ge=0, description="how many processes opened one path more than once in one direction")
    appends: int = Field(ge=0, description="opens to append, which no pipe serves")
    opens_to_change: int = Field(ge=0, description="opens to read and write, which no pipe serves")


class Profile(BaseModel):
    """What is known of an engine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str = Field(min_length=1)
    versions: list[str] = Field(description="of the engine, whose tests were run")
    rung: Literal["blocks", "bytes", "file"] = Field(
        description="text parsed in blocks and written anew, bytes as they are, or a plain file"
    )
    reason: str = Field(description="what happened on this rung, and on those above it")
    dialect: dict[str, Any] | None = Field(default=None, description="of the text; fields as `entrepot_pipes.Dialect`")
    use: Use


def write_profile(profile: Profile, path: Path | None) -> str:
    """The profile as YAML, which is also written to a file, if one is given."""
    text: str = yaml.safe_dump(profile.model_dump(exclude_none=True), sort_keys=False, allow_unicode=True, width=110)
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
    if profile.dialect is not None:
        Dialect.from_dict(profile.dialect)
    return profile
