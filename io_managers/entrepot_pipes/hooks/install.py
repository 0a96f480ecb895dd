"""Install the hooks in this process: at once for the standard library, for other libraries when they are imported."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import wrapt

from entrepot_pipes.hooks import builtin_files

# By the module after whose import the function is called with it.
_SEAMS = {
    "pandas": "pandas_seam:install",
    "polars": "polars_seam:install",
    "pyarrow.csv": "pyarrow_seam:install_csv",
    "pyarrow.parquet": "pyarrow_seam:install_parquet",
    "duckdb": "duckdb_seam:install",
    "dask.dataframe": "dask_seam:install",
}
_installed = False


def install() -> None:
    """Wrap everything, once per process. Nothing heavy is imported before a program imports it."""
    global _installed
    if _installed:
        return
    _installed = True
    builtin_files.install()
    for module, seam in _SEAMS.items():
        wrapt.register_post_import_hook(_installer(seam), module)


def _installer(seam: str) -> Any:
    module, _, function = seam.partition(":")

    def imported(library: Any) -> None:
        getattr(import_module(f"entrepot_pipes.hooks.{module}"), function)(library)

    return imported
