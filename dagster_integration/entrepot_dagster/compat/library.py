"""The registry of Dagster's libraries, in a package that is imported without Dagster itself."""

from __future__ import annotations

from contextlib import suppress


def register_library(name: str, version: str) -> None:
    """Make a library's version known to Dagster; does nothing where Dagster is not installed.

    That is so in processes that Dagster Pipes starts, and where ``entrepot gc`` finds this package.

    Args:
        name: name of the distribution.
        version: its version.
    """
    with suppress(ModuleNotFoundError):
        from dagster_shared.libraries import DagsterLibraryRegistry

        DagsterLibraryRegistry.register(name, version, is_dagster_package=False)
