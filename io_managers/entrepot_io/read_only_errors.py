"""Detects the error of a task that modifies a read-only input, and words the advice given about it.

A task's inputs are read-only views of shared memory. Libraries report writes to them in their own words, none of which
names the setting that would help.
"""

from __future__ import annotations

_PHRASES = ("read-only", "read only", "readonly")
_ERROR_TYPES = (ValueError, TypeError)
_MAX_CAUSES = 8  # maximum length of the chain of causes searched


def is_read_only_error(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is a library's complaint about read-only memory.

    >>> is_read_only_error(ValueError("assignment destination is read-only"))
    True
    >>> is_read_only_error(OSError("Read-only file system"))
    False
    """
    for _ in range(_MAX_CAUSES):
        if error is None:
            return False
        if isinstance(error, _ERROR_TYPES) and _mentions_read_only(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_read_only_message(class_name: str, text: str) -> bool:
    """Like :func:`is_read_only_error`, for an error of which an orchestrator kept only the class name and the text.

    >>> is_read_only_message("ValueError", "assignment destination is read-only")
    True
    """
    return class_name in {error_type.__name__ for error_type in _ERROR_TYPES} and _mentions_read_only(text)


def _mentions_read_only(text: str) -> bool:
    return any(phrase in text.lower() for phrase in _PHRASES)


def advice(setting_location: str) -> str:
    """The advice to show.

    Args:
        setting_location: the place of the setting, in the orchestrator's terms.
    """
    return (
        "Entrepot: inputs are read-only views of shared memory. To change one in place, copy it first (value.copy()), "
        f'or make inputs writable: copy="on_write" (copies only the pages that are written) or '
        f'"always", {setting_location}'
    )
