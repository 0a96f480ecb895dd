"""Programs of ``tools/`` as modules, which are not importable by name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_tool(name: str, registered: pytest.MonkeyPatch | None = None) -> ModuleType:
    """Load ``tools/<name>.py``.

    Args:
        name: the program.
        registered: enter it in ``sys.modules`` until this is undone, for other programs that import it.
    """
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if registered is not None:
        registered.setitem(sys.modules, name, module)
    sys.path.insert(0, str(ROOT / "tools"))  # as when it is run as a script
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return module
