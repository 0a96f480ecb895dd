"""Entrepot for Dagster: an IO manager that hands values over by object ID, through shared memory.

Definitions(assets=[...], resources={"io_manager": EntrepotIOManager()})
"""

from __future__ import annotations

from dagster_shared.libraries import DagsterLibraryRegistry

from entrepot_dagster.io_manager import EntrepotIOManager

__all__ = ["EntrepotIOManager"]

__version__ = "0.1.0"

DagsterLibraryRegistry.register("entrepot-dagster", __version__, is_dagster_package=False)
