"""How a dataset's values are copied: the plugins' own setting, or the one of Kedro's ``MemoryDataset``."""

from __future__ import annotations

from entrepot.codec import CopyMode
from entrepot.errors import InvalidArgument

_MODES: dict[str, CopyMode] = {"assign": "never", "copy": "on_write", "deepcopy": "always"}


def copying_of(copy: str | None, copy_mode: str | None) -> str | None:
    """Return the ``copy`` setting; None: no argument sets it.

    Args:
        copy: the argument of this name.
        copy_mode: the argument of this name, one of ``MemoryDataset``'s.

    Raises:
        InvalidArgument: both are set, or there is no such mode.
    """
    if copy_mode is None:
        return copy or None
    if copy is not None:
        raise InvalidArgument(f"copy ({copy!r}) and copy_mode ({copy_mode!r}) say the same: set only one of them")
    if copy_mode not in _MODES:
        raise InvalidArgument(f"copy_mode must be one of {', '.join(map(repr, _MODES))}, not {copy_mode!r}")
    return _MODES[copy_mode]
