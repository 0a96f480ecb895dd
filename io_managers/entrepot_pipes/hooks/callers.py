"""Call a function as if its caller's caller did."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

_CALL = compile("_entrepot_call[0](*_entrepot_call[1], **_entrepot_call[2])", "<entrepot>", "eval")


def as_caller(frame: FrameType) -> Callable[..., Any]:
    """A function that calls another one where the variables of ``frame`` are the local and global ones.

    DuckDB takes the name of a variable for a table, and looks for it in the frame that calls it: a hook in between must
    not be that frame.
    """
    caller: FrameType | None = frame
    while caller is not None and caller.f_globals.get("__name__", "").partition(".")[0] == "wrapt":
        caller = caller.f_back
    names = (caller or frame).f_globals

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        variables = {**(caller or frame).f_locals, "_entrepot_call": (function, args, kwargs)}
        return eval(_CALL, names, variables)  # a constant expression

    return call
