"""Runs in the environment of Plasma's own client; see ``StockClient`` in conftest.py."""

from __future__ import annotations

import ast
import importlib
import sys
from typing import Any

plasma: Any = importlib.import_module("pyarrow.plasma")  # in that environment only

space: dict[str, Any] = {"plasma": plasma, "client": plasma.connect(sys.argv[1])}


def oid(number: int) -> Any:
    """An object ID with this number in its first byte."""
    return plasma.ObjectID(bytes([number]) + bytes(19))


space["oid"] = oid
for line in sys.stdin:
    code = ast.literal_eval(line)
    try:
        try:
            result = eval(code, space)
        except SyntaxError:
            exec(code, space)
            result = None
    except Exception as error:
        print(repr((False, f"{type(error).__name__}: {error}")), flush=True)
    else:
        print(repr((True, None if isinstance(result, plasma.ObjectID) else result)), flush=True)
