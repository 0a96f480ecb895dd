"""The versions of libraries whose seams were tested. Others get text in blocks."""

from __future__ import annotations

import re
import warnings
from importlib import metadata

# From, and up to but without.
TESTED: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "pandas": ((2, 2), (4,)),
    "polars": ((1,), (3,)),
    "pyarrow": ((20,), (27,)),
    "duckdb": ((1, 2), (3,)),
}
_seen: dict[str, bool] = {}


def takes_columns(library: str) -> bool:
    """Whether the installed version gives and takes columns here. Warns once if it is not among those tested."""
    if library not in _seen:
        version = metadata.version(library)
        numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
        low, high = TESTED[library]
        _seen[library] = low <= numbers < high
        if not _seen[library]:
            span = f"{'.'.join(map(str, low))} or newer, older than {'.'.join(map(str, high))}"
            warnings.warn(
                f"{library} {version} was not tested with data pipes ({span}): its tables go through them as text",
                RuntimeWarning,
                stacklevel=3,
            )
    return _seen[library]
