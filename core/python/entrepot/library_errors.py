"""What other libraries raise, where one value that they cannot handle must not end what is done with the others."""

from __future__ import annotations

_PANIC = ("pyo3_runtime", "PanicException")  # of Rust; each library that is built with PyO3 has a class of its own
_MAX_CHARACTERS = 120


def is_library_error(error: BaseException) -> bool:
    """Return whether an error says that a library cannot do something, rather than that the program is to end.

    Args:
        error: whatever was raised. Rust's panics derive from ``BaseException``, as ``KeyboardInterrupt`` does.

    >>> is_library_error(OverflowError()), is_library_error(KeyboardInterrupt())
    (True, False)
    """
    return isinstance(error, Exception) or any((c.__module__, c.__name__) == _PANIC for c in type(error).__mro__)


def reason_of(error: BaseException) -> str:
    """Return an error's type and the first line of its message, in 120 characters at most.

    >>> reason_of(OverflowError("date value out of range"))
    'OverflowError: date value out of range'
    """
    try:
        message = str(error).strip().partition("\n")[0]
    except Exception:  # an error that has no text still has a type
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
