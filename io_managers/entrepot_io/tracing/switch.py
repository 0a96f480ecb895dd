"""Whether there are spans: ``ENTREPOT_TRACES``, read when this module is imported. Imports nothing of OpenTelemetry."""

from __future__ import annotations

import os

from entrepot.errors import InvalidArgument

VARIABLE = "ENTREPOT_TRACES"
OFF = "off"
PROVIDER = "provider"  # spans go where the process's own tracer provider sends them
OTLP = "otlp"  # the same; in a process without one, over OTLP as OTEL_* says
_MODES = (OFF, PROVIDER, OTLP)

_mode = os.environ.get(VARIABLE, "").strip().lower() or OFF


def is_on() -> bool:
    """Whether values are traced; cheap enough to be called for each of them."""
    return _mode != OFF


def mode() -> str:
    """Return how values are traced.

    Raises:
        InvalidArgument: the environment names no such mode.
    """
    if _mode not in _MODES:
        raise InvalidArgument(f"{VARIABLE} must be one of {', '.join(_MODES)}, not {_mode!r}")
    return _mode


def set_mode(new: str) -> None:
    """Change the mode of this process, for programs that decide it themselves.

    Args:
        new: ``"off"``, ``"provider"`` or ``"otlp"``.

    Raises:
        InvalidArgument: there is no such mode.
    """
    global _mode
    if new not in _MODES:
        raise InvalidArgument(f"the mode of traces must be one of {', '.join(_MODES)}, not {new!r}")
    _mode = new
