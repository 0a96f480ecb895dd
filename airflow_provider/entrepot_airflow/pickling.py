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
AS_SHIPPED = "airflow.*"  # Airflow's default, so nobody has configured the list
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


def pickle_rule() -> PickleRule:
    """Return whether pickled values are accepted, and of which classes, in the form that ``entrepot.connect`` takes.

    Raises:
        InvalidArgument: the option is none of yes, no and listed.
    """
    if os.environ.get(VARIABLE):
        return None, None  # connect() reads the variable itself
    said = (option("allow_pickle") or "").strip().lower()
    if not said:
        return None, is_listed if _is_said(*_lists()) else None
    if said in _YES or said in _NO:
        return said in _YES, None
    if said == "listed":
        return True, is_listed
    raise InvalidArgument(f"[entrepot] allow_pickle is yes, no or listed, not {said!r}")


@contextmanager
def naming_the_option() -> Iterator[None]:
    """Extend errors about pickled data that result from Airflow's settings by the names of these settings."""
    try:
        yield
    except UnsupportedType as error:
        if pickle_rule() == (None, None) or "pickl" not in str(error):
            raise
        raise UnsupportedType(
            f"{error} (in Airflow [entrepot] allow_pickle decides: yes, no, or listed for the classes of [core] "
            "allowed_deserialization_classes, which also holds where allow_pickle is unset and that list was extended)"
        ) from error


def is_listed(name: str) -> bool:
    """Return whether Airflow may create an object of this class from an XCom, by ``[core]
    allowed_deserialization_classes`` and ``allowed_deserialization_classes_regexp``."""
    return _matcher(*_lists())(name)


def _lists() -> tuple[str, str]:
    from airflow.sdk.configuration import conf

    names = ("allowed_deserialization_classes", "allowed_deserialization_classes_regexp")
    patterns, expressions = (str(conf.get("core", name, fallback=None) or "") for name in names)
    return patterns, expressions


def _is_said(patterns: str, expressions: str) -> bool:
    return (patterns.split() != [AS_SHIPPED] and bool(patterns.split())) or bool(expressions.split())


@lru_cache(maxsize=4)
def _matcher(patterns: str, expressions: str) -> Callable[[str], bool]:
    globs = patterns.split()
    compiled = [re.compile(one) for one in expressions.split()]

    def matches(name: str) -> bool:
        return any(fnmatchcase(name, one) for one in globs) or any(one.fullmatch(name) for one in compiled)

    return matches
