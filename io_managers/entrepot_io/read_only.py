"""The error of a task that writes into what it got, told from others, and what is said about it.

What a task gets is a read-only view of shared memory. Libraries say so in their own words, none of which names the
setting that would have helped.
"""

from __future__ import annotations

_WORDS = ("read-only", "read only", "readonly")
_KINDS = (ValueError, TypeError)
_DEPTH = 8  # of errors that caused each other


def is_read_only(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is a library's about memory that cannot be written.

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
    """The same of an error of which a host kept the name of its class, and its text.

    >>> says_read_only("ValueError", "assignment destination is read-only")
    True
    """
    return kind in {one.__name__ for one in _KINDS} and _says(text)


def _says(text: str) -> bool:
    return any(word in text.lower() for word in _WORDS)


def advice(where: str) -> str:
    """What helps.

    Args:
        where: the setting is, in words of the host.
    """
    return (
        "Entrepot: inputs are read-only views of shared memory. To change one in place, copy it first (value.copy()), "
        f'or have inputs that may be changed: copy="on_write" (private pages only where somebody writes) or '
        f'"always", {where}'
    )
