"""Calls of wrapped functions: which file they are about, and which of their options differ from the defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_pipes.hooks.reserved import pipe_of
from entrepot_pipes.names import PipeName


class Call:
    """One call of a function whose first argument (called ``parameter``) is a file.

    ``target`` is the pipe that it is about, or ``None``.
    """

    def __init__(self, wrapped: Callable[..., Any], parameter: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]):
        self._wrapped = wrapped
        self._parameter = parameter
        self._args = args
        self._kwargs = dict(kwargs)
        self.path = args[0] if args else kwargs.get(parameter)
        self.target: PipeName | None = None if hasattr(self.path, "read") else pipe_of(self.path)

    def options(self) -> dict[str, Any] | None:
        """The options that were given and are not the defaults; ``None`` if they cannot be told."""
        # The function below a bound method: a cache of these would keep frames alive.
        defaults = _defaults(getattr(self._wrapped, "__func__", self._wrapped))
        if len(self._args) > 1 or defaults is None:
            return None
        given = {name: value for name, value in self._kwargs.items() if name != self._parameter}
        return {name: value for name, value in given.items() if not _same(value, defaults.get(name, _MISSING))}

    def ordinary(self) -> Any:
        """The call as it is."""
        return self._wrapped(*self._args, **self._kwargs)

    def with_file(self, file: Any, **changes: Any) -> Any:
        """The call with a file object, or with another name."""
        kwargs = {**self._kwargs, **changes}
        if self._args:
            return self._wrapped(file, *self._args[1:], **kwargs)
        return self._wrapped(**{**kwargs, self._parameter: file})

    @property
    def name(self) -> str:
        """The name that the program used, for messages."""
        return str(self.path)

    def refuse(self, why: str) -> InvalidArgument:
        """The error of a call that no pipe can do."""
        return InvalidArgument(f"{self._wrapped.__name__} of {self.name}, a data pipe: {why}")


_MISSING = object()


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


@lru_cache(maxsize=64)
def _defaults(function: Callable[..., Any]) -> dict[str, Any] | None:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    return {name: parameter.default for name, parameter in parameters.items()}
