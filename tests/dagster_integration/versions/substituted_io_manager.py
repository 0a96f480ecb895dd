"""Plugin of pytest by which Dagster's own tests use Entrepot's IO manager in the place of the filesystem's.

``python -m pytest -p substituted_io_manager dagster_tests/storage_tests/test_fs_io_manager.py``, with this folder in
PYTHONPATH. It replaces names of Dagster before the tests import them; the IO manager that jobs have by default is
replaced by Dagster's own variables.
"""

from __future__ import annotations

import os
from typing import Any

import dagster
from dagster import InitResourceContext, io_manager
from dagster._core.storage import fs_io_manager as filesystem
from entrepot_dagster import EntrepotIOManager
from entrepot_io.scopes import scope_of
from pydantic import Field


class FilesystemIOManager(EntrepotIOManager):
    """Entrepot's IO manager with the setting of the filesystem's; a folder of files is a scope."""

    base_dir: str | None = Field(default=None)

    def __init__(self, **data: Any) -> None:
        base_dir = data.get("base_dir")
        if isinstance(base_dir, str) and type(base_dir) is str:
            data.setdefault("scope", scope_of("dagster", base_dir))
        super().__init__(**data)


@io_manager(config_schema=FilesystemIOManager.to_config_schema())
def fs_io_manager(context: InitResourceContext) -> Any:
    return FilesystemIOManager.from_resource_context(context)


def pytest_configure() -> None:
    """Replace the filesystem's IO manager."""
    for module in (dagster, filesystem):
        vars(module).update(FilesystemIOManager=FilesystemIOManager, fs_io_manager=fs_io_manager)
    os.environ["DAGSTER_DEFAULT_IO_MANAGER_MODULE"] = __name__
    os.environ["DAGSTER_DEFAULT_IO_MANAGER_ATTRIBUTE"] = "fs_io_manager"
