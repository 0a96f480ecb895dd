"""Rules for accepting pickled values: ``[entrepot] allow_pickle``, and Airflow's list of classes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache

from entrepot.errors import InvalidArgument, UnsupportedType
from entrepot_io.connections import PickleRule

from entrepot_airflow.configuration import option

VARIABLE = "ENTREPOT_ALLOW_PICKLE"
DEFAULT_ALLOWED_CLASSES = "airflow.*"  # Airflow's default, so nobody has configured the list
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


def pickle_rule() -> PickleRule:
    """Return whether pickled values are accepted, and of which classes, in the form that ``entrepot.connect`` takes.

    Raises:
        InvalidArgument: the option is none of yes, no and listed.
    """
    if os.environ.get(VARIABLE):
        return None, None  # connect() reads the variable itself
    setting = (option("allow_pickle") or "").strip().lower()
    if not setting:
        return None, is_listed if _is_customized(*_allowed_patterns()) else None
    if setting in _YES or setting in _NO:
        return setting in _YES, None
    if setting == "listed":
        return True, is_listed
    raise InvalidArgument(f"[entrepot] allow_pickle must be yes, no or listed, not {setting!r}")


@contextmanager
def explain_pickle_errors() -> Iterator[None]:
    """Extend errors about pickled data that result from Airflow's settings by the names of these settings."""
    try:
        yield
    except UnsupportedType as error:
        if pickle_rule() == (None, None) or "pickl" not in str(error):
            raise
        raise UnsupportedType(
            f"{error} (in Airflow's configuration, [entrepot] allow_pickle controls this: yes, no, or listed for the "
            "classes in [core] allowed_deserialization_classes; listed also applies if allow_pickle is unset and that "
            "list was extended)"
        ) from error


def is_listed(name: str) -> bool:
    """Return whether Airflow may create an object of this class from an XCom, by ``[core]
    allowed_deserialization_classes`` and ``allowed_deserialization_classes_regexp``."""
    return _matcher(*_allowed_patterns())(name)


def _allowed_patterns() -> tuple[str, str]:
    names = ("allowed_deserialization_classes", "allowed_deserialization_classes_regexp")
    patterns, expressions = (option(name, "core") or "" for name in names)
    return patterns, expressions


def _is_customized(patterns: str, expressions: str) -> bool:
    return (patterns.split() != [DEFAULT_ALLOWED_CLASSES] and bool(patterns.split())) or bool(expressions.split())


@lru_cache(maxsize=4)
def _matcher(patterns: str, expressions: str) -> Callable[[str], bool]:
    globs = patterns.split()
    compiled = [re.compile(expression) for expression in expressions.split()]

    def matches(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in globs) or any(
            expression.fullmatch(name) for expression in compiled
        )

    return matches
