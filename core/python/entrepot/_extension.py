"""The extension, imported only if it is the one that these sources were written for.

After a pull or an edit the Python sources may be newer than the extension that was built beside them. What they expect
of it is written in ``_core.pyi``, and the build stamps the extension with that file's checksum: a difference is an
error that says what to do, not an attribute that is missing later on.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from types import ModuleType

from entrepot.errors import BuildMismatch

NAME = "entrepot._core"
STUB = Path(__file__).with_name("_core.pyi")
ADVICE = "run 'make build' in a source tree, or install entrepot again"


def load() -> ModuleType:
    """Import the extension.

    Raises:
        BuildMismatch: it is not there, cannot be loaded, or belongs to other Python sources.
    """
    try:
        extension = import_module(NAME)
    except ImportError as error:
        raise BuildMismatch(f"the extension {NAME} cannot be imported ({error}): {ADVICE}") from error
    check(extension, STUB)
    return extension


def check(extension: ModuleType, stub: Path) -> None:
    """Compare the extension with the stub beside the sources; an installation without stubs has nothing to compare."""
    try:
        expected = hashlib.sha256(stub.read_bytes()).hexdigest()
    except FileNotFoundError:
        return
    built_for = getattr(extension, "API", "none")
    if built_for != expected:
        raise BuildMismatch(
            f"the extension {extension.__file__} was built for other Python sources than those in {stub.parent} "
            f"(its stamp is {built_for[:12]}, theirs {expected[:12]}): {ADVICE}"
        )
