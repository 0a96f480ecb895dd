"""Import of the extension, with a check that it was built for these Python sources.

After a pull or an edit, the Python sources may be newer than the extension built beside them. ``_core.pyi`` declares
what they expect of it, and the build stamps the extension with that file's checksum. A mismatch is reported at import,
with what to do about it, instead of as a missing attribute later on.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from types import ModuleType

from entrepot.errors import BuildMismatch
from entrepot.platform_support import require_supported

NAME = "entrepot._core"
STUB = Path(__file__).with_name("_core.pyi")
ADVICE = "run 'make build' in a source tree, or reinstall entrepot"


def load() -> ModuleType:
    """Import the extension.

    Raises:
        UnsupportedPlatform: there is none for this operating system.
        BuildMismatch: it is missing, cannot be loaded, or belongs to other Python sources.
    """
    require_supported()
    try:
        extension = import_module(NAME)
    except ImportError as error:
        raise BuildMismatch(f"the extension {NAME} cannot be imported ({error}): {ADVICE}") from error
    check(extension, STUB)
    return extension


def check(extension: ModuleType, stub: Path) -> None:
    """Compare the extension's stamp with the stub beside the sources; without a stub there is nothing to compare.

    Raises:
        BuildMismatch: they differ.
    """
    try:
        expected = hashlib.sha256(stub.read_bytes()).hexdigest()
    except FileNotFoundError:
        return
    built_for = getattr(extension, "API", "none")
    if built_for != expected:
        raise BuildMismatch(
            f"the extension {extension.__file__} was built for different Python sources than those in {stub.parent} "
            f"(its stamp is {built_for[:12]}, theirs {expected[:12]}): {ADVICE}"
        )
