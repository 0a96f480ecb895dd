"""``entrepot://`` for Airflow's ``ObjectStoragePath``; Airflow finds this module through the provider's metadata.

Paths that start with ``entrepot://current/`` are in this installation's scope, like the values that tasks pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot_airflow.configuration import current_settings, default_scope

if TYPE_CHECKING:
    from entrepot_io.filesystem.file_system import EntrepotFileSystem

schemes = ["entrepot"]  # Airflow reads this name


def get_fs(conn_id: str | None, storage_options: dict[str, Any] | None = None) -> EntrepotFileSystem:
    """Return the file system, as Airflow asks for it.

    Args:
        conn_id: a connection whose extra fields are options of the file system, such as ``address``; None: none.
        storage_options: options that take precedence over the connection's and Airflow's configuration.
    """
    from airflow.sdk import BaseHook
    from entrepot_io.filesystem.file_system import EntrepotFileSystem

    settings = current_settings()
    options: dict[str, Any] = {"address": settings.address, "scope": settings.scope or default_scope()}
    if conn_id:
        options.update(BaseHook.get_connection(conn_id).extra_dejson)
    options.update(storage_options or {})
    return EntrepotFileSystem(**options)
