"""Settings that are read from environment variables when a step runs."""

from __future__ import annotations

import os
from typing import TypeVar

from dagster import EnvVar
from entrepot.errors import InvalidArgument

T = TypeVar("T")


def unless_deferred(setting: T | None) -> T | None:
    """Return a setting unless its value is known only when a step runs."""
    return None if isinstance(setting, (EnvVar, type(EnvVar.int("")))) else setting


def environment_variable(name: str) -> str:
    """Return the value of a variable.

    Raises:
        InvalidArgument: it is not set.
    """
    value = os.environ.get(name)
    if value is None:
        raise InvalidArgument(f"session_ttl_seconds is read from the environment variable {name}, which is not set")
    return value
