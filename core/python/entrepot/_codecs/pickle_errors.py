"""Errors of pickles that cannot be read: which package is missing, too old or too new, or whether the data is damaged.

A pickle names the functions that restore its objects, often private ones, which packages rename between versions. What
can be told apart here:

* a name that cannot be imported, of a package that is not installed or of the user's own modules: ``UnsupportedType``;
* one that the installed version of a package, or of Python, lacks, or a function of a package that does not accept
  what was pickled: ``VersionMismatch``, with the version that is installed;
* bytes that are not a complete pickle, and everything else: ``CorruptData``.
"""

from __future__ import annotations

import platform
import sys
from types import TracebackType
from typing import Any

from entrepot.errors import CorruptData, EntrepotError, UnsupportedType, VersionMismatch

_OWN_PACKAGE = __name__.partition(".")[0]


def not_found_error(module: str, name: str, error: ImportError | AttributeError) -> EntrepotError:
    """The error for a name that a pickle asks for and that cannot be imported."""
    package = _root(module)
    version = _version_of(package)
    if package in sys.stdlib_module_names:
        package, version = "Python", platform.python_version()
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    if version is None or (absent is not None and _root(absent) != _root(module)):
        return UnsupportedType(
            f"the object was pickled with classes that cannot be imported here: {error}; "
            "install or import the module that defines them"
        )
    return VersionMismatch(
        f"the object was pickled with {module}.{name}, which {package} {version}, installed here, does not have: "
        f"install the version of {package} that wrote it, or put data (bytes, arrays, tables, plain Python) instead"
    )


def rejected_error(stream: Any, last_module: str, error: Exception) -> EntrepotError:
    """The error for a pickle that could not be read to its end.

    Args:
        stream: its bytes.
        last_module: the module of the last name that it asked for.
        error: what was raised.
    """
    package = _raised_in(error.__traceback__) or _root(last_module)
    version = _version_of(package)
    reason = f"{type(error).__name__}: {error}"
    if version is not None and _is_complete(stream):
        return VersionMismatch(
            f"{package} {version}, installed here, does not accept an object that was pickled ({reason}): it was "
            f"pickled with another version of {package}, which has to be installed here, too, or is damaged"
        )
    if isinstance(error, (ImportError, AttributeError)):
        return UnsupportedType(
            f"the object was pickled with classes that cannot be imported here: {error}; "
            "install or import the module that defines them"
        )
    return CorruptData(f"the pickled object cannot be read: {reason}")


def _root(module: str) -> str:
    return module.partition(".")[0]


def _version_of(package: str) -> str | None:
    """The version of an imported package; None: it has none, like modules of the user's own."""
    version = getattr(sys.modules.get(package), "__version__", None)
    return version if isinstance(version, str) and package != _OWN_PACKAGE else None


def _raised_in(trace: TracebackType | None) -> str:
    """The package of the first function outside this one that was being called; "": one that is not in Python."""
    while trace is not None:
        package = _root(str(trace.tb_frame.f_globals.get("__name__", "")))
        if package and package != _OWN_PACKAGE:
            return package
        trace = trace.tb_next
    return ""


def _is_complete(stream: Any) -> bool:
    """Whether the bytes can be read as a pickle to its end, without running it."""
    import pickletools  # not at the top: it takes 10 ms, and is needed for errors only

    try:
        for _ in pickletools.genops(bytes(stream)):
            pass
    except Exception:  # genops raises what its readers of arguments raise
        return False
    return True
