"""The kinds of a dataset's arguments, which YAML gives freely: a name such as ``2024`` is a number there."""

from __future__ import annotations

from typing import Any

from entrepot.errors import InvalidArgument
from kedro.io import Version

from entrepot_kedro.values.transcoding import SEPARATOR, plain_name


def check_name(name: Any) -> None:
    """Check a dataset's name, which may have a form after an ``@``; None: it gets one later.

    Raises:
        InvalidArgument: it is not text, empty, or cannot be told from another one.
    """
    if name is None:
        return
    check_texts(name=name)
    if not name:
        raise InvalidArgument("the name of a dataset must not be empty")
    if not plain_name(name) or name.count(SEPARATOR) > 1:
        raise InvalidArgument(
            f"the name of a dataset may have one form after it, such as cars@pandas, but this one is {name!r}: a name "
            f"comes before its only {SEPARATOR!r}"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"the name of a dataset must be valid Unicode, but {name!r} is not: {error}") from error


def check_texts(**arguments: Any) -> None:
    """Check that arguments are text or not given.

    Raises:
        InvalidArgument: one of them is neither; the message names it.
    """
    for argument, value in arguments.items():
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(
                f"{argument} of a dataset must be text, not {value!r} ({type(value).__name__}); YAML takes what is in "
                "quotes for text"
            )


def check_version(name: str | None, version: Any, session: str | None) -> None:
    """Check a dataset's version, which a catalog supplies for ``versioned: true``.

    Raises:
        InvalidArgument: it is of another type, or the dataset has a session of its own.
    """
    if version is None:
        return
    if not isinstance(version, Version):
        raise InvalidArgument(
            f"version of dataset {name!r} must be a kedro.io.Version, not {version!r}; in a catalog, write "
            "versioned: true"
        )
    if session is not None:
        raise InvalidArgument(
            f"dataset {name!r} is versioned, and versions outlive runs: remove its session {session!r}"
        )
