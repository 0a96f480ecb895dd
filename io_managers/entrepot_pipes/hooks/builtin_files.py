"""``open`` and questions about files, for reserved names. The text goes through in blocks."""

from __future__ import annotations

import builtins
import errno
import io
import os
import stat
import sys
from collections.abc import Callable
from typing import Any

import wrapt

from entrepot_pipes.hooks.reserved import pipe_of
from entrepot_pipes.text_files import abort_open_writers, check_mode, open_binary, open_text


def install() -> None:
    """Wrap the functions of this process."""
    opening: Any = wrapt.FunctionWrapper(builtins.open, _open)
    builtins.open = io.open = opening  # pathlib and most libraries look it up in one of them
    for name in ("stat", "lstat"):
        setattr(os, name, wrapt.FunctionWrapper(getattr(os, name), _stat))
    for name in ("exists", "isfile", "lexists"):  # some Pythons have them in C
        setattr(os.path, name, wrapt.FunctionWrapper(getattr(os.path, name), _exists))
    sys.excepthook = _aborting(sys.excepthook)


def _open(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    file = args[0] if args else kwargs.get("file")
    target = None if isinstance(file, int) else pipe_of(file)
    if target is None:
        return wrapped(*args, **kwargs)
    return _open_pipe(target, *args, **kwargs)


def _open_pipe(
    target: Any,
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    name = os.fsdecode(file)
    check_mode(name, mode)
    if "b" in mode:
        return open_binary(name, target, mode)
    return open_text(name, target, mode, encoding, errors, newline)


def _stat(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    path = args[0] if args else kwargs.get("path")
    target = None if isinstance(path, int) else pipe_of(path)
    if target is None:
        return wrapped(*args, **kwargs)
    if not _is_there(target):
        raise FileNotFoundError(errno.ENOENT, "nobody writes to this pipe yet", str(path))
    # As of a FIFO: a size that says nothing, and no time.
    return os.stat_result((stat.S_IFIFO | 0o600, 0, 0, 1, os.getuid(), os.getgid(), 0, 0, 0, 0))


def _exists(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    path = args[0] if args else kwargs.get("path", kwargs.get("filename"))
    target = None if isinstance(path, int) else pipe_of(path)
    return wrapped(*args, **kwargs) if target is None else _is_there(target)


def _is_there(target: Any) -> bool:
    """Whether somebody writes to the pipe: a program that is about to write finds no file, as it expects."""
    from entrepot_pipes import pipe

    return pipe.exists(target)


def _aborting(previous: Callable[..., Any]) -> Callable[..., Any]:
    """An exception that ends the program also makes the pipes fail that it was writing to."""

    def excepthook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        abort_open_writers(f"the writing program failed with {kind.__name__}: {error}")
        previous(kind, error, trace)

    return excepthook
