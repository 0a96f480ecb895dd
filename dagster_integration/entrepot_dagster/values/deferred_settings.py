"""Settings of resources: those that are read from environment variables when a step runs, and names that are wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from dagster import EnvVar
from entrepot.errors import InvalidArgument
from pydantic import BaseModel

T = TypeVar("T")


def unless_deferred(setting: T | None) -> T | None:
    """Return a setting unless its value is known only when a step runs."""
    return None if isinstance(setting, (EnvVar, type(EnvVar.int("")))) else setting


def read_deferred(data: dict[str, Any], *names: str) -> None:
    """Replace environment variables in settings of several types, which Dagster leaves alone, by their values.

    Args:
        data: a resource's settings, as Dagster gives them: an EnvVar is ``{"env": "NAME"}``.
        names: of such settings.

    Raises:
        InvalidArgument: a variable is not set.
    """
    for name in names:
        if isinstance(deferred := data.get(name), Mapping):
            variable = str(deferred.get("env"))
            if (value := os.environ.get(variable)) is None:
                raise InvalidArgument(f"{name} is read from the environment variable {variable}, which is not set")
            data[name] = value


def check_names(resource: type[BaseModel], data: Mapping[str, Any]) -> None:
    """Reject settings that a resource does not have, which Dagster leaves out in silence.

    Args:
        resource: its class.
        data: what it is given.

    Raises:
        InvalidArgument: the message has the name that was probably meant.
    """
    names = [info.alias or name for name, info in resource.model_fields.items()]
    for name in data:
        if name not in names:  # a field with an alias is set by that only
            from entrepot_policy.schema.diagnostics import did_you_mean  # not where a step starts

            field = resource.model_fields.get(name)
            hint = (
                f"its name is {field.alias!r}"
                if field is not None
                else did_you_mean(name, names, f"it has {', '.join(names)}")
            )
            raise InvalidArgument(f"{resource.__name__} has no setting {name!r}: {hint}")
