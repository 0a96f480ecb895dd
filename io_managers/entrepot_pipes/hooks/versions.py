"""Whether the seams of an installed library were tested, as its profile says. Others get text in blocks."""

from __future__ import annotations

import warnings
from importlib import metadata

from entrepot_pipes.profiles.shipped import has_seam, versions_with_seam

_seen: dict[str, bool] = {}


def takes_columns(library: str) -> bool:
    """Whether the installed version gives and takes columns here. Warns once if it is not among those tested."""
    if library not in _seen:
        version = metadata.version(library)
        _seen[library] = has_seam(library, version)
        if not _seen[library]:
            warnings.warn(
                f"{library} {version} was not tested with data pipes ({' or '.join(versions_with_seam(library))}):"
                " its tables go through them as text",
                RuntimeWarning,
                stacklevel=3,
            )
    return _seen[library]
