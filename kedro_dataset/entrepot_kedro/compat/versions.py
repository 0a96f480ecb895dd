"""Base of a dataset whose versions are not files."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from kedro.io import AbstractVersionedDataset, Version
from kedro.io.core import VersionNotFoundError as VersionNotFoundError


class VersionsInStore(AbstractVersionedDataset[Any, Any]):
    """Versions of a dataset that has no path.

    Kedro's own code for versions is kept: the version that ``catalog.load(name, version=...)`` asks for, the warning
    where the version saved is not the one that is loaded, and the generated version of a dataset without a catalog. A
    subclass says what ``resolve_load_version`` and ``list_versions`` return.

    Args:
        version: as for ``AbstractVersionedDataset``; None: it has no versions.
    """

    def __init__(self, version: Version | None) -> None:
        super().__init__(PurePosixPath("entrepot"), version)
        self._filepath: Any = None  # otherwise Kedro-Viz would measure a file of that path

    @property
    def requested_version(self) -> Version | None:
        """The version to load and the one to save; None: it has no versions."""
        version: Version | None = self._version
        return version
