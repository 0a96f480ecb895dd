"""``entrepot://`` for Airflow's ``ObjectStoragePath``; Airflow finds this module through the provider's metadata.

Without a connection, the path finds the store and the scope as ``entrepot.connect`` does: half of the methods of
``ObjectStoragePath`` then bypass this module, and would not know of other settings. With a connection, all of them get
the file system from here, with the settings of the values that tasks pass.
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
        conn_id: a connection whose extra fields are options of the file system, such as ``session``; they take
            precedence over Airflow's configuration. None: none.
        storage_options: options that take precedence over both.
    """
    from airflow.sdk import BaseHook
    from entrepot_io.filesystem.file_system import EntrepotFileSystem

    options: dict[str, Any] = {}
    if conn_id:
        settings = current_settings()
        options = {"address": settings.address, "scope": settings.scope or default_scope()}
        options.update(BaseHook.get_connection(conn_id).extra_dejson)
    options.update(storage_options or {})
    return EntrepotFileSystem(**options)
