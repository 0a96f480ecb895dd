"""The registry of Dagster's libraries, in a package that is imported without Dagster itself."""

from __future__ import annotations

from dagster_shared.libraries import DagsterLibraryRegistry


def register_library(name: str, version: str) -> None:
    """Make a library's version known to Dagster.

    Args:
        name: name of the distribution.
        version: its version.
    """
    DagsterLibraryRegistry.register(name, version, is_dagster_package=False)
