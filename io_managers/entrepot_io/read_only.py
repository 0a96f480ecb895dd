"""Detects the error of a task that modifies a read-only input, and words the advice given about it.

A task's inputs are read-only views of shared memory. Libraries report writes to them in their own words, none of which
names the setting that would help.
"""

from __future__ import annotations

_WORDS = ("read-only", "read only", "readonly")
_KINDS = (ValueError, TypeError)
_DEPTH = 8  # maximum length of the chain of causes searched


def is_read_only(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is a library's complaint about read-only memory.

    >>> is_read_only(ValueError("assignment destination is read-only"))
    True
    >>> is_read_only(OSError("Read-only file system"))
    False
    """
    for _ in range(_DEPTH):
        if error is None:
            return False
        if isinstance(error, _KINDS) and _says(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def says_read_only(kind: str, text: str) -> bool:
    """Like :func:`is_read_only`, for an error of which an orchestrator kept only the class name and the text.

    >>> says_read_only("ValueError", "assignment destination is read-only")
    True
    """
    return kind in {one.__name__ for one in _KINDS} and _says(text)


def _says(text: str) -> bool:
    return any(word in text.lower() for word in _WORDS)


def advice(where: str) -> str:
    """The advice to show.

    Args:
        where: the place of the setting, in the orchestrator's terms.
    """
    return (
        "Entrepot: inputs are read-only views of shared memory. To change one in place, copy it first (value.copy()), "
        f'or have inputs that may be changed: copy="on_write" (private pages only where somebody writes) or '
        f'"always", {where}'
    )
